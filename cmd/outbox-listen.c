/*
 * outbox-listen: hears the NOTIFYs of the database and publishes them as frames.
 *
 * A nudge is a hint: claimers find every job without it, only later. What matters is that
 * the listener does not look healthy while it is deaf, for claimers look less often then.
 * So it publishes beats only as long as its last round trip to itself was answered.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "frame.h"
#include "link.h"
#include "log.h"
#include "loop.h"
#include "program.h"
#include "program_db.h"
#include "units.h"

enum {
	PING_INTERVAL_MS = 10000,
	PING_TIMEOUT_MS = 5000,
	BEAT_INTERVAL_MS = 2000, /* claimers take three missing ones for silence */
	LOG_INTERVAL_MS = 30000, /* of what repeats while the database is away */
};
#define DEAF_AFTER 2 /* round trips without an answer on live connections */
/* More distinct frames than this in one turn of the loop leave in several messages. */
#define MAX_MESSAGE_BYTES ((size_t)8 << 10)

struct listener {
	struct loop *loop;
	struct link *link;
	struct db *db; /* LISTENs */
	struct db
		*pinger; /* behind a pooler: NOTIFYs from a session of its own, see start_ping */
	char ping_channel[24];
	int64_t ping;   /* number of the last round trip */
	bool ping_sent; /* the server has taken it */
	bool hears;     /* the last round trip was answered */
	int unanswered; /* round trips in a row that were sent */
	int64_t beat;
	struct loop_timer ping_timer;   /* starts the next round trip */
	struct loop_timer answer_timer; /* the present one takes too long */
	struct loop_timer beat_timer;
	struct buf frames; /* published at the end of the turn */
};

/* ---- publishing ---- */

/* Lost frames are not worth a word: nobody may rely on them. */
static void flush_frames(void *ctx)
{
	struct listener *listener = ctx;
	link_send(listener->link, NULL, &listener->frames, NULL);
	buf_clear(&listener->frames);
}

/* Whether the same frame waits already. */
static bool is_waiting(const struct listener *listener, const struct buf *frame)
{
	const char *at = listener->frames.data;
	size_t left = listener->frames.len, length;
	int64_t version, type;

	while (left > 0 && frame_next(at, left, &length, &version, &type, NULL) == 1) {
		if (length == frame->len && memcmp(at, frame->data, length) == 0)
			return true;
		at += length;
		left -= length;
	}
	return false;
}

static void publish(struct listener *listener, const struct buf *frame)
{
	if (is_waiting(listener, frame))
		return;
	if (listener->frames.len + frame->len > MAX_MESSAGE_BYTES)
		flush_frames(listener);
	buf_put(&listener->frames, frame->data, frame->len);
}

/* An absent kind means: look everywhere. */
static void publish_nudge(struct listener *listener, struct str kind)
{
	const struct frame_nudge nudge = {.kind = kind};
	struct buf frame;

	buf_init(&frame, MAX_MESSAGE_BYTES);
	if (frame_put_nudge(&frame, &nudge) < 0) { /* no kind is that long */
		const struct frame_nudge everywhere = {.kind = STR_NULL};
		frame_put_nudge(&frame, &everywhere);
	}
	publish(listener, &frame);
	buf_release(&frame);
}

static void publish_cancel(struct listener *listener, const char *payload)
{
	struct frame_cancel cancel = {.epoch = 0};
	struct buf frame;

	if (units_parse_integer(payload, 1, INT64_MAX, &cancel.job_id, NULL) < 0)
		return; /* anybody may NOTIFY anything */
	buf_init(&frame, MAX_MESSAGE_BYTES);
	frame_put_cancel(&frame, &cancel);
	publish(listener, &frame);
	buf_release(&frame);
}

static void publish_beat(void *ctx)
{
	struct listener *listener = ctx;
	const struct frame_beat beat = {.id = str_of(program_incarnation()),
		.count = ++listener->beat};
	struct buf frame;

	if (!listener->hears)
		return;
	buf_init(&frame, MAX_MESSAGE_BYTES);
	frame_put_beat(&frame, &beat);
	publish(listener, &frame);
	buf_release(&frame);
	loop_set_timer(listener->loop, &listener->beat_timer, BEAT_INTERVAL_MS * 1000);
}

/* A claimer sleeps only where it hears us: one that has just come is not to wait for that. */
static void on_subscriber(void *ctx, const struct link_peer *peer)
{
	struct listener *listener = ctx;

	(void)peer;
	if (listener->hears)
		loop_set_timer(listener->loop, &listener->beat_timer, 0);
}

