/* Links: probes, reconnects, vanished peers, broadcasts, malformed messages, keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "buf.h"
#include "frame.h"
#include "link.h"
#include "turning.h"

static struct loop *loop;
static char folder[] = "/tmp/test_link.XXXXXX";
static char endpoint[128]; /* ipc, a new one for each test */

/* What happened at one end. */
struct end {
	struct link *link;
	int peers, frames, ends;
	char last_peer[256];
	char last_kind[64];
	bool free_at_frame;
};
static struct end server, client;

static void note_peer(void *ctx, const struct link_peer *peer)
{
	struct end *end = ctx;
	end->peers++;
	if (!peer) /* a subscriber */
		return;
	memcpy(end->last_peer, peer->id, peer->length);
	end->last_peer[peer->length] = '\0';
}

static void note_frame(void *ctx, const struct link_peer *peer, const void *frame,
	size_t length, int64_t version, int64_t type)
{
	struct end *end = ctx;
	struct frame_nudge nudge;

	assert_int_equal(version, FRAME_VERSION);
	assert_int_equal(type, FRAME_NUDGE);
	assert_int_equal(frame_get_nudge(frame, length, &nudge, NULL), 0);
	snprintf(end->last_kind, sizeof(end->last_kind), "%.*s", (int)nudge.kind.n,
		nudge.kind.s);
	if (peer) {
		memcpy(end->last_peer, peer->id, peer->length);
		end->last_peer[peer->length] = '\0';
	}
	end->frames++;
	if (end->free_at_frame) {
		link_free(end->link);
		end->link = NULL;
	}
}

static void note_end(void *ctx, const struct err *err)
{
	struct end *end = ctx;
	assert_null(err);
	end->ends++;
}

static int open_end(struct end *end, struct link_options options, struct err *err)
{
	if (!options.endpoint)
		options.endpoint = endpoint;
	options.on_peer = note_peer;
	options.on_frame = note_frame;
	options.on_end = note_end;
	options.ctx = end;
	*end = (struct end){.link = link_new(loop, &options, err)};
	return end->link ? 0 : -1;
}

static void close_end(struct end *end)
{
	link_free(end->link);
	end->link = NULL;
}

static int send_kinds(struct end *end, const char *peer_id, const char *kind, int count,
	struct err *err)
{
	const struct frame_nudge nudge = {.kind = str_of(kind)};
	struct link_peer peer;
	struct buf frames;

	if (peer_id) {
		peer.length = strlen(peer_id);
		memcpy(peer.id, peer_id, peer.length);
	}
	buf_init(&frames, SIZE_MAX);
	for (int i = 0; i < count; i++)
		assert_int_equal(frame_put_nudge(&frames, &nudge), 0);
	int rc = link_send(end->link, peer_id ? &peer : NULL, &frames, err);
	buf_release(&frames);
	return rc;
}

static int set_up(void **state)
{
	static int number;
	(void)state;
	snprintf(endpoint, sizeof(endpoint), "ipc://%s/%d", folder, number++);
	loop = loop_new(NULL);
	return loop ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	close_end(&client);
	close_end(&server);
	loop_free(loop);
	return 0;
}

struct goal {
	const int *counter;
	int at_least;
};

static bool is_reached(void *ctx)
{
	const struct goal *goal = ctx;
	return *goal->counter >= goal->at_least;
}

#define turn_until_count(counter, count) \
	turn_until(loop, is_reached, (&(struct goal){&(counter), (count)}))

#define ROUTER_OPTIONS ((struct link_options){.pattern = LINK_ROUTER})
#define DEALER_OPTIONS \
	((struct link_options){.pattern = LINK_DEALER, .routing_id = "run-1"})

static void open_pair(void)
{
	assert_int_equal(open_end(&server, ROUTER_OPTIONS, NULL), 0);
	assert_int_equal(open_end(&client, DEALER_OPTIONS, NULL), 0);
	turn_until_count(server.peers, 1);
}

/* ---- router and dealer */

