/* outbox stats: outcomes and durations of attempts in a period. */
#include "inspect.h"
#include "program.h"

static const char *since, *until, *kind;

static const struct opt opts[] = {
	{
		.name = "since",
		.type = OPT_STRING,
		.value = &since,
		.argument = "INSTANT",
		.default_text = "1h",
		.environment = "",
		.help = "attempts that ended then or later",
	},
	{
		.name = "until",
		.type = OPT_STRING,
		.value = &until,
		.argument = "INSTANT",
		.environment = "",
		.help = "attempts that ended earlier",
	},
	{
		.name = "kind",
		.type = OPT_STRING,
		.value = &kind,
		.argument = "KIND",
		.environment = "",
		.help = "only attempts of this kind",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox stats",
	.summary = "Aggregates the attempts of a period by kind, outcome and code.",
	.usage = "[option ...]",
	.tables = {opts, scope_opts, output_opts, program_db_opts},
};

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct params params = {0};

	command_start_operands(&program, argc, argv, 0, 0);
	if (options_check_scope(&err) < 0)
		return command_fail(&command_stats, &err);
	params_add(&params, since);
	params_add(&params, until);
	params_add(&params, kind);
	params_add_scope(&params);
	PGresult *result =
		inspect_once("select * from outbox.stats(outbox.moment($1), outbox.moment($2),"
					 " case when $3::text is not null then array[$3] end, $4, $5)",
			&params, &err);
	if (result == NULL)
		return command_fail(&command_stats, &err);
	table_print(result, options_form(TABLE_ROWS), 0);
	PQclear(result);
	return 0;
}

const struct command command_stats = {"stats", "aggregate attempts by kind and code",
	run};
