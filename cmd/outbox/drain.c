/*
 * outbox drain: runs everything that is owed, for tests of handlers.
 *
 * A round runs what is due; the next one begins with moving the clock to when something is.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "handlers.h"
#include "log.h"
#include "options.h"
#include "pipeline.h"
#include "program.h"
#include "transaction.h"

#define LOOK_MIN_MS 2
#define LOOK_MAX_MS 50
#define ARRAY_MAX_BYTES ((size_t)1 << 20) /* of 1000 kinds */

static const char *handlers_folder, *until_text;
static bool skip_ahead;
static int64_t max_rounds;

static const struct opt opts[] = {
	{
		.name = "handlers",
		.type = OPT_STRING,
		.value = &handlers_folder,
		.argument = "DIR",
		.default_text = "handlers.d",
		.help = "folder of handlers",
	},
	{
		.name = "skip-ahead",
		.type = OPT_FLAG,
		.value = &skip_ahead,
		.environment = "",
		.help =
			"move the clock to whatever is due next: retries, delayed jobs, schedules",
	},
	{
		.name = "until",
		.type = OPT_STRING,
		.value = &until_text,
		.argument = "INSTANT|TIME",
		.environment = "",
		.help = "with --skip-ahead: leave what is due later, or in more than this time",
	},
	{
		.name = "max-rounds",
		.type = OPT_INTEGER,
		.value = &max_rounds,
		.argument = "N",
		.default_text = "100",
		.environment = "",
		.min = 1,
		.max = 1000000,
		.help = "give up after moving the clock so often",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox drain",
	.summary = "Runs everything that is owed, and prints what became of it; for tests.",
	.usage = "[option ...]",
	.tables = {opts, output_opts, program_db_opts},
};

struct drain {
	PGconn *conn;
	struct handlers handlers;
	struct pipeline *pipeline;
	struct buf lanes, kinds, versions; /* of the handlers, as arrays */
	char *until;                       /* an instant, or NULL: to the end */
	char *ticks_until;                 /* of schedules; NULL: there are none */
	char *offset;                      /* of the clock, before */
};

struct drain_state {
	bool is_due;  /* something is */
	bool is_busy; /* or in flight */
	bool is_over; /* nothing is owed, or only what is due after --until */
	char next_at[64];
};

static volatile sig_atomic_t stop_signal;

static void note_signal(int number)
{
	stop_signal = number;
}

/* Interrupts what blocks. */
static void catch_signals(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = note_signal};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaction(numbers[i], &action, NULL);
}

/* ---- the handlers */

/* Kinds and lanes are of letters that need no quotes in an array. */
static void describe_handlers(struct drain *drain)
{
	for (size_t i = 0; i < drain->handlers.count; i++) {
		const struct handler *handler = &drain->handlers.items[i];
		const char *before = i == 0 ? "{" : ",";

		buf_printf(&drain->lanes, "%s%s", before, handler->lane);
		buf_printf(&drain->kinds, "%s%s", before, handler->kind);
		buf_printf(&drain->versions, "%s%lld", before, (long long)handler->version);
	}
	buf_put_char(&drain->lanes, '}');
	buf_put_char(&drain->kinds, '}');
	buf_put_char(&drain->versions, '}');
}

static int load_handlers(struct drain *drain, struct err *err)
{
	if (handlers_load(handlers_folder, &drain->handlers, err) < 0)
		return -1;
	if (drain->handlers.count == 0)
		return err_set(err, ERR_NOINPUT, "there is no handler in \"%s\"",
			handlers_folder);
	describe_handlers(drain);
	return 0;
}

/* ---- questions to the database */

static char *copy_value(const PGresult *result, int column)
{
	return PQgetisnull(result, 0, column) ? NULL
										  : mem_strdup(PQgetvalue(result, 0, column));
}

/* A schedule has no last tick: without --until, the next tick of each is waited for. To move
 * the clock by nothing tells whether we may. */
static int begin(struct drain *drain, struct err *err)
{
	struct params params = {0};

	params_add(&params, until_text);
	params_add_bool(&params, skip_ahead);
	PGresult *result = transaction_write(drain->conn,
		"select outbox.drain_until($1), case when $2 then coalesce(outbox.drain_until($1),"
		" (select max(s.next_at) from outbox.schedule s where not s.paused))"
		" else outbox.now() end, outbox.clock_offset(), outbox.drain_begin(),"
		" case when $2 then outbox.clock_move('0') end",
		&params, err);
	if (result == NULL)
		return -1;
	drain->until = copy_value(result, 0);
	drain->ticks_until = copy_value(result, 1);
	drain->offset = copy_value(result, 2);
	PQclear(result);
	return 0;
}

