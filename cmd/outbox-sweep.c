/*
 * outbox-sweep: recovers the jobs of dead workers and cleans up, over and over.
 *
 * A worker is dead when its beat has stood still for a whole lease while this process was
 * watching: only looks that were close to each other count, on the monotonic clock. So an
 * outage of the database, a stopped sweeper or a clock that jumps kills nobody, and any
 * number of sweepers may run.
 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "db.h"
#include "link.h"
#include "log.h"
#include "loop.h"
#include "program.h"
#include "settled.h"

static const char *events_endpoint;
static int64_t interval_ms;
static bool once;

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
	.summary = "Recovers the jobs of dead workers and cleans up.",
	.usage = "[option ...]",
	.tables = {opts, program_db_opts, program_link_opts, program_opts},
};

struct watched { /* a worker, as this process has seen it */
	char *id;
	int64_t beat;
	int64_t still_us; /* how long the beat has been watched standing still */
	bool present;     /* in the look that is being read */
};

struct sweeper {
	struct loop *loop;
	struct db *db;
	struct link *events;
	struct loop_timer timer;
	struct watched *watched;
	size_t watched_count;
	int64_t looked_at_us; /* monotonic time of the last look; 0: none since connecting */
	size_t running;       /* queries of this pass that are not back yet */
	bool draining;
	int exit_code;
};

static void end_pass(struct sweeper *sweeper)
{
	int64_t jitter_ms = (int64_t)random_below((uint64_t)interval_ms * 2 / 5 + 1);

	if (once || sweeper->draining)
		loop_stop(sweeper->loop);
	else
		loop_set_timer(sweeper->loop, &sweeper->timer,
			(interval_ms * 4 / 5 + jitter_ms) * 1000);
}

static void query_is_back(struct sweeper *sweeper)
{
	if (--sweeper->running == 0)
		end_pass(sweeper);
}

static void log_failure(const char *event, const struct err *err)
{
	static struct log_limit limit;

	if (log_allow(&limit, 5000) >= 0)
		log_error(err_is_temporary(err) ? LOG_WARNING : LOG_ERROR, event, err);
}

/* ---- dead workers */

static void on_recovered(void *ctx, PGresult *result, const struct err *err)
{
	struct sweeper *sweeper = ctx;

	if (result == NULL) {
		log_failure("recover_failed", err);
	} else {
		size_t count;
		struct settled *rows = settled_rows(result, &count);

		settled_publish(sweeper->events, rows, count);
		settled_log(rows, count);
		if (count > 0)
			log_event(LOG_WARNING, "recovered", LOG_STR("worker", rows[0].worker),
				LOG_INT("jobs", count));
		free(rows);
	}
	query_is_back(sweeper);
}

static void recover(struct sweeper *sweeper, struct str worker)
{
	static const struct db_statement statement = {
		.name = "recover",
		.sql = "select " SETTLED_COLUMNS " from outbox.recover($1)",
		.nparams = 1,
	};
	struct db_params params;

	db_params_init(&params);
	db_bind_text(&params, worker);
	sweeper->running++;
	db_query(sweeper->db, &statement, &params, on_recovered, sweeper);
}

static struct watched *find_watched(struct sweeper *sweeper, struct str id)
{
	for (size_t i = 0; i < sweeper->watched_count; i++)
		if (str_equal(str_of(sweeper->watched[i].id), id))
			return &sweeper->watched[i];

	size_t count = sweeper->watched_count + 1;
	sweeper->watched = mem_realloc(sweeper->watched, count, sizeof(struct watched));
	sweeper->watched[count - 1] = (struct watched){.id = mem_strndup(id.s, id.n),
		.beat = -1};
	sweeper->watched_count = count;
	return &sweeper->watched[count - 1];
}

static void forget_absent(struct sweeper *sweeper)
{
	size_t kept = 0;

	for (size_t i = 0; i < sweeper->watched_count; i++) {
		if (sweeper->watched[i].present)
			sweeper->watched[kept++] = sweeper->watched[i];
		else
			free(sweeper->watched[i].id);
	}
	sweeper->watched_count = kept;
	for (size_t i = 0; i < kept; i++)
		sweeper->watched[i].present = false;
}

/* The time since the last look, unless that was so long ago that nobody was watching. */
static int64_t watched_for_us(struct sweeper *sweeper)
{
	int64_t now_us = clock_us();
	int64_t most_us = interval_ms * 2000;
	int64_t elapsed_us = sweeper->looked_at_us == 0 ? 0 : now_us - sweeper->looked_at_us;

	sweeper->looked_at_us = now_us;
	return elapsed_us < most_us ? elapsed_us : most_us;
}

static void look_at(struct sweeper *sweeper, const PGresult *result, int row, int64_t us)
{
	struct str id = db_get_str(result, row, 0);
	struct watched *watched = find_watched(sweeper, id);
	int64_t beat = db_get_int8(result, row, 1);

	watched->present = true;
	if (PQgetisnull(result, row, 1)) {
		recover(sweeper, id); /* not registered: dead already */
		return;
	}
	if (watched->beat != beat) {
		watched->beat = beat;
		watched->still_us = 0;
		return;
	}
	watched->still_us += us;
	if (watched->still_us >= db_get_int8(result, row, 2) * 1000) {
		log_event(LOG_WARNING, "worker_dead", LOG_STR("worker", id),
			LOG_INT("still_ms", watched->still_us / 1000));
		recover(sweeper, id);
	}
}

