#include "link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "curve.h"
#include "frame.h"
#include "frame_stream.h"
#include "runtime.h"

/* The measured socket options; reasons stand beside the calls. */
enum {
	LINGER_MS = 1000,
	RECONNECT_MS = 50,
	RECONNECT_MAX_MS = 2000,
	HANDSHAKE_MS = 2000,
	HEARTBEAT_MS = 2000,
	HEARTBEAT_TIMEOUT_MS = 6000,
};
#define MESSAGE_MAX_BYTES (INT64_C(256) << 20)

struct link {
	struct loop *loop;
	struct link_options options;
	struct frame_stream *stream; /* "-", else NULL */
	void *socket;                /* ZeroMQ, else NULL */
	bool gated;                  /* holds the gate for CURVE clients open */
	int guard_fd;                /* the lock of an ipc path; -1: none */
	int64_t bad_frames;
	int holds;  /* callbacks of ours that are running */
	bool freed; /* while they were: the last one frees */
};

/* ---- the ZeroMQ context: one a process */

static void *context;
static size_t open_sockets;

/* Terminating waits for sockets: at most LINGER for closed ones, for ever for open ones. A
 * program that exits in the middle leaves those to the kernel. */
static void end_context(void)
{
	if (open_sockets == 0)
		zmq_ctx_term(context);
}

static int need_context(struct err *err)
{
	if (context)
		return 0;
	context = zmq_ctx_new();
	if (!context)
		return err_set(err, ERR_OS, "could not start ZeroMQ: %s", zmq_strerror(errno));
	if (atexit(end_context) != 0)
		return err_set(err, ERR_OS, "could not register an exit handler");
	return 0;
}

/* ---- endpoints */

bool link_is_stdio_endpoint(const char *endpoint)
{
	return strcmp(endpoint, "-") == 0;
}

static bool is_ipc(const char *endpoint)
{
	return strncmp(endpoint, "ipc://", 6) == 0;
}

static bool is_tcp(const char *endpoint)
{
	return strncmp(endpoint, "tcp://", 6) == 0;
}

static bool binds(enum link_pattern pattern)
{
	return pattern == LINK_ROUTER || pattern == LINK_PUB;
}

static bool reads(enum link_pattern pattern)
{
	return pattern != LINK_PUB;
}

/* ---- socket options */

static int set_option(void *zmq_socket, int option, int value)
{
	return zmq_setsockopt(zmq_socket, option, &value, sizeof(value));
}

static int set_router_options(void *zmq_socket)
{
	/* Without MANDATORY, frames for a peer that is gone vanish silently. HANDOVER: a
	 * runner that comes back takes its id over from its half-dead connection. The queue is
	 * unbounded because credit bounds it; a limit would refuse in the middle of a batch. */
	return set_option(zmq_socket, ZMQ_ROUTER_MANDATORY, 1) |
		set_option(zmq_socket, ZMQ_ROUTER_HANDOVER, 1) |
		set_option(zmq_socket, ZMQ_SNDHWM, 0);
}

static int set_dealer_options(void *zmq_socket, const char *routing_id)
{
	int rc = 0;
	if (routing_id)
		rc = zmq_setsockopt(zmq_socket, ZMQ_ROUTING_ID, routing_id, strlen(routing_id));
	/* IMMEDIATE: nothing is queued for a server that is not there, where its successor
	 * would take it for fresh. Only with it is the probe sent again on a reconnect. */
	return rc | set_option(zmq_socket, ZMQ_IMMEDIATE, 1) |
		set_option(zmq_socket, ZMQ_PROBE_ROUTER, 1);
}

static int set_tcp_options(void *zmq_socket, const char *endpoint)
{
	/* Heartbeats find hosts that vanished; whether a program lives is for its beats. */
	int rc = set_option(zmq_socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS) |
		set_option(zmq_socket, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS);
	if (strchr(endpoint, '['))
		rc |= set_option(zmq_socket, ZMQ_IPV6, 1);
	return rc;
}

static int set_options(void *zmq_socket, const struct link_options *options)
{
	const int64_t max_bytes = MESSAGE_MAX_BYTES;

	int rc = set_option(zmq_socket, ZMQ_LINGER, LINGER_MS) |
		set_option(zmq_socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) |
		set_option(zmq_socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS) |
		set_option(zmq_socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) |
		zmq_setsockopt(zmq_socket, ZMQ_MAXMSGSIZE, &max_bytes, sizeof(max_bytes));
	if (options->pattern == LINK_ROUTER)
		rc |= set_router_options(zmq_socket);
	if (options->pattern == LINK_DEALER)
		rc |= set_dealer_options(zmq_socket, options->routing_id);
	if (options->pattern == LINK_PUB)
		/* to hear of each subscriber, not only of the first */
		rc |= set_option(zmq_socket, ZMQ_XPUB_VERBOSE, 1);
	if (options->pattern == LINK_SUB)
		rc |= zmq_setsockopt(zmq_socket, ZMQ_SUBSCRIBE, "", 0);
	if (is_tcp(options->endpoint))
		rc |= set_tcp_options(zmq_socket, options->endpoint);
	return rc;
}

