/* outbox explain ID: why a job is not running now. */
#include "inspect.h"
#include "program.h"

static const struct opt_program program = {
	.name = "outbox explain",
	.summary = "Says why a job is not running now, or who runs it, or how it ended.",
	.usage = "[option ...] ID",
	.tables = {scope_opts, output_opts, program_db_opts},
};

static int run(int argc, char **argv)
{
	return inspect_job(&command_explain, &program, argc, argv,
		"select answer, at, detail from outbox.explain($1, $2, $3)", TABLE_ROWS, 0);
}

const struct command command_explain = {"explain", "say why a job is not running", run};
