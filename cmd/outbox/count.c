/* outbox count: how many jobs match, counted up to a limit. */
#include <stdio.h>

#include "inspect.h"
#include "program.h"

static int64_t at_most;

static const struct opt opts[] = {
	{
		.name = "at-most",
		.type = OPT_INTEGER,
		.value = &at_most,
		.argument = "N",
		.default_text = "10000",
		.environment = "",
		.min = 1,
		.max = 100000000,
		.help = "stop counting there, and print N+",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox count",
	.summary = "Counts the jobs that match all options.",
	.usage = "[option ...]",
	.tables = {opts, filter_opts, output_opts, program_db_opts},
};

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct params params = {0};

	command_start_operands(&program, argc, argv, 0, 0);
	if (options_check_filter(&err) < 0)
		return command_fail(&command_count, &err);
	params_add_filter(&params);
	params_add_int(&params, at_most);
	PGresult *result = inspect_once("select * from outbox.count_jobs(" FILTER_SQL
									", $15)",
		&params, &err);
	if (result == NULL)
		return command_fail(&command_count, &err);
	if (output_options.json)
		table_print(result, TABLE_JSON, 0);
	else
		printf("%s%s\n", PQgetvalue(result, 0, 0),
			PQgetvalue(result, 0, 1)[0] == 't' ? "" : "+");
	PQclear(result);
	return 0;
}

const struct command command_count = {"count", "count jobs, up to a limit", run};