static int secure(struct link *link, struct err *err)
{
	const struct link_options *options = &link->options;

	if (!is_tcp(options->endpoint))
		return 0;
	if (!options->keys_dir || !*options->keys_dir) {
		if (options->insecure)
			return 0;
		return err_set(err, ERR_CONFIG,
			"endpoint \"%s\" needs CURVE keys (--keys) or the word --insecure",
			options->endpoint);
	}
	if (!binds(options->pattern))
		return curve_set_client(link->socket, options->keys_dir, err);
	if (curve_set_server(link->socket, options->keys_dir, err) < 0 ||
		curve_gate_open(context, link->loop, err) < 0)
		return -1;
	link->gated = true;
	return 0;
}

/* ---- receiving */

static void release(struct link *link)
{
	if (--link->holds == 0 && link->freed)
		free(link);
}

static void deliver_frames(struct link *link, const struct link_peer *peer,
	const char *bytes, size_t count)
{
	size_t length;
	int64_t version, type;

	while (count > 0 && !link->freed) {
		if (frame_next(bytes, count, &length, &version, &type, NULL) <= 0) {
			link->bad_frames++;
			return;
		}
		link->options.on_frame(link->options.ctx, peer, bytes, length, version, type);
		bytes += length;
		count -= length;
	}
}

static void deliver_message(struct link *link, const struct link_peer *peer,
	zmq_msg_t *body)
{
	if (peer && zmq_msg_size(body) == 0) {
		if (link->options.on_peer)
			link->options.on_peer(link->options.ctx, peer);
		return;
	}
	deliver_frames(link, peer, zmq_msg_data(body), zmq_msg_size(body));
}

/* Ours have one part; what another program sends in more is dropped to its end. */
static bool drop_further_parts(struct link *link, zmq_msg_t *body)
{
	bool any = false;

	while (zmq_msg_more(body) && zmq_msg_recv(body, link->socket, ZMQ_DONTWAIT) >= 0)
		any = true;
	return any;
}

static bool receive_message(void *ctx)
{
	struct link *link = ctx;
	struct link_peer sender;
	const struct link_peer *peer = NULL;
	zmq_msg_t body;

	if (link->options.pattern == LINK_ROUTER) {
		int length = zmq_recv(link->socket, sender.id, sizeof(sender.id), ZMQ_DONTWAIT);
		if (length < 0)
			return false;
		sender.length = (size_t)length;
		peer = &sender;
	}
	zmq_msg_init(&body);
	bool received = zmq_msg_recv(&body, link->socket, ZMQ_DONTWAIT) >= 0;
	if (received) {
		link->holds++;
		if (drop_further_parts(link, &body))
			link->bad_frames++;
		else
			deliver_message(link, peer, &body);
		release(link);
	}
	zmq_msg_close(&body);
	return received;
}

/* All that an XPUB socket receives (RFC 29): 1 and the topic; 0 and the topic at its end. */
static bool receive_subscription(void *ctx)
{
	struct link *link = ctx;
	unsigned char first = 0;

	if (zmq_recv(link->socket, &first, sizeof(first), ZMQ_DONTWAIT) < 0)
		return false;
	if (first == 1 && link->options.on_peer) {
		link->holds++;
		link->options.on_peer(link->options.ctx, NULL);
		release(link);
	}
	return true;
}

/* ---- opening */

static enum err_class class_of_endpoint_error(int errnum)
{
	switch (errnum) {
	case EADDRINUSE:
	case EADDRNOTAVAIL:
		return ERR_TEMP;
	case EACCES:
	case EPERM:
		return ERR_PERM;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case ENOBUFS:
		return ERR_OS;
	default:
		return ERR_CONFIG;
	}
}

static int attach(struct link *link, struct err *err)
{
	const char *endpoint = link->options.endpoint;
	const char *verb = "bind";
	int rc;

	if (binds(link->options.pattern)) {
		int guard_fd = runtime_guard(endpoint, err);
		if (guard_fd == -1)
			return -1;
		link->guard_fd = guard_fd >= 0 ? guard_fd : -1;
		rc = zmq_bind(link->socket, endpoint);
	} else {
		verb = "connect to";
		rc = zmq_connect(link->socket, endpoint);
	}
	if (rc == 0)
		return 0;
	return err_set(err, class_of_endpoint_error(errno), "could not %s \"%s\": %s", verb,
		endpoint, zmq_strerror(errno));
}

