/*
 * outbox-claim: claims jobs for the runners that are connected to it.
 */
#include "claimer.h"
#include "frame.h"
#include "log.h"
#include "members.h"
#include "options.h"
#include "pipe.h"
#include "program.h"
#include "program_db.h"

#define STAY_US \
	INT64_C(1000000) /* after TERM: time for runners to say that they drain too */

struct app {
	struct loop *loop;
	struct db *db;
	struct link *link; /* jobs */
	struct link *nudges;
	struct claimer claimer;
	struct pipe pipe;
	struct loop_timer stay_timer;
	int64_t leave_at_us;
};

/* ---- frames */

static void log_unknown(int64_t version, int64_t type)
{
	static struct log_limit log_limit;

	if (log_allow(&log_limit, 10000) >= 0)
		log_event(LOG_WARNING, "unknown_frame", LOG_INT("version", version),
			LOG_INT("type", type));
}

static void on_peer(void *ctx, const struct link_peer *peer)
{
	struct app *app = ctx;

	members_greet(&app->claimer, peer);
}

static void on_runner_frame(void *ctx, const struct link_peer *peer, const void *frame,
	size_t length, int64_t version, int64_t type)
{
	struct app *app = ctx;

	if (version != FRAME_VERSION || peer == NULL)
		log_unknown(version, type);
	else
		members_take_frame(&app->claimer, peer, frame, length, type);
}

static void on_listener_frame(void *ctx, const struct link_peer *peer, const void *frame,
	size_t length, int64_t version, int64_t type)
{
	struct app *app = ctx;
	struct frame_nudge nudge;
	struct err err = ERR_INIT;

	(void)peer;
	if (version == FRAME_VERSION && type == FRAME_NUDGE &&
		frame_get_nudge(frame, length, &nudge, &err) == 0)
		claimer_nudge(&app->claimer, nudge.kind);
	else if (version == FRAME_VERSION && type == FRAME_BEAT)
		claimer_hear_listener(&app->claimer);
	else if (version == FRAME_VERSION && type == FRAME_CANCEL)
		members_want_cancels(&app->claimer);
	else
		log_unknown(version, type);
}

static void on_output_end(void *ctx, const struct err *err)
{
	(void)ctx;
	/* whoever should have read is gone; the sweeper gives the jobs back */
	program_give_up(err);
}

/* ---- the end */

static void on_stay(void *ctx)
{
	struct app *app = ctx;

	if (loop_now_us(app->loop) >= app->leave_at_us || !members_need_us(&app->claimer))
		loop_stop(app->loop);
	else
		loop_set_timer(app->loop, &app->stay_timer, STAY_US);
}

/* Nobody is to be waited for, and nothing is left to be recorded. */
static bool is_alone(const struct app *app)
{
	return app->claimer.runners.first == NULL && db_queue_length(app->db) == 0;
}

static void drain(void *ctx)
{
	struct app *app = ctx;

	program_stopping();
	log_event(LOG_INFO, "draining");
	if (claim_options.once) {
		loop_stop(app->loop);
		return;
	}
	claimer_drain(&app->claimer);
	app->leave_at_us = loop_now_us(app->loop) + claim_options.grace_ms * 1000;
	app->stay_timer = (struct loop_timer){.fn = on_stay, .ctx = app};
	loop_set_timer(app->loop, &app->stay_timer, is_alone(app) ? 0 : STAY_US);
}

/* ---- the database */

static void on_db_up(void *ctx)
{
	struct app *app = ctx;

	log_event(LOG_INFO, "connected",
		LOG_TEXT("pooler", db_is_pooled(app->db) ? "yes" : NULL));
	if (claim_options.once && !app->pipe.is_started) {
		app->pipe.is_started = true;
		pipe_run(&app->pipe);
	} else if (!claim_options.once) {
		program_ready();
		claimer_db_up(&app->claimer);
	}
}

static void on_turn(void *ctx)
{
	struct app *app = ctx;

	if (claim_options.once)
		pipe_turn(&app->pipe);
	else
		claimer_turn(&app->claimer);
}

/* ---- wiring */

static void set_up(struct app *app)
{
	const struct claimer_options claimer = {
		.id = program_incarnation(),
		.lane = claim_options.lane,
		.lease_ms = claim_options.lease_ms,
		.batch = claim_options.batch,
		.reserves = claim_options.reserves,
		.reserves_count = claim_options.reserves_count,
	};

	claimer_init(&app->claimer, &claimer);
	app->pipe.options = (struct pipe_options){
		.worker = program_incarnation(),
		.lane = claim_options.lane,
		.lease_ms = claim_options.lease_ms,
		.limit = claim_options.limit,
		.kinds = (const char *const *)claim_options.kinds.items,
		.kinds_count = claim_options.kinds.count,
	};
}

static int open_jobs(struct app *app, struct err *err)
{
	const struct link_options options = {
		.pattern = LINK_ROUTER,
		.writes = true,
		.on_frame = on_runner_frame,
		.on_peer = on_peer,
		.on_end = on_output_end,
		.ctx = app,
	};

	app->link = program_open_jobs_link(app->loop, &options, claim_options.jobs,
		claim_options.lane, err);
	return app->link == NULL ? -1 : 0;
}

static int open_nudges(struct app *app, struct err *err)
{
	const struct link_options options = {
		.pattern = LINK_SUB,
		.on_frame = on_listener_frame,
		.ctx = app,
	};

	if (claim_options.once)
		return 0;
	app->nudges = program_open_link(app->loop, &options, claim_options.nudges, "nudges",
		err);
	return app->nudges == NULL ? -1 : 0;
}

static int open_all(struct app *app, struct err *err)
{
	const struct db_options db = {.on_up = on_db_up, .ctx = app};

	app->loop = loop_new(err);
	if (app->loop == NULL ||
		program_handle_signals(app->loop, drain, NULL, app, err) < 0 ||
		open_jobs(app, err) < 0 || open_nudges(app, err) < 0)
		return -1;
	app->db = program_open_db(app->loop, &db, err);
	if (app->db == NULL)
		return -1;
	app->claimer.loop = app->pipe.loop = app->loop;
	app->claimer.db = app->pipe.db = app->db;
	app->claimer.jobs = app->pipe.out = app->link;
	loop_on_turn(app->loop, on_turn, app);
	if (!claim_options.once)
		claimer_start(&app->claimer);
	return 0;
}

static void close_all(struct app *app)
{
	claimer_release(&app->claimer);
	buf_release(&app->pipe.frames);
	link_free(app->nudges);
	link_free(app->link);
	db_free(app->db);
	loop_free(app->loop);
	claim_options_release();
}

int main(int argc, char **argv)
{
	static struct app app;
	struct err err = ERR_INIT;

	program_start_no_operands(&claim_program, argc, argv);
	if (claim_options_complete(&err) < 0)
		return program_fail(&err);
	set_up(&app);
	if (open_all(&app, &err) < 0 || loop_run(app.loop, &err) < 0)
		program_fail(&err);
	close_all(&app);
	return program_exit_code();
}
