/*
 * outbox-settle: writes the results of runners into the database.
 */
#include "clock.h"
#include "db.h"
#include "frame.h"
#include "leavings.h"
#include "link.h"
#include "log.h"
#include "loop.h"
#include "program.h"
#include "program_db.h"
#include "settle.h"
#include "version.h"

#define PROBE_US \
	INT64_C(500000) /* while draining: how often vanished runners are looked for */

static const char *results_endpoint;
static const char *events_endpoint;
static int64_t batch_size;
static int64_t max_queue_bytes;
static int64_t grace_ms;

static const struct opt opts[] = {
	{
		.name = "results",
		.type = OPT_STRING,
		.value = &results_endpoint,
		.argument = "ENDPOINT",
		.help = "where runners bring results, or - for stdin; default: results in the "
				"runtime directory",
	},
	{
		.name = "events",
		.type = OPT_STRING,
		.value = &events_endpoint,
		.argument = "ENDPOINT",
		.help = "where transitions are published, or none; default: events-settle in the "
				"runtime directory",
	},
	{
		.name = "batch",
		.type = OPT_INTEGER,
		.value = &batch_size,
		.argument = "N",
		.default_text = "500",
		.help = "settle at most this many results in one transaction",
		.min = 1,
		.max = 5000,
	},
	{
		.name = "max-queue",
		.type = OPT_SIZE,
		.value = &max_queue_bytes,
		.argument = "SIZE",
		.default_text = "64MiB",
		.help = "stop reading results while so many bytes of them wait",
		.min = 1 << 20,
		.max = INT64_C(1) << 34,
	},
	{
		.name = "grace",
		.type = OPT_DURATION,
		.value = &grace_ms,
		.argument = "TIME",
		.default_text = "60s",
		.help = "after TERM, wait at most this long for runners to finish",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox-settle",
	.summary =
		"Writes the results of outbox-run into the database, and acknowledges them.",
	.usage = "[option ...]",
	.tables = {opts, program_db_opts, program_link_opts, program_opts},
};

struct app {
	struct settler settler;
	struct loop *loop;
	struct loop_timer probe_timer;
	struct loop_timer grace_timer;
	bool draining;
	bool input_ended;
	struct leavings leavings; /* of the workers that hellos in a pipe named */
};

/* ---- the end */

static void on_leavings_recovered(void *ctx)
{
	struct app *app = ctx;

	loop_stop(app->loop);
}

static void finish_if_done(void *ctx)
{
	struct app *app = ctx;

	if (!settler_is_idle(&app->settler))
		return;
	if (app->input_ended)
		leavings_recover(&app->leavings, app->settler.db);
	else if (app->draining && !peers_any_here(&app->settler.peers))
		loop_stop(app->loop);
}

static void on_grace_over(void *ctx)
{
	struct app *app = ctx;

	log_event(LOG_WARNING, "grace_over", LOG_INT("unsettled", app->settler.queue.count));
	loop_stop(app->loop);
}

/* A runner that vanished without a goodbye is noticed by sending to it. */
static void on_probe(void *ctx)
{
	struct app *app = ctx;
	struct buf nothing;

	buf_init(&nothing, 64);
	frame_put_ack(&nothing, &(struct frame_ack){.count = 0});
	for (struct peer *peer = app->settler.peers.first; peer != NULL; peer = peer->next) {
		struct err err = ERR_INIT;

		if (link_send(app->settler.results, &peer->address, &nothing, &err) < 0 &&
			err.class == ERR_UNAVAILABLE)
			peer->gone = true;
	}
	buf_release(&nothing);
	peers_prune(&app->settler.peers);
	loop_set_timer(app->loop, &app->probe_timer, PROBE_US);
	finish_if_done(app);
}

static void drain(void *ctx)
{
	struct app *app = ctx;

	app->draining = true;
	program_stopping();
	log_event(LOG_INFO, "draining", LOG_INT("queued", app->settler.queue.count));
	if (link_is_stdio(app->settler.results)) {
		/* what was read is settled; the rest goes back with its worker */
		link_pause(app->settler.results, true);
		app->input_ended = true;
		finish_if_done(app);
		return;
	}
	app->grace_timer = (struct loop_timer){.fn = on_grace_over, .ctx = app};
	loop_set_timer(app->loop, &app->grace_timer, grace_ms * 1000);
	app->probe_timer = (struct loop_timer){.fn = on_probe, .ctx = app};
	on_probe(app);
}

/* ---- frames */

static void greet(void *ctx, const struct link_peer *address)
{
	struct app *app = ctx;
	struct err err = ERR_INIT;
	struct buf frames;
	struct frame_hello hello = {
		.role = STR("settle"),
		.id = str_of(program_incarnation()),
		.epoch = (int64_t)random_below(INT64_MAX) + 1,
		.program_version = STR(OUTBOX_VERSION),
	};

	peers_get(&app->settler.peers, address);
	buf_init(&frames, FRAME_MAX_BYTES);
	frame_put_hello(&frames, &hello);
	if (link_send(app->settler.results, address, &frames, &err) < 0)
		log_error(LOG_DEBUG, "greeting_failed", &err);
	buf_release(&frames);
}

static void take_hello(struct app *app, const void *frame, size_t length)
{
	struct frame_hello hello;
	struct err err = ERR_INIT;

	if (frame_get_hello(frame, length, &hello, NULL, 0, NULL, 0, &err) < 0)
		log_error(LOG_WARNING, "bad_frame", &err);
	else
		leavings_note_worker(&app->leavings, hello.id);
}

static void take_beat(struct app *app, const struct link_peer *address, const void *frame,
	size_t length)
{
	struct frame_beat beat;
	struct err err = ERR_INIT;

	if (frame_get_beat(frame, length, &beat, &err) < 0 || beat.state != FRAME_BEAT_GONE)
		return;
	peers_get(&app->settler.peers, address)->gone = true;
	peers_prune(&app->settler.peers);
	finish_if_done(app);
}

static void on_frame(void *ctx, const struct link_peer *address, const void *frame,
	size_t length, int64_t version, int64_t type)
{
	static struct log_limit limit;
	struct app *app = ctx;

	if (version == FRAME_VERSION && type == FRAME_RESULT)
		settler_take(&app->settler, frame, length,
			address == NULL ? NULL : peers_get(&app->settler.peers, address));
	else if (version == FRAME_VERSION && type == FRAME_HELLO && address == NULL)
		take_hello(app, frame, length);
	else if (version == FRAME_VERSION && type == FRAME_BEAT && address != NULL)
		take_beat(app, address, frame, length);
	else if (log_allow(&limit, 10000) >= 0)
		log_event(LOG_WARNING, "unknown_frame", LOG_INT("version", version),
			LOG_INT("type", type));
}

static void on_input_end(void *ctx, const struct err *err)
{
	struct app *app = ctx;

	if (err != NULL)
		program_fail_as("input_broken", err);
	app->input_ended = true;
	finish_if_done(app);
}

/* ---- the database */

static void on_db_up(void *ctx)
{
	struct app *app = ctx;

	log_event(LOG_INFO, "connected",
		LOG_TEXT("pooler", db_is_pooled(app->settler.db) ? "yes" : NULL));
	program_ready();
	settler_go(&app->settler);
}

static void on_turn(void *ctx)
{
	struct app *app = ctx;

	settler_go(&app->settler);
}

/* ---- wiring */

static int open_results(struct app *app, struct err *err)
{
	struct link_options options = {
		.pattern = LINK_ROUTER,
		.on_frame = on_frame,
		.on_peer = greet,
		.on_end = on_input_end,
		.ctx = app,
	};

	app->settler.results = program_open_link(app->loop, &options, results_endpoint,
		"results", err);
	return app->settler.results == NULL ? -1 : 0;
}

static int open_events(struct app *app, struct err *err)
{
	/* in a pipe there is nobody to tell unless an endpoint is named */
	if (events_endpoint == NULL && link_is_stdio(app->settler.results))
		return 0;
	return program_open_events_link(app->loop, &app->settler.events, events_endpoint,
		"events-settle", err);
}

static int open_all(struct app *app, struct err *err)
{
	const struct db_options db = {.on_up = on_db_up, .ctx = app};

	app->loop = loop_new(err);
	if (app->loop == NULL)
		return -1;
	app->settler.loop = app->loop;
	app->settler.on_idle = finish_if_done;
	app->settler.ctx = app;
	app->leavings.on_done = on_leavings_recovered;
	app->leavings.ctx = app;
	if (program_handle_signals(app->loop, drain, NULL, app, err) < 0 ||
		open_results(app, err) < 0 || open_events(app, err) < 0)
		return -1;
	app->settler.db = program_open_db(app->loop, &db, err);
	if (app->settler.db == NULL)
		return -1;
	loop_on_turn(app->loop, on_turn, app);
	return 0;
}

static void close_all(struct app *app)
{
	if (app->loop != NULL)
		settler_release(&app->settler);
	link_free(app->settler.results);
	link_free(app->settler.events);
	db_free(app->settler.db);
	loop_free(app->loop);
	leavings_release(&app->leavings);
}

int main(int argc, char **argv)
{
	static struct app app;
	struct err err = ERR_INIT;

	program_start_no_operands(&program, argc, argv);
	settler_init(&app.settler, (size_t)batch_size, (size_t)max_queue_bytes);
	if (open_all(&app, &err) < 0 || loop_run(app.loop, &err) < 0)
		program_fail(&err);
	close_all(&app);
	return program_exit_code();
}
