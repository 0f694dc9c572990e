/* outbox schedule: jobs that recur. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "options.h"
#include "program.h"
#include "transaction.h"

static const char *kind, *function, *payload, *tenant, *by;
static const char *time_zone, *gap, *fold, *catch_up;
static int64_t window_ms, priority, max_attempts, count;

static const struct opt opts[] = {
	{
		.name = "kind",
		.type = OPT_STRING,
		.value = &kind,
		.argument = "KIND",
		.environment = "",
		.help = "set: the kind of its jobs",
	},
	{
		.name = "payload",
		.type = OPT_STRING,
		.value = &payload,
		.argument = "JSON",
		.environment = "",
		.help = "set: their payload; {{nominal}} and {{nominal_date}} are filled in",
	},
	{
		.name = "function",
		.type = OPT_STRING,
		.value = &function,
		.argument = "NAME",
		.environment = "",
		.help = "set: instead of a kind, an SQL function (scheduled_at timestamptz)",
	},
	{
		.name = "time-zone",
		.type = OPT_STRING,
		.value = &time_zone,
		.argument = "ZONE",
		.default_text = "UTC",
		.environment = "",
		.help = "set: whose clocks it follows, like Europe/Berlin",
	},
	{
		.name = "gap",
		.type = OPT_STRING,
		.value = &gap,
		.argument = "after|skip",
		.default_text = "after",
		.environment = "",
		.help = "set: a time that the clocks leave out",
	},
	{
		.name = "fold",
		.type = OPT_STRING,
		.value = &fold,
		.argument = "first|last|both",
		.default_text = "first",
		.environment = "",
		.help = "set: a time that the clocks show twice",
	},
	{
		.name = "catch-up",
		.type = OPT_STRING,
		.value = &catch_up,
		.argument = "skip|latest|all",
		.default_text = "skip",
		.environment = "",
		.help = "set: ticks that were missed",
	},
	{
		.name = "window",
		.type = OPT_DURATION,
		.value = &window_ms,
		.argument = "TIME",
		.environment = "",
		.min = 1,
		.max = INT64_MAX,
		.help = "set: the longest delay with which a missed tick still runs",
	},
	{
		.name = "tenant",
		.type = OPT_STRING,
		.value = &tenant,
		.argument = "TENANT",
		.environment = "",
		.help = "set: the tenant of its jobs",
	},
	{
		.name = "priority",
		.type = OPT_INTEGER,
		.value = &priority,
		.argument = "N",
		.default_text = "2",
		.environment = "",
		.min = 1,
		.max = 4,
		.help = "set: from 1 (first) to 4 (last)",
	},
	{
		.name = "max-attempts",
		.type = OPT_INTEGER,
		.value = &max_attempts,
		.argument = "N",
		.environment = "",
		.min = 1,
		.max = 10000,
		.help = "set: of each job; else what the kind says",
	},
	{
		.name = "by",
		.type = OPT_STRING,
		.value = &by,
		.argument = "NAME",
		.environment = "",
		.help = "set, pause, resume: who changes it; else the user of the session",
	},
	{
		.name = "count",
		.short_name = 'n',
		.type = OPT_INTEGER,
		.value = &count,
		.argument = "N",
		.default_text = "10",
		.environment = "",
		.min = 1,
		.max = 10000,
		.help = "next: how many ticks",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox schedule",
	.summary = "Sets, shows and stops jobs that recur.",
	.usage = "[option ...] {list | set NAME CRON | {next | pause | resume | run-now | "
			 "remove} NAME}",
	.tables = {opts, output_opts, program_db_opts},
};

/* ---- actions: operands are the first parameters, and then come the options that it takes */

static void add_definition(struct params *params)
{
	params_add(params, kind);
	params_add(params, payload);
	params_add(params, time_zone);
	params_add(params, gap);
	params_add(params, fold);
	params_add(params, catch_up);
	params_add_int(params, window_ms);
	params_add(params, function);
	params_add(params, tenant);
	params_add_int(params, priority);
	params_add_int(params, max_attempts);
	params_add(params, by);
}

