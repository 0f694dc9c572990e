/* outbox list: one page of jobs. */
#include <stdio.h>

#include "inspect.h"
#include "program.h"

enum { ORDER_NATURAL, ORDER_NEWEST, ORDER_OLDEST };

static int order;
static int64_t limit;
static const char *cursor;

static const struct opt opts[] = {
	{
		.name = "order",
		.type = OPT_CHOICE,
		.value = &order,
		.choices = "natural|newest|oldest",
		.default_text = "natural",
		.environment = "",
		.help = "what comes first; natural: what is due first of owed jobs, else newest",
	},
	{
		.name = "limit",
		.short_name = 'n',
		.type = OPT_INTEGER,
		.value = &limit,
		.argument = "N",
		.default_text = "100",
		.environment = "",
		.min = 1,
		.max = 100000,
		.help = "list at most so many",
	},
	{
		.name = "cursor",
		.type = OPT_STRING,
		.value = &cursor,
		.argument = "CURSOR",
		.environment = "",
		.help = "go on after the job that has this cursor, with the same other options",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox list",
	.summary = "Lists the jobs that match all options, a page at a time.",
	.usage = "[option ...]",
	.tables = {opts, filter_opts, output_opts, program_db_opts},
};

static const char sql[] =
	"select id, kind, state, tenant_key, attempts, code, due_at, created_at, finished_at,"
	" subject_key, correlation_id, priority, cursor"
	" from outbox.list_jobs(" FILTER_SQL ", $15, $16, $17)";

enum { COLUMNS_FOR_PEOPLE = 9 };

static void print_page(const PGresult *result)
{
	int rows = PQntuples(result);

	if (output_options.json) {
		table_print(result, TABLE_JSON, 0);
		return;
	}
	table_print(result, TABLE_ROWS, COLUMNS_FOR_PEOPLE);
	if (rows == limit)
		fprintf(stderr, "there may be more: --cursor %s\n",
			PQgetvalue(result, rows - 1, PQfnumber(result, "cursor")));
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct params params = {0};

	command_start_operands(&program, argc, argv, 0, 0);
	if (options_check_filter(&err) < 0)
		return command_fail(&command_list, &err);
	params_add_filter(&params);
	if (order == ORDER_NATURAL)
		params_add(&params, NULL);
	else
		params_add_bool(&params, order == ORDER_NEWEST);
	params_add_int(&params, limit);
	params_add(&params, cursor);
	PGresult *result = inspect_once(sql, &params, &err);
	if (result == NULL)
		return command_fail(&command_list, &err);
	print_page(result);
	PQclear(result);
	return 0;
}

const struct command command_list = {"list", "list jobs by state, kind, tenant, time",
	run};