static void test_probe_then_frames_both_ways(void **state)
{
	(void)state;
	open_pair();
	assert_string_equal(server.last_peer, "run-1");
	assert_false(link_is_stdio(server.link));

	assert_int_equal(send_kinds(&server, "run-1", "down", 3, NULL), 0);
	turn_until_count(client.frames, 3);
	assert_string_equal(client.last_kind, "down");
	assert_int_equal(send_kinds(&client, NULL, "up", 1, NULL), 0);
	turn_until_count(server.frames, 1);
	assert_string_equal(server.last_kind, "up");
	assert_string_equal(server.last_peer, "run-1");
	assert_int_equal(server.peers, 1);
	assert_int_equal(link_bad_frames(server.link), 0);
	assert_int_equal(link_backlog(server.link), 0);
}

static void test_server_restart_gives_a_new_probe(void **state)
{
	struct err err = ERR_INIT;
	(void)state;

	open_pair();
	close_end(&server);
	turn_for_ms(loop, 100);
	/* Refused, not kept for the successor, which would take it for fresh. */
	assert_int_equal(send_kinds(&client, NULL, "stale", 1, &err), -1);
	assert_int_equal(err.class, ERR_TEMP);
	assert_int_equal(open_end(&server, ROUTER_OPTIONS, NULL), 0);
	turn_until_count(server.peers, 1);
	assert_string_equal(server.last_peer, "run-1");
	assert_int_equal(server.frames, 0);
	assert_int_equal(send_kinds(&client, NULL, "fresh", 1, NULL), 0);
	turn_until_count(server.frames, 1);
}

static void test_client_restart_gives_a_new_probe(void **state)
{
	(void)state;
	open_pair();
	close_end(&client);
	assert_int_equal(open_end(&client, DEALER_OPTIONS, NULL), 0);
	turn_until_count(server.peers, 2);
	assert_int_equal(send_kinds(&server, "run-1", "again", 1, NULL), 0);
	turn_until_count(client.frames, 1);
}

static bool peer_is_gone(void *ctx)
{
	struct err *err = ctx;
	return send_kinds(&server, "run-1", "x", 1, err) < 0;
}

static void test_send_to_a_vanished_peer(void **state)
{
	struct err err = ERR_INIT;
	(void)state;

	open_pair();
	assert_int_equal(send_kinds(&server, "run-2", "x", 1, &err), -1);
	assert_int_equal(err.class, ERR_UNAVAILABLE);
	close_end(&client);
	err = ERR_INIT;
	turn_until(loop, peer_is_gone, &err);
	assert_int_equal(err.class, ERR_UNAVAILABLE);
}

static void test_second_binder_is_refused(void **state)
{
	struct err err = ERR_INIT;
	struct end second;
	(void)state;

	open_pair();
	assert_int_equal(open_end(&second, ROUTER_OPTIONS, &err), -1);
	assert_int_equal(err.class, ERR_TEMP);
	assert_int_equal(send_kinds(&client, NULL, "still", 1, NULL), 0);
	turn_until_count(server.frames, 1);
}

static void test_pause_stops_messages(void **state)
{
	(void)state;
	open_pair();
	link_pause(server.link, true);
	assert_int_equal(send_kinds(&client, NULL, "x", 1, NULL), 0);
	turn_for_ms(loop, 50);
	assert_int_equal(server.frames, 0);
	link_pause(server.link, false);
	turn_until_count(server.frames, 1);
}

static void test_freed_by_its_own_callback(void **state)
{
	(void)state;
	open_pair();
	server.free_at_frame = true;
	assert_int_equal(send_kinds(&client, NULL, "x", 3, NULL), 0);
	turn_until_count(server.frames, 1);
	turn_for_ms(loop, 20);
	assert_int_equal(server.frames, 1);
	assert_null(server.link);
}

