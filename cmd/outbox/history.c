/* outbox history ID: what happened to one job, in order. */
#include "inspect.h"
#include "program.h"

static const struct opt_program program = {
	.name = "outbox history",
	.summary = "Shows every attempt of a job, and who asked for it again or to stop it.",
	.usage = "[option ...] ID",
	.tables = {scope_opts, output_opts, program_db_opts},
};

static const char sql[] =
	"select at, entry, attempt, outcome, code, trigger, triggered_by, reason, duration_ms,"
	" response, error, next_at, started_at, worker, found, exit_status, signal, dropped_bytes"
	" from outbox.job_history($1, $2, $3)";

enum { COLUMNS_FOR_PEOPLE = 11 };

static int run(int argc, char **argv)
{
	return inspect_job(&command_history, &program, argc, argv, sql, TABLE_ROWS,
		COLUMNS_FOR_PEOPLE);
}

const struct command command_history = {"history", "show every attempt of a job", run};
