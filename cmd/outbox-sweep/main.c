/*
 * outbox-sweep: what has to be done although nobody asks for it. Recovers the jobs of dead
 * workers, fires schedules, cleans up.
 */
#include "clock.h"
#include "db.h"
#include "link.h"
#include "log.h"
#include "loop.h"
#include "program.h"
#include "program_db.h"
#include "retention.h"
#include "schedules.h"
#include "sweep.h"
#include "workers.h"

/* Of so many looks for ended claims one begins at the first claim. */
#define COLLECT_ALL 60

static const char *events_endpoint;
static int64_t interval_ms;
static bool once;
static bool with_retention;
static int64_t retention_batch;

static const struct opt opts[] = {
	{
		.name = "interval",
		.type = OPT_DURATION,
		.value = &interval_ms,
		.argument = "TIME",
		.default_text = "5s",
		.help = "time between two passes, varied by a fifth",
		.min = 100,
		.max = 3600000,
	},
	{
		.name = "events",
		.type = OPT_STRING,
		.value = &events_endpoint,
		.argument = "ENDPOINT",
		.help = "where transitions are published, or none; default: events-sweep in the "
				"runtime directory",
	},
	{
		.name = "retention",
		.type = OPT_FLAG,
		.value = &with_retention,
		.default_text = "1",
		.help = "delete what is past its time",
	},
	{
		.name = "retention-batch",
		.type = OPT_INTEGER,
		.value = &retention_batch,
		.argument = "N",
		.default_text = "1000",
		.help = "rows that one step of that looks at",
		.min = 1,
		.max = 100000,
	},
	{
		.name = "once",
		.type = OPT_FLAG,
		.value = &once,
		.environment = "",
		.help =
			"one pass, then exit; recovers only claims whose worker is not registered",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox-sweep",
	.summary = "Recovers the jobs of dead workers, fires schedules, and cleans up.",
	.usage = "[option ...]",
	.tables = {opts, program_db_opts, program_link_opts, program_opts},
};

struct sweeper {
	struct loop *loop;
	struct db *db;
	struct link *events;
	struct loop_timer timer; /* starts the next pass */
	struct workers workers;
	struct schedules schedules;
	struct retention retention;
	bool collecting;
	int64_t collected_to; /* a claim behind which to look for more */
	int64_t collections;
	bool passed;  /* at least once */
	bool cleaned; /* what was past its time, at least once */
	bool fired;   /* what was due, at least once */
	bool draining;
};

/* ---- a pass */

static bool is_passing(const struct sweeper *sweeper)
{
	return sweeper->workers.running > 0 || sweeper->collecting;
}

static bool is_done_once(const struct sweeper *sweeper)
{
	return once && sweeper->passed && sweeper->fired &&
		(sweeper->cleaned || !with_retention);
}

static void stop_if_done(struct sweeper *sweeper)
{
	if (!sweeper->draining && !is_done_once(sweeper))
		return;

	bool schedules_stopped = schedules_stop(&sweeper->schedules);
	bool retention_stopped = retention_stop(&sweeper->retention);
	/* without a connection, nothing that is running can end */
	if (schedules_stopped &&
		((retention_stopped && !is_passing(sweeper)) || !db_is_up(sweeper->db)))
		loop_stop(sweeper->loop);
}

static void wait_for_next_pass(struct sweeper *sweeper)
{
	int64_t jitter_ms = (int64_t)random_below((uint64_t)interval_ms * 2 / 5 + 1);

	loop_set_timer(sweeper->loop, &sweeper->timer,
		(interval_ms * 4 / 5 + jitter_ms) * 1000);
}

static void on_part_done(void *ctx)
{
	struct sweeper *sweeper = ctx;

	if (is_passing(sweeper))
		return;
	sweeper->passed = true;
	wait_for_next_pass(sweeper);
	if (with_retention && !sweeper->draining)
		retention_start(&sweeper->retention);
	stop_if_done(sweeper);
}

static void on_retention_done(void *ctx)
{
	struct sweeper *sweeper = ctx;

	sweeper->cleaned = true;
	stop_if_done(sweeper);
}

static void on_collected(void *ctx, PGresult *result, const struct err *err)
{
	struct sweeper *sweeper = ctx;

	if (result == NULL)
		sweep_log_failure("collect_failed", err);
	else if (db_get_int4(result, 0, 0) > 0)
		log_event(LOG_DEBUG, "collected", LOG_INT("claims", db_get_int4(result, 0, 0)));
	sweeper->collected_to = result == NULL || ++sweeper->collections % COLLECT_ALL == 0
		? 0
		: db_get_int8(result, 0, 1);
	sweeper->collecting = false;
	on_part_done(sweeper);
}

static void collect(struct sweeper *sweeper)
{
	static const Oid types[] = {DB_INT8};
	static const struct db_statement statement = {
		.name = "collect",
		.sql = "select collected, next_id from outbox.collect_claims_after($1)",
		.nparams = 1,
		.types = types,
	};
	struct db_params params;

	db_params_init(&params);
	db_bind_int8(&params, sweeper->collected_to);
	sweeper->collecting = true;
	db_query(sweeper->db, &statement, &params, on_collected, sweeper);
}

/* Recovery first, so that clean-up cannot starve it. */
static void start_pass(void *ctx)
{
	struct sweeper *sweeper = ctx;

	if (sweeper->draining || is_passing(sweeper) || !db_is_up(sweeper->db))
		return; /* connecting starts a pass, too */
	workers_look(&sweeper->workers);
	collect(sweeper);
}

static void on_schedules_done(void *ctx)
{
	struct sweeper *sweeper = ctx;

	sweeper->fired = true;
	stop_if_done(sweeper);
}

/* ---- wiring */

static void on_db_up(void *ctx)
{
	struct sweeper *sweeper = ctx;

	log_event(LOG_INFO, "connected",
		LOG_TEXT("pooler", db_is_pooled(sweeper->db) ? "yes" : NULL));
	program_ready();
	workers_db_up(&sweeper->workers);
	start_pass(sweeper);
	/* after a failover the other connection may still be with the old server */
	schedules_look(&sweeper->schedules);
}

static void on_db_down(void *ctx, const struct err *err)
{
	struct sweeper *sweeper = ctx;

	sweep_log_failure("disconnected", err);
	workers_db_down(&sweeper->workers);
}

static void drain(void *ctx)
{
	struct sweeper *sweeper = ctx;

	program_stopping();
	sweeper->draining = true;
	stop_if_done(sweeper);
}

/* Several sweepers may run on one host: only the first has the default endpoint. */
static int open_events(struct sweeper *sweeper, struct err *err)
{
	int rc = program_open_events_link(sweeper->loop, &sweeper->events, events_endpoint,
		"events-sweep", err);

	if (rc < 0 && events_endpoint == NULL && err->class == ERR_TEMP) {
		log_error(LOG_WARNING, "events_unavailable", err);
		return 0;
	}
	return rc;
}

static int open_all(struct sweeper *sweeper, struct err *err)
{
	const struct db_options db = {.on_up = on_db_up,
		.on_down = on_db_down,
		.ctx = sweeper};

	sweeper->loop = loop_new(err);
	if (sweeper->loop == NULL)
		return -1;
	sweeper->timer = (struct loop_timer){.fn = start_pass, .ctx = sweeper};
	if (program_handle_signals(sweeper->loop, drain, NULL, sweeper, err) < 0 ||
		open_events(sweeper, err) < 0)
		return -1;
	sweeper->db = program_open_db(sweeper->loop, &db, err);
	if (sweeper->db == NULL)
		return -1;
	sweeper->workers = (struct workers){
		.db = sweeper->db,
		.events = sweeper->events,
		.interval_ms = interval_ms,
		.on_done = on_part_done,
		.ctx = sweeper,
	};
	sweeper->retention = (struct retention){
		.loop = sweeper->loop,
		.db = sweeper->db,
		.events = sweeper->events,
		.batch = retention_batch,
		.on_done = on_retention_done,
		.ctx = sweeper,
	};
	sweeper->schedules = (struct schedules){
		.loop = sweeper->loop,
		.events = sweeper->events,
		.interval_ms = interval_ms,
		.on_done = on_schedules_done,
		.ctx = sweeper,
	};
	return schedules_open(&sweeper->schedules, err);
}

static void close_all(struct sweeper *sweeper)
{
	workers_release(&sweeper->workers);
	schedules_close(&sweeper->schedules);
	link_free(sweeper->events);
	db_free(sweeper->db);
	loop_free(sweeper->loop);
}

int main(int argc, char **argv)
{
	static struct sweeper sweeper;
	struct err err = ERR_INIT;

	program_start_no_operands(&program, argc, argv);
	if (open_all(&sweeper, &err) < 0 || loop_run(sweeper.loop, &err) < 0)
		program_fail(&err);
	close_all(&sweeper);
	return program_exit_code();
}