static void test_malformed_messages_are_counted_and_dropped(void **state)
{
	void *context = zmq_ctx_new();
	void *rogue = zmq_socket(context, ZMQ_DEALER);
	(void)state;

	assert_int_equal(open_end(&server, ROUTER_OPTIONS, NULL), 0);
	assert_int_equal(zmq_connect(rogue, endpoint), 0);
	assert_int_equal(zmq_send(rogue, "no frame", 8, 0), 8);
	assert_int_equal(zmq_send(rogue, "\x92\x01", 2, 0), 2); /* cut */
	assert_int_equal(zmq_send(rogue,
						 "\x93\x01\x01\xa1"
						 "a",
						 5, ZMQ_SNDMORE),
		5);
	assert_int_equal(zmq_send(rogue,
						 "\x93\x01\x01\xa1"
						 "b",
						 5, 0),
		5); /* two parts */
	/* A good frame, then rubbish in the same message: the good one counts. */
	assert_int_equal(zmq_send(rogue, "\x93\x01\x01\xa4good\xc1", 9, 0), 9);
	turn_until_count(server.frames, 1);
	turn_for_ms(loop, 20);
	assert_string_equal(server.last_kind, "good");
	assert_int_equal(server.frames, 1);
	assert_int_equal(link_bad_frames(server.link), 4);
	zmq_close(rogue);
	zmq_ctx_term(context);
}

/* ---- broadcasts */

static bool subscriber_hears(void *ctx)
{
	(void)ctx;
	assert_int_equal(send_kinds(&server, NULL, "news", 1, NULL), 0);
	return client.frames > 0;
}

static void test_subscriber_hears_everything(void **state)
{
	const struct link_options pub = {.pattern = LINK_PUB};
	const struct link_options sub = {.pattern = LINK_SUB};
	(void)state;

	assert_int_equal(open_end(&server, pub, NULL), 0);
	assert_int_equal(send_kinds(&server, NULL, "nobody", 1, NULL), 0);
	assert_int_equal(open_end(&client, sub, NULL), 0);
	turn_until(loop, subscriber_hears, NULL);
	assert_string_equal(client.last_kind, "news");
}

static void test_publisher_hears_of_each_subscriber(void **state)
{
	const struct link_options pub = {.pattern = LINK_PUB};
	struct link_options sub = {.pattern = LINK_SUB, .endpoint = endpoint};
	(void)state;

	assert_int_equal(open_end(&server, pub, NULL), 0);
	assert_int_equal(open_end(&client, sub, NULL), 0);
	turn_until_count(server.peers, 1);
	sub.on_frame = note_frame;
	struct link *second = link_new(loop, &sub, NULL);
	assert_non_null(second);
	turn_until_count(server.peers, 2);
	link_free(second);
	turn_for_ms(loop, 20);
	assert_int_equal(server.peers, 2);
}

/* ---- stdin and stdout */

static void test_shell_pipe(void **state)
{
	int pipe_fds[2], old_in = dup(STDIN_FILENO), old_out = dup(STDOUT_FILENO);
	const struct link_options in = {.pattern = LINK_ROUTER, .endpoint = "-"};
	const struct link_options out = {.pattern = LINK_DEALER,
		.endpoint = "-",
		.writes = true};
	(void)state;

	assert_true(link_is_stdio_endpoint("-"));
	assert_false(link_is_stdio_endpoint(endpoint));
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	fflush(stdout);
	dup2(pipe_fds[0], STDIN_FILENO);
	dup2(pipe_fds[1], STDOUT_FILENO);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	assert_int_equal(open_end(&server, in, NULL), 0);
	assert_int_equal(open_end(&client, out, NULL), 0);
	assert_int_equal(send_kinds(&client, NULL, "piped", 1000, NULL), 0);
	assert_true(link_backlog(client.link) > 0);
	turn_until_count(server.frames, 1000);
	assert_true(link_is_stdio(client.link));
	assert_int_equal(link_backlog(client.link), 0);
	assert_int_equal(server.ends, 0);
	close_end(&client);
	dup2(old_out, STDOUT_FILENO);
	turn_until_count(server.ends, 1);
	close_end(&server);
	dup2(old_in, STDIN_FILENO);
	close(old_in);
	close(old_out);
	assert_string_equal(server.last_kind, "piped");
}

/* ---- keys */

static char keys_dir[64], other_keys_dir[64];
static char tcp_endpoint[64];

static struct link_options tcp_options(enum link_pattern pattern, const char *keys)
{
	return (struct link_options){.pattern = pattern,
		.endpoint = tcp_endpoint,
		.routing_id = pattern == LINK_DEALER ? "run-1" : NULL,
		.keys_dir = keys};
}