static int read_state(struct drain *drain, struct drain_state *state, struct err *err)
{
	struct params params = {0};

	params_add(&params, buf_cstr(&drain->lanes));
	params_add(&params, buf_cstr(&drain->kinds));
	params_add(&params, buf_cstr(&drain->versions));
	params_add(&params, drain->ticks_until);
	params_add(&params, drain->until);
	PGresult *result = transaction_read(drain->conn,
		"select s.is_due, s.is_busy, s.next_at is null or coalesce(s.next_at > $5, false),"
		" s.next_at"
		" from outbox.drain_state($1, $2, $3, $4) s",
		&params, err);
	if (result == NULL)
		return -1;
	state->is_due = PQgetvalue(result, 0, 0)[0] == 't';
	state->is_busy = PQgetvalue(result, 0, 1)[0] == 't';
	state->is_over = PQgetvalue(result, 0, 2)[0] == 't';
	snprintf(state->next_at, sizeof(state->next_at), "%s", PQgetvalue(result, 0, 3));
	PQclear(result);
	return 0;
}

static int move_clock(struct drain *drain, const char *next_at, struct err *err)
{
	struct params params = {0};

	params_add(&params, buf_cstr(&drain->kinds));
	params_add(&params, next_at);
	params_add(&params, drain->ticks_until);
	PGresult *result = transaction_write(drain->conn,
		"select outbox.drain_skip($1, $2, $3)", &params, err);
	PQclear(result);
	return result == NULL ? -1 : 0;
}

/* Also when the connection is lost: a clock that is ahead would stay so. */
static int put_clock_back(struct drain *drain, struct err *err)
{
	struct params params = {0};

	if (PQstatus(drain->conn) != CONNECTION_OK) {
		PQfinish(drain->conn);
		drain->conn = command_connect(err);
		if (drain->conn == NULL)
			return -1;
	}
	params_add(&params, drain->offset);
	PGresult *result = transaction_write(drain->conn,
		"select outbox.clock_move($1::interval - outbox.clock_offset())", &params, err);
	PQclear(result);
	return result == NULL ? -1 : 0;
}

static int give_up(struct drain *drain, struct err *err)
{
	struct params none = {0};
	PGresult *result = transaction_read(drain->conn, "select outbox.drain_most_tried()",
		&none, err);

	if (result == NULL)
		return -1;
	err_set(err, ERR_TEMP, "not done after %lld rounds%s%s", (long long)max_rounds,
		PQgetisnull(result, 0, 0) ? "" : ": ", PQgetvalue(result, 0, 0));
	PQclear(result);
	return -1;
}

static PGresult *count_jobs(struct drain *drain, struct err *err)
{
	struct params none = {0};

	return transaction_read(drain->conn,
		"select *, dead + cancelled + retrying + due > 0 from outbox.drain_counts()",
		&none, err);
}

/* Prints the counts. Returns whether all is well: nothing has not succeeded, or is due and
 * nobody can run it. */
static bool report(const PGresult *counts)
{
	int columns = PQnfields(counts) - 1;
	bool is_well = true;

	for (int row = 0; row < PQntuples(counts); row++)
		is_well = is_well && PQgetvalue(counts, row, columns)[0] == 'f';
	table_print(counts, options_form(TABLE_ROWS), columns);
	return is_well;
}

/* ---- rounds */

static int64_t longer_pause(int64_t pause_ms)
{
	return pause_ms * 2 < LOOK_MAX_MS ? pause_ms * 2 : LOOK_MAX_MS;
}

/* Claimers that have just started do not sleep yet, so that enqueueing wakes none of them. */
static int nudge(struct drain *drain, struct err *err)
{
	return command_execute(drain->conn, "select pg_notify('outbox', '')", err);
}