static void add_by(struct params *params)
{
	params_add(params, by);
}

static void add_count(struct params *params)
{
	params_add_int(params, count);
}

static const struct action {
	const char *name;
	int operands;
	void (*add)(struct params *params);
	bool writes;
	enum table_form form;
	const char *sql;
} actions[] = {
	{"list", 0, NULL, false, TABLE_ROWS,
		"select name, cron, time_zone, coalesce(kind, function || '()') as runs, paused,"
		" next_at, last_at, last_error from outbox.schedules order by name"},
	{"next", 1, add_count, false, TABLE_ROWS,
		"select nominal, local from outbox.schedule_next($1, $2)"},
	{"set", 2, add_definition, true, TABLE_RECORD,
		"select $1::text as name, outbox.schedule_set($1, $2, kind => $3, payload => $4,"
		" time_zone => $5, gap => $6, fold => $7, catch_up => $8,"
		" catch_up_window => nullif($9::bigint, 0) * interval '1 millisecond',"
		" function => $10, tenant_key => $11, priority => $12,"
		" max_attempts => nullif($13::integer, 0),"
		" changed_by => coalesce($14, session_user)) as next_at"},
	{"pause", 1, add_by, true, TABLE_RECORD,
		"select $1::text as name, true as paused"
		" from (select outbox.schedule_pause($1, coalesce($2, session_user))) p"},
	{"resume", 1, add_by, true, TABLE_RECORD,
		"select $1::text as name,"
		" outbox.schedule_resume($1, coalesce($2, session_user)) as next_at"},
	{"run-now", 1, NULL, true, TABLE_RECORD,
		"select $1::text as name, outbox.schedule_run_now($1) as job_id"},
	{"remove", 1, NULL, true, TABLE_RECORD,
		"select $1::text as name, true as removed"
		" from (select outbox.schedule_remove($1)) r"},
};

#define ACTIONS_COUNT (sizeof(actions) / sizeof(actions[0]))

static const struct action *find_action(char **operands, int count_of_operands,
	struct err *err)
{
	for (size_t i = 0; count_of_operands > 0 && i < ACTIONS_COUNT; i++) {
		if (strcmp(actions[i].name, operands[0]) != 0)
			continue;
		if (count_of_operands == actions[i].operands + 1)
			return &actions[i];
		err_set(err, ERR_USAGE, "wrong number of operands of \"%s\"", operands[0]);
		return NULL;
	}
	err_set(err, ERR_USAGE, "%s; see \"outbox schedule --help\"",
		count_of_operands == 0 ? "what is to be done is missing" : "no such action");
	return NULL;
}

static PGresult *act(const struct action *action, const struct params *params,
	struct err *err)
{
	PGconn *conn = command_connect(err);

	if (conn == NULL)
		return NULL;
	PGresult *result = action->writes ? transaction_write(conn, action->sql, params, err)
									  : transaction_read(conn, action->sql, params, err);
	PQfinish(conn);
	return result;
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct params params = {0};
	int first = command_start(&program, argc, argv);
	const struct action *action = find_action(argv + first, argc - first, &err);

	if (action == NULL)
		return command_fail(&command_schedule, &err);
	for (int i = 0; i < action->operands; i++)
		params_add(&params, argv[first + 1 + i]);
	if (action->add != NULL)
		action->add(&params);
	PGresult *result = act(action, &params, &err);
	if (result == NULL) {
		int code = command_fail(&command_schedule, &err);
		return strcmp(err.sqlstate, "42704") == 0 ? EXIT_REFUSED : code; /* no such one */
	}
	table_print(result, options_form(action->form), 0);
	PQclear(result);
	return 0;
}

const struct command command_schedule = {"schedule", "set and show jobs that recur", run};