/* A port that is free now; the range of ports that the system gives out is not reused soon. */
static void choose_tcp_endpoint(void)
{
	void *context = zmq_ctx_new();
	void *probe = zmq_socket(context, ZMQ_PAIR);
	size_t size = sizeof(tcp_endpoint);

	assert_int_equal(zmq_bind(probe, "tcp://127.0.0.1:*"), 0);
	assert_int_equal(zmq_getsockopt(probe, ZMQ_LAST_ENDPOINT, tcp_endpoint, &size), 0);
	zmq_close(probe);
	zmq_ctx_term(context);
}

static int set_up_keys(void **state)
{
	static int number;

	snprintf(keys_dir, sizeof(keys_dir), "%s/keys%d", folder, number);
	snprintf(other_keys_dir, sizeof(other_keys_dir), "%s/other%d", folder, number++);
	choose_tcp_endpoint();
	if (link_generate_keys(keys_dir, NULL) < 0 ||
		link_generate_keys(other_keys_dir, NULL) < 0)
		return -1;
	return set_up(state);
}

static void copy_file(const char *from_dir, const char *from, const char *to_dir,
	const char *to)
{
	char path[256], bytes[64];

	snprintf(path, sizeof(path), "%s/%s", from_dir, from);
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	size_t count = fread(bytes, 1, sizeof(bytes), file);
	fclose(file);
	snprintf(path, sizeof(path), "%s/%s", to_dir, to);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(bytes, 1, count, file), count);
	fclose(file);
}

static void test_tcp_needs_keys_or_the_word(void **state)
{
	struct link_options options = tcp_options(LINK_ROUTER, NULL);
	struct err err = ERR_INIT;
	(void)state;

	assert_int_equal(open_end(&server, options, &err), -1);
	assert_int_equal(err.class, ERR_CONFIG);
	options.keys_dir = "";
	assert_int_equal(open_end(&server, options, NULL), -1);
	options.keys_dir = "/nonexistent";
	assert_int_equal(open_end(&server, options, &err), -1);
	assert_int_equal(err.class, ERR_CONFIG);
	options.keys_dir = NULL;
	options.insecure = true;
	assert_int_equal(open_end(&server, options, NULL), 0);
	options = tcp_options(LINK_DEALER, NULL);
	options.insecure = true;
	assert_int_equal(open_end(&client, options, NULL), 0);
	turn_until_count(server.peers, 1);
}

static void test_other_endpoints_are_refused(void **state)
{
	static const char *const endpoints[] = {"", "udp://127.0.0.1:1", "inproc://x",
		"/tmp/x", "tcp:/x", "ipc://", "tcp://x"};
	struct link_options options = {.pattern = LINK_ROUTER, .insecure = true};
	(void)state;

	for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++) {
		struct err err = ERR_INIT;
		options.endpoint = endpoints[i];
		assert_int_equal(open_end(&server, options, &err), -1);
		assert_int_equal(err.class, ERR_CONFIG);
	}
	assert_int_equal(access(".lock", F_OK), -1); /* of the path that is empty */
}

static void test_own_client_key_is_admitted(void **state)
{
	(void)state;
	assert_int_equal(open_end(&server, tcp_options(LINK_ROUTER, keys_dir), NULL), 0);
	assert_int_equal(open_end(&client, tcp_options(LINK_DEALER, keys_dir), NULL), 0);
	turn_until_count(server.peers, 1);
	assert_int_equal(send_kinds(&client, NULL, "secret", 1, NULL), 0);
	turn_until_count(server.frames, 1);
}

/* A client that has the server's public key, but whose own is admitted only later. */
static void test_strange_key_is_refused_until_it_is_listed(void **state)
{
	char clients_dir[128];
	struct err err = ERR_INIT;
	(void)state;

	copy_file(keys_dir, "server.pub", other_keys_dir, "server.pub");
	assert_int_equal(open_end(&server, tcp_options(LINK_ROUTER, keys_dir), NULL), 0);
	assert_int_equal(open_end(&client, tcp_options(LINK_DEALER, other_keys_dir), NULL),
		0);
	turn_for_ms(loop, 300);
	assert_int_equal(server.peers, 0);
	assert_int_equal(send_kinds(&client, NULL, "x", 1, &err), -1);
	assert_int_equal(err.class, ERR_TEMP);

	snprintf(clients_dir, sizeof(clients_dir), "%s/clients", keys_dir);
	assert_int_equal(mkdir(clients_dir, 0700), 0);
	copy_file(other_keys_dir, "client.pub", clients_dir, "host-b.pub");
	turn_until_count(server.peers, 1);
}