static int open_socket(struct link *link, struct err *err)
{
	static const int types[] = {
		[LINK_ROUTER] = ZMQ_ROUTER,
		[LINK_DEALER] = ZMQ_DEALER,
		[LINK_PUB] = ZMQ_XPUB,
		[LINK_SUB] = ZMQ_SUB,
	};
	const struct link_options *options = &link->options;

	if (!is_ipc(options->endpoint) && !is_tcp(options->endpoint))
		return err_set(err, ERR_CONFIG,
			"endpoint \"%s\" does not begin with ipc:// or tcp:// and is not \"-\"",
			options->endpoint);
	if (need_context(err) < 0)
		return -1;
	link->socket = zmq_socket(context, types[options->pattern]);
	if (!link->socket)
		return err_set(err, ERR_OS, "could not create a socket: %s", zmq_strerror(errno));
	open_sockets++;
	if (set_options(link->socket, options) != 0)
		return err_set(err, ERR_CONFIG, "could not set the options of \"%s\": %s",
			options->endpoint, zmq_strerror(errno));
	if (secure(link, err) < 0 || attach(link, err) < 0)
		return -1;
	return loop_add_socket(link->loop, link->socket,
		reads(options->pattern) ? receive_message : receive_subscription, link, err);
}

static void on_stream_frame(void *ctx, const void *frame, size_t length, int64_t version,
	int64_t type)
{
	struct link *link = ctx;
	link->options.on_frame(link->options.ctx, NULL, frame, length, version, type);
}

static void on_stream_end(void *ctx, const struct err *err)
{
	struct link *link = ctx;

	if (err && err->class == ERR_PROTOCOL)
		link->bad_frames++;
	if (link->options.on_end)
		link->options.on_end(link->options.ctx, err);
}

static int open_stream(struct link *link, struct err *err)
{
	bool writes = link->options.writes || !reads(link->options.pattern);
	const struct frame_stream_options options = {
		.fd = writes ? STDOUT_FILENO : STDIN_FILENO,
		.writes = writes,
		.on_frame = on_stream_frame,
		.on_end = on_stream_end,
		.ctx = link,
	};
	link->stream = frame_stream_new(link->loop, &options, err);
	return link->stream ? 0 : -1;
}

struct link *link_new(struct loop *loop, const struct link_options *options,
	struct err *err)
{
	struct link *link = mem_alloc(1, sizeof(*link));

	link->loop = loop;
	link->options = *options;
	link->guard_fd = -1;
	int rc = link_is_stdio_endpoint(options->endpoint) ? open_stream(link, err)
													   : open_socket(link, err);
	if (rc < 0) {
		link_free(link);
		return NULL;
	}
	return link;
}

void link_free(struct link *link)
{
	if (!link || link->freed)
		return;
	link->freed = true;
	frame_stream_free(link->stream, LINGER_MS);
	if (link->socket) {
		loop_del_socket(link->loop, link->socket);
		zmq_close(link->socket);
		open_sockets--;
	}
	if (link->gated)
		curve_gate_close();
	if (link->guard_fd >= 0)
		close(link->guard_fd);
	link->holds++;
	release(link);
}

/* ---- sending */

static int send_failed(int errnum, struct err *err)
{
	if (errnum == EHOSTUNREACH)
		return err_set(err, ERR_UNAVAILABLE, "the peer is gone");
	if (errnum == EAGAIN || errnum == EINTR)
		return err_set(err, ERR_TEMP, "the peer is not connected or not fast enough");
	return err_set(err, ERR_OS, "could not send: %s", zmq_strerror(errnum));
}

int link_send(struct link *link, const struct link_peer *peer, const struct buf *frames,
	struct err *err)
{
	if (frames->len == 0)
		return 0;
	if (link->stream)
		return frame_stream_send(link->stream, frames->data, frames->len, err);
	if (frames->len > MESSAGE_MAX_BYTES) /* the receiver would cut the connection */
		return err_set(err, ERR_SOFTWARE, "a message of %zu bytes is too large to send",
			frames->len);
	if (link->options.pattern == LINK_ROUTER &&
		zmq_send(link->socket, peer->id, peer->length, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
		return send_failed(errno, err);
	if (zmq_send(link->socket, frames->data, frames->len, ZMQ_DONTWAIT) < 0)
		return send_failed(errno, err);
	return 0;
}

size_t link_backlog(const struct link *link)
{
	return link->stream ? frame_stream_backlog(link->stream) : 0;
}

void link_pause(struct link *link, bool paused)
{
	if (link->stream)
		frame_stream_pause(link->stream, paused);
	else
		loop_pause_socket(link->loop, link->socket, paused);
}

bool link_is_stdio(const struct link *link)
{
	return link->stream != NULL;
}

int64_t link_bad_frames(const struct link *link)
{
	return link->bad_frames;
}

int link_generate_keys(const char *keys_dir, struct err *err)
{
	return curve_generate_keys(keys_dir, err);
}