/* ---- the round trip: proof that a NOTIFY comes through ---- */

static void on_ping_sent(void *ctx, PGresult *result, const struct err *err)
{
	struct listener *listener = ctx;
	(void)result;
	/* Without success nothing is answered, which the timer tells. */
	listener->ping_sent = err == NULL;
}

static void start_ping(void *ctx)
{
	struct listener *listener = ctx;
	struct db *sender = listener->pinger ? listener->pinger : listener->db;
	char sql[64];

	snprintf(sql, sizeof sql, "notify %s, '%" PRId64 "'", listener->ping_channel,
		++listener->ping);
	listener->ping_sent = false;
	db_command(sender, sql, on_ping_sent, listener);
	loop_set_timer(listener->loop, &listener->answer_timer, PING_TIMEOUT_MS * 1000);
}

static void on_answer(struct listener *listener, const char *payload)
{
	int64_t number;

	if (units_parse_integer(payload, 0, INT64_MAX, &number, NULL) < 0 ||
		number != listener->ping)
		return; /* late, of a round trip that was given up */
	loop_stop_timer(listener->loop, &listener->answer_timer);
	loop_set_timer(listener->loop, &listener->ping_timer, PING_INTERVAL_MS * 1000);
	listener->unanswered = 0;
	if (listener->hears)
		return;
	listener->hears = true;
	log_event(LOG_INFO, "listening",
		LOG_INT("backend", PQbackendPID(db_conn(listener->db))));
	program_ready();
	loop_set_timer(listener->loop, &listener->beat_timer, 0);
}

static void say_deaf(const struct listener *listener)
{
	static struct log_limit limit;

	if (log_allow(&limit, LOG_INTERVAL_MS) < 0)
		return;
	log_event(LOG_ERROR, "deaf",
		LOG_TEXT("error", "the server takes notifications and none comes back"),
		LOG_TEXT("hint",
			listener->pinger
				? "a transaction pooler is in between: give outbox-listen a direct "
				  "connection with --db; until then claimers look every 5 s"
				: "LISTEN does not reach this session; claimers look every 5 s"));
}

static void on_no_answer(void *ctx)
{
	struct listener *listener = ctx;
	const char *error = listener->ping_sent
		? "a notification did not come back in time"
		: "the server did not take a notification in time";

	listener->hears = false;
	if (listener->ping_sent)
		listener->unanswered++;
	if (listener->unanswered >= DEAF_AFTER) {
		say_deaf(listener);
		/* It stands by for better days: a supervisor should not restart it for that. */
		program_ready();
	} else {
		log_event(LOG_WARNING, "round_trip_failed", LOG_TEXT("error", error));
	}
	db_reconnect(listener->db);
}

/* ---- the connection ---- */

/* Its notifications do not come back then, which is noticed. */
static void on_pinger_down(void *ctx, const struct err *err)
{
	(void)ctx;
	(void)err;
}

/*
 * The session that LISTENs would hear its own NOTIFY even through a transaction pooler,
 * which delivers what arrives during a query. There another session has to send it. A
 * pooler is known by the backend: the one that the connection was told of is not the one
 * that serves it.
 */
static int use_pinger(struct listener *listener, bool wanted, struct err *err)
{
	const struct db_options options = {
		.pooled = true,
		.on_down = on_pinger_down,
	};

	/* A new one each time: what waits in the old one is of round trips given up. */
	db_free(listener->pinger);
	listener->pinger = NULL;
	if (!wanted)
		return 0;
	listener->pinger = program_open_db(listener->loop, &options, err);
	return listener->pinger ? 0 : -1;
}

static void on_listening(void *ctx, PGresult *result, const struct err *err)
{
	struct listener *listener = ctx;
	int64_t backend;
	struct err failure = ERR_INIT;

	if (err) {
		log_error(LOG_WARNING, "listen_failed", err);
		db_reconnect(listener->db);
		return;
	}
	if (units_parse_integer(PQgetvalue(result, 0, 0), 1, INT64_MAX, &backend, &failure) <
			0 ||
		use_pinger(listener, backend != PQbackendPID(db_conn(listener->db)), &failure) <
			0) {
		program_give_up(&failure);
		return;
	}
	/* Only now: what is committed from here on is heard, what was before is looked for. */
	publish_nudge(listener, STR_NULL);
	start_ping(listener);
}

