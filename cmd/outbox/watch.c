/* outbox watch ID: follows a job until it has ended. */
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "inspect.h"
#include "program.h"

static int64_t interval_ms, wait_ms;

static const struct opt opts[] = {
	{
		.name = "interval",
		.type = OPT_DURATION,
		.value = &interval_ms,
		.argument = "TIME",
		.default_text = "500ms",
		.environment = "",
		.min = 10,
		.max = 3600000,
		.help = "look so often",
	},
	{
		.name = "wait",
		.type = OPT_DURATION,
		.value = &wait_ms,
		.argument = "TIME",
		.default_text = "0",
		.environment = "",
		.help = "give up after this time; 0: never",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox watch",
	.summary =
		"Prints each change of a job until it has ended; exits with 0 if it succeeded.",
	.usage = "[option ...] ID",
	.tables = {opts, scope_opts, output_opts, program_db_opts},
};

static const char sql[] =
	"select outbox.now() as at, state, attempts, worker, due_at, code, error"
	" from outbox.job_details($1, $2, $3)";

enum { STATE = 1, ATTEMPTS, WORKER };

/* Whether something else stands in these columns than at the last look. */
static bool has_changed(const PGresult *last, const PGresult *result)
{
	if (last == NULL)
		return true;
	for (int column = STATE; column <= WORKER; column++)
		if (strcmp(PQgetvalue(last, 0, column), PQgetvalue(result, 0, column)) != 0)
			return true;
	return false;
}

static bool is_state(const PGresult *result, const char *state)
{
	return strcmp(PQgetvalue(result, 0, STATE), state) == 0;
}

static bool has_ended(const PGresult *result)
{
	return is_state(result, "succeeded") || is_state(result, "dead") ||
		is_state(result, "cancelled");
}

/* Looks until the job has ended. Returns what was seen last, which has no row when
 * there is no such job, for the caller to clear. *err is filled on failure. */
static PGresult *follow(PGconn *conn, const struct params *params, struct err *err)
{
	int64_t started_ms = clock_ms();
	PGresult *last = NULL;

	for (;;) {
		PGresult *result = transaction_read(conn, sql, params, err);
		if (result != NULL && PQntuples(result) == 1 && has_changed(last, result)) {
			table_print(result, options_form(TABLE_LINES), 0);
			fflush(stdout);
		}
		PQclear(last);
		last = result;
		if (result == NULL || PQntuples(result) == 0 || has_ended(result))
			break;
		if (wait_ms > 0 && clock_ms() - started_ms >= wait_ms) {
			err_set(err, ERR_TEMP, "the job has not ended in time");
			break;
		}
		command_pause_ms(interval_ms);
	}
	return last;
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct params params = {0};
	int first = command_start_operands(&program, argc, argv, 1, 1);
	int64_t id;

	if (options_check_scope(&err) < 0 || command_parse_id(argv[first], &id, &err) < 0)
		return command_fail(&command_watch, &err);
	params_add_int(&params, id);
	params_add_scope(&params);
	PGconn *conn = command_connect(&err);
	PGresult *last = conn == NULL ? NULL : follow(conn, &params, &err);
	PQfinish(conn);
	if (err.class != ERR_NONE) {
		PQclear(last);
		return command_fail(&command_watch, &err);
	}
	bool found = PQntuples(last) == 1;
	bool succeeded = found && is_state(last, "succeeded");
	PQclear(last);
	if (!found)
		return inspect_not_found(&command_watch, id);
	return succeeded ? 0 : EXIT_REFUSED;
}

const struct command command_watch = {"watch", "follow a job until it has ended", run};
