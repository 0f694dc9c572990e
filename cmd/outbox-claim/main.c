/*
 * outbox-claim: claims jobs for the runners that are connected to it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "claimer.h"
#include "frame.h"
#include "log.h"
#include "members.h"
#include "pipe.h"
#include "program.h"
#include "text.h"
#include "units.h"

#define DEFAULT_LEASE_MS 30000
#define PIPE_LEASE_MS 3600000 /* nobody can prolong the lease of a pipe */
#define MAX_RESERVES 100
#define STAY_US \
	INT64_C(1000000) /* after TERM: time for runners to say that they drain too */

static const char *jobs_endpoint;
static const char *nudges_endpoint;
static const char *lane;
static int64_t lease_ms;
static int64_t batch;
static int64_t grace_ms;
static bool once;
static int64_t limit;
static struct opt_list kinds;
static struct opt_list reserve_texts;
static struct reserve reserves[MAX_RESERVES];

static const struct opt opts[] = {
	{
		.name = "jobs",
		.type = OPT_STRING,
		.value = &jobs_endpoint,
		.argument = "ENDPOINT",
		.help = "where runners connect, or - for stdout with --once; default: jobs (or "
				"jobs-LANE) in the runtime directory",
	},
	{
		.name = "nudges",
		.type = OPT_STRING,
		.value = &nudges_endpoint,
		.argument = "ENDPOINT",
		.help = "where outbox-listen publishes; default: nudges in the runtime directory",
	},
	{
		.name = "lane",
		.type = OPT_STRING,
		.value = &lane,
		.argument = "LANE",
		.default_text = "default",
		.help = "claim the kinds of this lane",
	},
	{
		.name = "lease",
		.type = OPT_DURATION,
		.value = &lease_ms,
		.argument = "TIME",
		.help =
			"how long a runner is trusted without a beat; default 30s, with --once 1h",
		.min = 1000,
		.max = 86400000,
	},
	{
		.name = "reserve",
		.type = OPT_LIST,
		.value = &reserve_texts,
		.argument = "KIND=N",
		.help = "keep room for N jobs of this kind whatever else waits; may be repeated",
	},
	{
		.name = "batch",
		.type = OPT_INTEGER,
		.value = &batch,
		.argument = "N",
		.default_text = "500",
		.help = "claim at most this many jobs in one transaction",
		.min = 1,
		.max = 5000,
	},
	{
		.name = "grace",
		.type = OPT_DURATION,
		.value = &grace_ms,
		.argument = "TIME",
		.default_text = "60s",
		.help = "after TERM, serve draining runners at most this long",
	},
	{
		.name = "once",
		.type = OPT_FLAG,
		.value = &once,
		.environment = "",
		.help = "claim once, write the jobs to stdout, and exit",
	},
	{
		.name = "limit",
		.type = OPT_INTEGER,
		.value = &limit,
		.argument = "N",
		.default_text = "100",
		.environment = "",
		.help = "with --once: claim at most this many jobs",
		.min = 1,
		.max = 5000,
	},
	{
		.name = "kind",
		.type = OPT_LIST,
		.value = &kinds,
		.argument = "KIND",
		.environment = "",
		.help = "with --once: claim only this kind; may be repeated",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox-claim",
	.summary = "Claims jobs for the runners that are connected to it.",
	.usage = "[option ...]",
	.tables = {opts, program_db_opts, program_link_opts, program_opts},
};

struct app {
	struct loop *loop;
	struct db *db;
	struct link *link; /* jobs */
	struct link *nudges;
	struct claimer claimer;
	struct pipe pipe;
	struct loop_timer stay_timer;
	int64_t leave_at_us;
	int exit_code;
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
	struct app *app = ctx;

	/* whoever should have read is gone; the sweeper gives the jobs back */
	app->exit_code = program_fail(err);
	loop_stop(app->loop);
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
	if (once) {
		loop_stop(app->loop);
		return;
	}
	claimer_drain(&app->claimer);
	app->leave_at_us = loop_now_us(app->loop) + grace_ms * 1000;
	app->stay_timer = (struct loop_timer){.fn = on_stay, .ctx = app};
	loop_set_timer(app->loop, &app->stay_timer, is_alone(app) ? 0 : STAY_US);
}

static void leave(void *ctx)
{
	struct app *app = ctx;

	loop_stop(app->loop);
}

/* ---- the database */

static void on_db_up(void *ctx)
{
	struct app *app = ctx;

	log_event(LOG_INFO, "connected");
	if (once && !app->pipe.is_started) {
		app->pipe.is_started = true;
		pipe_run(&app->pipe);
	} else if (!once) {
		program_ready();
		claimer_db_up(&app->claimer);
	}
}

static void on_db_down(void *ctx, const struct err *err)
{
	static struct log_limit log_limit;

	(void)ctx;
	if (log_allow(&log_limit, 5000) >= 0)
		log_error(LOG_WARNING, "disconnected", err);
}

static void on_db_fatal(void *ctx, const struct err *err)
{
	struct app *app = ctx;

	app->exit_code = program_fail(err);
	loop_stop(app->loop);
}

static void on_turn(void *ctx)
{
	struct app *app = ctx;

	if (once)
		pipe_turn(&app->pipe);
	else
		claimer_turn(&app->claimer);
}

/* ---- wiring */

/* KIND=N */
static int parse_reserve(const char *text, struct reserve *reserve, struct err *err)
{
	const char *equals = strchr(text, '=');

	if (equals == NULL || !text_is_kind(text, (size_t)(equals - text)) ||
		units_parse_integer(equals + 1, 1, 1000000, &reserve->count, err) < 0)
		return err_set(err, ERR_USAGE, "--reserve \"%s\" is not KIND=N", text);
	reserve->kind = mem_strndup(text, (size_t)(equals - text));
	return 0;
}

static int parse_reserves(struct err *err)
{
	if (reserve_texts.count > MAX_RESERVES)
		return err_set(err, ERR_USAGE, "more than %d times --reserve", MAX_RESERVES);
	for (size_t i = 0; i < reserve_texts.count; i++)
		if (parse_reserve(reserve_texts.items[i], &reserves[i], err) < 0)
			return -1;
	return 0;
}

static int check_options(struct err *err)
{
	bool is_pipe = jobs_endpoint != NULL && link_is_stdio_endpoint(jobs_endpoint);

	if (once != is_pipe)
		return err_set(err, ERR_USAGE, "--once and --jobs - go together");
	if (kinds.count > 0 && !once)
		return err_set(err, ERR_USAGE, "--kind goes with --once");
	if (lease_ms == 0)
		lease_ms = once ? PIPE_LEASE_MS : DEFAULT_LEASE_MS;
	return parse_reserves(err);
}

static void set_up(struct app *app)
{
	const struct claimer_options claimer = {
		.id = program_incarnation(),
		.lane = lane,
		.lease_ms = lease_ms,
		.batch = batch,
		.pooled = program_db_options.pooled,
		.reserves = reserves,
		.reserves_count = reserve_texts.count,
	};

	claimer_init(&app->claimer, &claimer);
	app->pipe.options = (struct pipe_options){
		.worker = program_incarnation(),
		.lane = lane,
		.lease_ms = lease_ms,
		.limit = limit,
		.kinds = (const char *const *)kinds.items,
		.kinds_count = kinds.count,
	};
}

static int open_jobs(struct app *app, struct err *err)
{
	struct link_options options = {
		.pattern = LINK_ROUTER,
		.writes = true,
		.on_frame = on_runner_frame,
		.on_peer = on_peer,
		.on_end = on_output_end,
		.ctx = app,
	};
	char name[128] = "jobs";

	if (!str_equal(str_of(lane), STR("default")))
		snprintf(name, sizeof(name), "jobs-%s", lane);
	app->link = program_open_link(app->loop, &options, jobs_endpoint, name, err);
	return app->link == NULL ? -1 : 0;
}

static int open_nudges(struct app *app, struct err *err)
{
	struct link_options options = {.pattern = LINK_SUB,
		.on_frame = on_listener_frame,
		.ctx = app};

	if (once)
		return 0;
	app->nudges = program_open_link(app->loop, &options, nudges_endpoint, "nudges", err);
	return app->nudges == NULL ? -1 : 0;
}

static int open_db(struct app *app, struct err *err)
{
	struct db_options options = {
		.conninfo = program_db_options.conninfo,
		.program = program.name,
		.pooled = program_db_options.pooled,
		.on_up = on_db_up,
		.on_down = on_db_down,
		.on_fatal = on_db_fatal,
		.ctx = app,
	};

	app->db = db_new(app->loop, &options, err);
	return app->db == NULL ? -1 : 0;
}

static int open_all(struct app *app, struct err *err)
{
	app->loop = loop_new(err);
	if (app->loop == NULL ||
		program_handle_signals(app->loop, drain, leave, app, err) < 0 ||
		open_jobs(app, err) < 0 || open_nudges(app, err) < 0 || open_db(app, err) < 0)
		return -1;
	app->claimer.loop = app->pipe.loop = app->loop;
	app->claimer.db = app->pipe.db = app->db;
	app->claimer.jobs = app->pipe.out = app->link;
	loop_on_turn(app->loop, on_turn, app);
	if (!once)
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
	opt_list_release(&kinds);
	for (size_t i = 0; i < reserve_texts.count; i++)
		free(reserves[i].kind);
	opt_list_release(&reserve_texts);
}

int main(int argc, char **argv)
{
	static struct app app;
	struct err err = ERR_INIT;

	program_start_no_operands(&program, argc, argv);
	if (check_options(&err) < 0)
		return program_fail(&err);
	set_up(&app);
	if (open_all(&app, &err) < 0 || loop_run(app.loop, &err) < 0)
		app.exit_code = program_fail(&err);
	close_all(&app);
	return app.exit_code;
}