static void on_up(void *ctx)
{
	struct listener *listener = ctx;
	char sql[160];

	snprintf(sql, sizeof sql,
		"listen outbox; listen outbox_cancel; listen %s; select pg_backend_pid()",
		listener->ping_channel);
	db_command(listener->db, sql, on_listening, listener);
}

static void on_down(void *ctx, const struct err *err)
{
	struct listener *listener = ctx;
	static struct log_limit limit;
	bool heard = listener->hears;

	listener->hears = false;
	loop_stop_timer(listener->loop, &listener->ping_timer);
	loop_stop_timer(listener->loop, &listener->answer_timer);
	loop_stop_timer(listener->loop, &listener->beat_timer);
	if (heard || log_allow(&limit, LOG_INTERVAL_MS) >= 0)
		log_error(LOG_WARNING, "database_down", err);
}

static void on_notify(void *ctx, const char *channel, const char *payload)
{
	struct listener *listener = ctx;

	if (strcmp(channel, listener->ping_channel) == 0)
		on_answer(listener, payload);
	else if (strcmp(channel, "outbox_cancel") == 0)
		publish_cancel(listener, payload);
	else
		publish_nudge(listener, *payload ? str_of(payload) : STR_NULL);
}

/* ---- start and end ---- */

static void on_link_end(void *ctx, const struct err *err)
{
	struct listener *listener = ctx;
	if (err)
		program_fail(err);
	loop_stop(listener->loop);
}

static int open_link(struct listener *listener, const char *endpoint, struct err *err)
{
	const struct link_options options = {
		.pattern = LINK_PUB,
		.writes = true,
		.on_peer = on_subscriber,
		.on_end = on_link_end,
		.ctx = listener,
	};
	listener->link = program_open_link(listener->loop, &options, endpoint, "nudges", err);
	return listener->link ? 0 : -1;
}

static int open_db(struct listener *listener, struct err *err)
{
	const struct db_options options = {
		.on_up = on_up,
		.on_down = on_down,
		.on_notify = on_notify,
		.ctx = listener,
	};
	listener->db = program_open_db(listener->loop, &options, err);
	return listener->db ? 0 : -1;
}

static void set_timer_callback(struct loop_timer *timer, void (*fn)(void *ctx),
	struct listener *listener)
{
	timer->fn = fn;
	timer->ctx = listener;
}

static int listener_open(struct listener *listener, const char *endpoint, struct err *err)
{
	const char *suffix = strrchr(program_incarnation(), '.') + 1;

	snprintf(listener->ping_channel, sizeof listener->ping_channel, "outbox_ping_%s",
		suffix);
	buf_init(&listener->frames, MAX_MESSAGE_BYTES);
	set_timer_callback(&listener->ping_timer, start_ping, listener);
	set_timer_callback(&listener->answer_timer, on_no_answer, listener);
	set_timer_callback(&listener->beat_timer, publish_beat, listener);
	listener->loop = loop_new(err);
	if (!listener->loop ||
		program_handle_signals(listener->loop, NULL, NULL, listener, err) < 0 ||
		open_link(listener, endpoint, err) < 0 || open_db(listener, err) < 0)
		return -1;
	loop_on_turn(listener->loop, flush_frames, listener);
	return 0;
}

static void listener_close(struct listener *listener)
{
	db_free(listener->pinger);
	db_free(listener->db);
	link_free(listener->link);
	loop_free(listener->loop);
	buf_release(&listener->frames);
}

static const char *nudges_endpoint;

static const struct opt listen_opts[] = {
	{
		.name = "nudges",
		.type = OPT_STRING,
		.value = &nudges_endpoint,
		.argument = "ENDPOINT",
		.help = "publish nudges here, or \"-\" for stdout; else \"nudges\" in the "
				"runtime directory",
	},
	{.name = NULL},
};

int main(int argc, char **argv)
{
	static const struct opt_program program = {
		.name = "outbox-listen",
		.summary = "publish the notifications of the database as nudges",
		.usage = "[option ...]",
		.tables = {listen_opts, program_db_opts, program_link_opts, program_opts},
	};
	struct listener listener = {.beat = 0};
	struct err err = ERR_INIT;

	program_start_no_operands(&program, argc, argv);
	if (listener_open(&listener, nudges_endpoint, &err) < 0 ||
		loop_run(listener.loop, &err) < 0)
		program_fail(&err);
	program_stopping();
	listener_close(&listener);
	return program_exit_code();
}