/* Until nothing is due, or in flight. */
static int run_round(struct drain *drain, struct drain_state *state, struct err *err)
{
	for (int64_t pause_ms = LOOK_MIN_MS;; pause_ms = longer_pause(pause_ms)) {
		if (stop_signal != 0)
			return err_set(err, ERR_TEMP, "interrupted");
		if (pipeline_check(drain->pipeline, err) < 0 || read_state(drain, state, err) < 0)
			return -1;
		if (!state->is_busy)
			return 0;
		if (state->is_due && pause_ms == LOOK_MAX_MS && nudge(drain, err) < 0)
			return -1;
		command_pause_ms(pause_ms);
	}
}

static int run_rounds(struct drain *drain, struct err *err)
{
	struct drain_state state;

	for (int64_t rounds = 0;; rounds++) {
		if (run_round(drain, &state, err) < 0)
			return -1;
		if (!skip_ahead || state.is_over)
			return 0;
		if (rounds == max_rounds)
			return give_up(drain, err);
		if (move_clock(drain, state.next_at, err) < 0)
			return -1;
	}
}

/* ---- the whole */

static struct pipeline *start_pipeline(const struct drain *drain, struct err *err)
{
	const char **lanes = mem_alloc(drain->handlers.count, sizeof(*lanes));
	struct pipeline_options options = {
		.conninfo = program_db_options.conninfo,
		.handlers = handlers_folder,
		.lanes = lanes,
	};

	for (size_t i = 0; i < drain->handlers.count; i++) {
		const char *lane = drain->handlers.items[i].lane;
		size_t known = 0;

		while (known < options.lanes_count && strcmp(lanes[known], lane) != 0)
			known++;
		if (known == options.lanes_count)
			lanes[options.lanes_count++] = lane;
	}
	struct pipeline *pipeline = pipeline_start(&options, err);
	free(lanes);
	return pipeline;
}

/* Whatever goes wrong, the programs are stopped and the clock is put back. The first error is
 * the one that is told. */
static int drain_all(struct drain *drain, struct err *err)
{
	struct err late = ERR_INIT;
	PGresult *counts = NULL;

	if (begin(drain, err) < 0)
		return -1;
	drain->pipeline = start_pipeline(drain, err);
	int rc = drain->pipeline == NULL ? -1 : run_rounds(drain, err);
	if (rc == 0) /* before anything else falls due */
		counts = count_jobs(drain, err);
	pipeline_stop(drain->pipeline);
	if (rc < 0) /* what was in flight is owed now */
		counts = count_jobs(drain, &late);
	if (counts == NULL)
		rc = -1;
	else if (!report(counts) && rc == 0)
		rc = 1;
	PQclear(counts);
	if (skip_ahead && put_clock_back(drain, rc < 0 ? &late : err) < 0)
		rc = -1;
	return rc;
}

static int check_options(struct err *err)
{
	if (until_text != NULL && !skip_ahead)
		return err_set(err, ERR_USAGE, "--until goes with --skip-ahead");
	if (program_db_options.pooled)
		return err_set(err, ERR_USAGE, "drain needs a session of its own: no --pooled");
	return 0;
}

static void release(struct drain *drain)
{
	PQfinish(drain->conn);
	handlers_release(&drain->handlers);
	buf_release(&drain->lanes);
	buf_release(&drain->kinds);
	buf_release(&drain->versions);
	free(drain->until);
	free(drain->ticks_until);
	free(drain->offset);
}

static int run(int argc, char **argv)
{
	struct drain drain = {.conn = NULL};
	struct err err = ERR_INIT;
	int rc = -1;

	command_start_operands(&program, argc, argv, 0, 0);
	log_init(program.name, LOG_LOGFMT, LOG_WARNING);
	buf_init(&drain.lanes, ARRAY_MAX_BYTES);
	buf_init(&drain.kinds, ARRAY_MAX_BYTES);
	buf_init(&drain.versions, ARRAY_MAX_BYTES);
	catch_signals();
	if (check_options(&err) == 0 && load_handlers(&drain, &err) == 0) {
		drain.conn = command_connect(&err);
		if (drain.conn != NULL)
			rc = drain_all(&drain, &err);
	}
	release(&drain);
	if (stop_signal != 0)
		return 128 + stop_signal;
	if (rc < 0)
		return command_fail(&command_drain, &err);
	return rc > 0 ? EXIT_REFUSED : 0;
}

const struct command command_drain = {"drain",
	"run everything that is owed, for tests of handlers", run};
