/* outbox show ID: everything about one job. */
#include "inspect.h"
#include "program.h"

static const struct opt_program program = {
	.name = "outbox show",
	.summary = "Shows everything about one job, its payload included.",
	.usage = "[option ...] ID",
	.tables = {scope_opts, output_opts, program_db_opts},
};

static int run(int argc, char **argv)
{
	return inspect_job(&command_show, &program, argc, argv,
		"select * from outbox.job_details($1, $2, $3)", TABLE_RECORD, 0);
}

const struct command command_show = {"show", "show everything about one job", run};