static void on_workers(void *ctx, PGresult *result, const struct err *err)
{
	struct sweeper *sweeper = ctx;

	if (result == NULL) {
		log_failure("watch_failed", err);
	} else {
		int64_t us = watched_for_us(sweeper);

		for (int row = 0; row < PQntuples(result); row++)
			look_at(sweeper, result, row, us);
		forget_absent(sweeper);
	}
	query_is_back(sweeper);
}

/* ---- a pass */

static void on_collected(void *ctx, PGresult *result, const struct err *err)
{
	struct sweeper *sweeper = ctx;

	if (result == NULL)
		log_failure("collect_failed", err);
	else if (db_get_int4(result, 0, 0) > 0)
		log_event(LOG_DEBUG, "collected", LOG_INT("claims", db_get_int4(result, 0, 0)));
	query_is_back(sweeper);
}

/* Recovery first, so that clean-up cannot starve it. */
static void start_pass(void *ctx)
{
	static const struct db_statement watch = {
		.name = "watch",
		.sql = "select worker, beat, lease_ms from outbox.workers_to_watch()",
	};
	static const struct db_statement collect = {
		.name = "collect",
		.sql = "select outbox.collect_claims()",
	};
	struct sweeper *sweeper = ctx;
	struct db_params none;

	if (sweeper->running > 0)
		return;
	if (!db_is_up(sweeper->db)) {
		end_pass(sweeper);
		return;
	}
	db_params_init(&none);
	sweeper->running = 2;
	db_query(sweeper->db, &watch, &none, on_workers, sweeper);
	db_query(sweeper->db, &collect, &none, on_collected, sweeper);
}

/* ---- wiring */

static void on_db_up(void *ctx)
{
	struct sweeper *sweeper = ctx;

	log_event(LOG_INFO, "connected");
	program_ready();
	/* what was seen before the connection was lost says nothing about now */
	sweeper->looked_at_us = 0;
	for (size_t i = 0; i < sweeper->watched_count; i++)
		sweeper->watched[i].still_us = 0;
	start_pass(sweeper);
}

static void on_db_down(void *ctx, const struct err *err)
{
	(void)ctx;
	log_failure("disconnected", err);
}

static void on_db_fatal(void *ctx, const struct err *err)
{
	struct sweeper *sweeper = ctx;

	sweeper->exit_code = program_fail(err);
	loop_stop(sweeper->loop);
}

static void drain(void *ctx)
{
	struct sweeper *sweeper = ctx;

	program_stopping();
	sweeper->draining = true;
	if (sweeper->running == 0 || !db_is_up(sweeper->db))
		loop_stop(sweeper->loop);
}

/* Several sweepers may run on one host: only the first has the default endpoint. */
static int open_events(struct sweeper *sweeper, struct err *err)
{
	struct link_options options = {.pattern = LINK_PUB, .writes = true};

	if (events_endpoint != NULL && strcmp(events_endpoint, "none") == 0)
		return 0;
	sweeper->events = program_open_link(sweeper->loop, &options, events_endpoint,
		"events-sweep", err);
	if (sweeper->events == NULL && events_endpoint == NULL && err->class == ERR_TEMP) {
		log_error(LOG_WARNING, "events_unavailable", err);
		return 0;
	}
	return sweeper->events == NULL ? -1 : 0;
}

static int open_all(struct sweeper *sweeper, struct err *err)
{
	struct db_options options = {
		.conninfo = program_db_options.conninfo,
		.program = program.name,
		.pooled = program_db_options.pooled,
		.on_up = on_db_up,
		.on_down = on_db_down,
		.on_fatal = on_db_fatal,
		.ctx = sweeper,
	};

	sweeper->loop = loop_new(err);
	if (sweeper->loop == NULL)
		return -1;
	sweeper->timer = (struct loop_timer){.fn = start_pass, .ctx = sweeper};
	if (program_handle_signals(sweeper->loop, drain, NULL, sweeper, err) < 0 ||
		open_events(sweeper, err) < 0)
		return -1;
	sweeper->db = db_new(sweeper->loop, &options, err);
	return sweeper->db == NULL ? -1 : 0;
}

static void close_all(struct sweeper *sweeper)
{
	link_free(sweeper->events);
	db_free(sweeper->db);
	loop_free(sweeper->loop);
	for (size_t i = 0; i < sweeper->watched_count; i++)
		free(sweeper->watched[i].id);
	free(sweeper->watched);
}

int main(int argc, char **argv)
{
	static struct sweeper sweeper;
	struct err err = ERR_INIT;

	program_start_no_operands(&program, argc, argv);
	if (open_all(&sweeper, &err) < 0 || loop_run(sweeper.loop, &err) < 0)
		sweeper.exit_code = program_fail(&err);
	close_all(&sweeper);
	return sweeper.exit_code;
}
