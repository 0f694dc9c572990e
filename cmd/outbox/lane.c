/* outbox lane: pausing lanes, and what is in them. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "options.h"
#include "program.h"
#include "transaction.h"

#define NOT_GIVEN (-1)

static int notify = NOT_GIVEN; /* index into "on|off" */
static const char *by;

static const struct opt opts[] = {
	{
		.name = "notify",
		.type = OPT_CHOICE,
		.value = &notify,
		.argument = "on|off",
		.choices = "on|off",
		.environment = "",
		.help = "set: whether enqueueing wakes the lane's claimers",
	},
	{
		.name = "by",
		.type = OPT_STRING,
		.value = &by,
		.argument = "NAME",
		.environment = "",
		.help = "pause, resume, set: who changes it; else the user of the session",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox lane",
	.summary = "Shows lanes, pauses them and lets them go on.",
	.usage = "[option ...] {list | pause LANE | resume LANE | set LANE --notify on|off}",
	.tables = {opts, output_opts, program_db_opts},
};

#define CHANGED "select name as lane, paused, notify, changed_at, changed_by from outbox."

/* Parameters: the lane, who, and whether to notify. */
static const struct action {
	const char *name;
	bool has_lane;
	bool has_notify;
	const char *sql;
} actions[] = {
	{"list", false, false, "select * from outbox.lane_list()"},
	{"pause", true, false, CHANGED "lane_pause($1, coalesce($2, session_user))"},
	{"resume", true, false, CHANGED "lane_resume($1, coalesce($2, session_user))"},
	{"set", true, true, CHANGED "lane_set($1, $3, coalesce($2, session_user))"},
};

#define ACTIONS_COUNT (sizeof(actions) / sizeof(actions[0]))

static const struct action *find_action(char **operands, int count, struct err *err)
{
	for (size_t i = 0; count > 0 && i < ACTIONS_COUNT; i++) {
		const struct action *action = &actions[i];

		if (strcmp(action->name, operands[0]) != 0)
			continue;
		if (count != (action->has_lane ? 2 : 1))
			err_set(err, ERR_USAGE, "wrong number of operands of \"%s\"", operands[0]);
		else if (action->has_notify != (notify != NOT_GIVEN))
			err_set(err, ERR_USAGE, "\"set\" and --notify go together");
		else
			return action;
		return NULL;
	}
	err_set(err, ERR_USAGE, "%s; see \"outbox lane --help\"",
		count == 0 ? "what is to be done is missing" : "no such action");
	return NULL;
}

static PGresult *act(const struct action *action, const char *lane, struct err *err)
{
	struct params params = {0};
	PGconn *conn = command_connect(err);
	PGresult *result;

	if (conn == NULL)
		return NULL;
	if (!action->has_lane) {
		result = transaction_read(conn, action->sql, &params, err);
	} else {
		params_add(&params, lane);
		params_add(&params, by);
		if (action->has_notify)
			params_add_bool(&params, notify == 0);
		result = transaction_write(conn, action->sql, &params, err);
	}
	PQfinish(conn);
	return result;
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	int first = command_start(&program, argc, argv);
	const struct action *action = find_action(argv + first, argc - first, &err);

	if (action == NULL)
		return command_fail(&command_lane, &err);
	PGresult *result = act(action, argv[first + 1], &err);
	if (result == NULL) {
		int code = command_fail(&command_lane, &err);
		return strcmp(err.sqlstate, "42704") == 0 ? EXIT_REFUSED : code; /* no such one */
	}
	table_print(result, options_form(action->has_lane ? TABLE_RECORD : TABLE_ROWS), 0);
	PQclear(result);
	return 0;
}

const struct command command_lane = {"lane", "show, pause and resume lanes", run};
