/* outbox backlog: what is owed and in flight, by kind, with a grade for monitoring. */
#include <stdio.h>
#include <string.h>

#include "inspect.h"
#include "program.h"

static int64_t aged_ms, critical_ms, at_most;

static const struct opt opts[] = {
	{
		.name = "aged",
		.type = OPT_DURATION,
		.value = &aged_ms,
		.argument = "TIME",
		.default_text = "5m",
		.environment = "",
		.help = "warn when a job has been due for longer",
	},
	{
		.name = "critical",
		.type = OPT_DURATION,
		.value = &critical_ms,
		.argument = "TIME",
		.default_text = "1h",
		.environment = "",
		.help = "it is critical when a job has been due for longer",
	},
	{
		.name = "at-most",
		.type = OPT_INTEGER,
		.value = &at_most,
		.argument = "N",
		.default_text = "100000",
		.environment = "",
		.min = 1,
		.max = 100000000,
		.help = "stop counting there, for each kind and priority",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox backlog",
	.summary =
		"Shows what is owed and in flight by kind; exits with 1 or 2 when that is bad.",
	.usage = "[option ...]",
	.tables = {opts, output_opts, program_db_opts},
};

/* The exit code is what monitoring systems take for OK, WARNING and CRITICAL. */
static int worst_grade(const PGresult *result)
{
	int column = PQfnumber(result, "grade");
	int worst = 0;

	for (int row = 0; row < PQntuples(result); row++) {
		const char *grade = PQgetvalue(result, row, column);
		int code = strcmp(grade, "critical") == 0 ? 2 : strcmp(grade, "warning") == 0;
		if (code > worst)
			worst = code;
	}
	return worst;
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct params params = {0};

	command_start_operands(&program, argc, argv, 0, 0);
	params_add_int(&params, aged_ms);
	params_add_int(&params, critical_ms);
	params_add_int(&params, at_most);
	PGresult *result =
		inspect_once("select * from outbox.backlog($1::bigint * interval '1 millisecond',"
					 " $2::bigint * interval '1 millisecond', $3)",
			&params, &err);
	if (result == NULL)
		return command_fail(&command_backlog, &err);
	table_print(result, options_form(TABLE_ROWS), 0);
	int code = worst_grade(result);
	PQclear(result);
	return code;
}

const struct command command_backlog = {"backlog", "grade what is owed, by kind", run};