static void test_plain_client_is_refused(void **state)
{
	struct link_options options = tcp_options(LINK_DEALER, NULL);
	(void)state;

	options.insecure = true;
	assert_int_equal(open_end(&server, tcp_options(LINK_ROUTER, keys_dir), NULL), 0);
	assert_int_equal(open_end(&client, options, NULL), 0);
	turn_for_ms(loop, 300);
	assert_int_equal(server.peers, 0);
}

static void test_two_servers_share_the_gate(void **state)
{
	struct end events;
	(void)state;

	assert_int_equal(open_end(&server, tcp_options(LINK_ROUTER, keys_dir), NULL), 0);
	char first[sizeof(tcp_endpoint)];
	memcpy(first, tcp_endpoint, sizeof(first));
	choose_tcp_endpoint();
	assert_int_equal(open_end(&events, tcp_options(LINK_PUB, keys_dir), NULL), 0);
	close_end(&events);
	memcpy(tcp_endpoint, first, sizeof(first));
	assert_int_equal(open_end(&client, tcp_options(LINK_DEALER, keys_dir), NULL), 0);
	turn_until_count(server.peers, 1);
}

static void test_open_secret_key_is_refused(void **state)
{
	char path[128];
	struct err err = ERR_INIT;
	(void)state;

	snprintf(path, sizeof(path), "%s/server.key", keys_dir);
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(open_end(&server, tcp_options(LINK_ROUTER, keys_dir), &err), -1);
	assert_int_equal(err.class, ERR_CONFIG);
	assert_non_null(strstr(err.text, "server.key"));
	assert_int_equal(chmod(path, 0600), 0);
	assert_int_equal(truncate(path, 39), 0);
	assert_int_equal(open_end(&server, tcp_options(LINK_ROUTER, keys_dir), &err), -1);
	assert_non_null(strstr(err.text, "does not hold"));
}

static void test_keys_are_private_and_never_overwritten(void **state)
{
	static const char *const names[] = {"server.key", "server.pub", "client.key",
		"client.pub"};
	char path[128];
	struct stat status;
	struct err err = ERR_INIT;
	(void)state;

	assert_int_equal(stat(keys_dir, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0700);
	for (size_t i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/%s", keys_dir, names[i]);
		assert_int_equal(stat(path, &status), 0);
		assert_int_equal(status.st_mode & 07777, 0600);
		assert_int_equal(status.st_size, 41);
	}
	assert_int_equal(unlink(path), 0); /* one missing: still nothing is overwritten */
	assert_int_equal(link_generate_keys(keys_dir, &err), -1);
	assert_int_equal(err.class, ERR_CONFIG);
	assert_int_equal(access(path, F_OK), -1);
}

static int make_folder(void **state)
{
	(void)state;
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char command[64];
	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command);
}

#define link_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define key_test(name) cmocka_unit_test_setup_teardown(name, set_up_keys, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		link_test(test_probe_then_frames_both_ways),
		link_test(test_server_restart_gives_a_new_probe),
		link_test(test_client_restart_gives_a_new_probe),
		link_test(test_send_to_a_vanished_peer),
		link_test(test_second_binder_is_refused),
		link_test(test_pause_stops_messages),
		link_test(test_freed_by_its_own_callback),
		link_test(test_malformed_messages_are_counted_and_dropped),
		link_test(test_subscriber_hears_everything),
		link_test(test_publisher_hears_of_each_subscriber),
		link_test(test_shell_pipe),
		key_test(test_tcp_needs_keys_or_the_word),
		key_test(test_other_endpoints_are_refused),
		key_test(test_own_client_key_is_admitted),
		key_test(test_strange_key_is_refused_until_it_is_listed),
		key_test(test_plain_client_is_refused),
		key_test(test_two_servers_share_the_gate),
		key_test(test_open_secret_key_is_refused),
		key_test(test_keys_are_private_and_never_overwritten),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
