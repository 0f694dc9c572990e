/*
 * outbox cancel, replay, resend, retry-now: one action on jobs, given by their ids or by a
 * filter, a batch a transaction.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "buf.h"
#include "clock.h"
#include "command.h"
#include "ids.h"
#include "options.h"
#include "program.h"
#include "tally.h"
#include "transaction.h"
#include "units.h"

#define BATCH 100

static const char *by, *reason, *rate_text;
static bool dry_run;
static int64_t attempts, limit;

static const struct opt act_opts[] = {
	{
		.name = "by",
		.type = OPT_STRING,
		.value = &by,
		.argument = "NAME",
		.environment = "",
		.help = "who asks, for the history; else the user of the session",
	},
	{
		.name = "reason",
		.type = OPT_STRING,
		.value = &reason,
		.argument = "TEXT",
		.environment = "",
		.help = "why, for the history",
	},
	{
		.name = "dry-run",
		.type = OPT_FLAG,
		.value = &dry_run,
		.environment = "",
		.help = "print the jobs that match the filter and do nothing",
	},
	{
		.name = "rate",
		.type = OPT_STRING,
		.value = &rate_text,
		.argument = "N/s",
		.environment = "",
		.help = "at most so many jobs a second",
	},
	{
		.name = "limit",
		.short_name = 'n',
		.type = OPT_INTEGER,
		.value = &limit,
		.argument = "N",
		.environment = "",
		.min = 1,
		.max = INT64_MAX,
		.help = "at most so many jobs of those that match the filter",
	},
	{.name = NULL},
};

static const struct opt resend_opts[] = {
	{
		.name = "attempts",
		.type = OPT_INTEGER,
		.value = &attempts,
		.argument = "N",
		.default_text = "1",
		.environment = "",
		.min = 1,
		.max = 10000,
		.help = "grant so many attempts",
	},
	{.name = NULL},
};

static const char usage[] = "[option ...] {ID ... | - | --state STATE [filter ...]}";

/* What differs from one action to the other. */
struct action {
	const struct command *command;
	const char *name; /* as SQL knows it */
	struct opt_program program;
};

static const struct action actions[] = {
	{
		.command = &command_cancel,
		.name = "cancel",
		.program =
			{
				.name = "outbox cancel",
				.summary = "Makes sure that jobs are not started any more.",
				.usage = usage,
				.tables = {act_opts, filter_opts, output_opts, program_db_opts},
			},
	},
	{
		.command = &command_replay,
		.name = "replay",
		.program =
			{
				.name = "outbox replay",
				.summary = "Runs ended jobs again, with a whole fresh budget.",
				.usage = usage,
				.tables = {act_opts, filter_opts, output_opts, program_db_opts},
			},
	},
	{
		.command = &command_resend,
		.name = "resend",
		.program =
			{
				.name = "outbox resend",
				.summary = "Runs jobs that are not in flight again, so many times.",
				.usage = usage,
				.tables = {act_opts, resend_opts, filter_opts, output_opts,
					program_db_opts},
			},
	},
	{
		.command = &command_retry_now,
		.name = "retry_now",
		.program =
			{
				.name = "outbox retry-now",
				.summary = "Runs jobs that wait for their time now.",
				.usage = usage,
				.tables = {act_opts, filter_opts, output_opts, program_db_opts},
			},
	},
};

/* ---- what is under way */

struct act {
	const struct action *action;
	PGconn *conn;
	int64_t rate; /* jobs a second; 0: any */
	int64_t started_ms;
	struct tally tally;
};

static int parse_rate(struct act *act, struct err *err)
{
	char number[24];
	size_t length = rate_text == NULL ? 0 : strcspn(rate_text, "/");

	if (rate_text == NULL)
		return 0;
	snprintf(number, sizeof(number), "%.*s", (int)length, rate_text);
	bool has_unit = rate_text[length] != '\0';
	if ((has_unit && strcmp(rate_text + length, "/s") != 0) ||
		units_parse_integer(number, 1, 1000000, &act->rate, NULL) < 0)
		return err_set(err, ERR_USAGE, "option --rate: \"%s\" is not like 50/s",
			rate_text);
	return 0;
}

/* With a rate, a tenth of a second's worth. */
static int64_t batch_size(const struct act *act)
{
	int64_t size = act->rate == 0 || act->rate / 10 > BATCH ? BATCH : act->rate / 10;

	return size > 0 ? size : 1;
}

static void keep_rate(const struct act *act)
{
	if (act->rate == 0)
		return;
	int64_t due_ms = act->started_ms + act->tally.jobs * 1000 / act->rate;
	int64_t now_ms = clock_ms();
	if (due_ms > now_ms)
		command_pause_ms(due_ms - now_ms);
}

/* ---- by ids */

static const char ids_sql[] =
	"select job_id, status, blocking_id"
	" from outbox.act_on_ids($1, $2, $3, $4, $5, $6, $7) order by job_id";

static int act_on_array(struct act *act, struct buf *array, struct err *err)
{
	struct params params = {0};

	buf_put_char(array, '}');
	params_add(&params, act->action->name);
	params_add(&params, buf_cstr(array));
	params_add(&params, by);
	params_add(&params, reason);
	params_add_int(&params, attempts);
	params_add_scope(&params);
	keep_rate(act);
	PGresult *result = transaction_write(act->conn, ids_sql, &params, err);
	buf_clear(array);
	if (result == NULL)
		return -1;
	tally_batch(&act->tally, result);
	PQclear(result);
	return 0;
}

static int act_on_ids(struct act *act, struct ids *ids, struct err *err)
{
	int64_t id, count = 0;
	int rc;
	struct buf array;

	buf_init(&array, SIZE_MAX);
	while ((rc = ids_next(ids, &id, err)) > 0) {
		buf_printf(&array, "%c%" PRId64, array.len == 0 ? '{' : ',', id);
		if (++count % batch_size(act) == 0 && (rc = act_on_array(act, &array, err)) < 0)
			break;
	}
	if (rc == 0 && array.len > 0)
		rc = act_on_array(act, &array, err);
	buf_release(&array);
	return rc;
}

/* ---- by filter */

static const char filter_sql[] = "select job_id, status, blocking_id, cursor"
								 " from outbox.act_on_matching($15, " FILTER_SQL
								 ", $16, $17, $18, $19, $20, $21)";

static int act_on_matching(struct act *act, struct err *err)
{
	char *cursor = NULL;
	int64_t size = batch_size(act);
	int rows = 0;

	do {
		struct params params = {0};
		int64_t left = limit > 0 ? limit - act->tally.jobs : size;
		if (left <= 0)
			break;
		size = left < size ? left : size;
		params_add_filter(&params);
		params_add(&params, act->action->name);
		params_add(&params, by);
		params_add(&params, reason);
		params_add_int(&params, attempts);
		params_add_int(&params, size);
		params_add(&params, cursor);
		params_add_bool(&params, dry_run);
		keep_rate(act);
		PGresult *result = transaction_write(act->conn, filter_sql, &params, err);
		free(cursor);
		if (result == NULL)
			return -1;
		rows = PQntuples(result);
		cursor = rows > 0
			? mem_strdup(PQgetvalue(result, rows - 1, PQfnumber(result, "cursor")))
			: NULL;
		tally_batch(&act->tally, result);
		PQclear(result);
	} while (rows == size);
	free(cursor);
	return 0;
}

/* ---- the command */

static const struct action *find_action(const char *name)
{
	const struct action *action = actions;

	while (strcmp(action->command->name, name) != 0)
		action++;
	return action;
}

static int check(bool by_ids, struct err *err)
{
	if (options_check_filter(err) < 0)
		return -1;
	if (!by_ids && !options_have_state())
		return err_set(err, ERR_USAGE,
			"give the ids of jobs, or --state and further options to choose them");
	if (by_ids && (options_have_filter() || dry_run || limit > 0))
		return err_set(err, ERR_USAGE,
			"with ids there can be no filter, --dry-run or --limit");
	return 0;
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct act act = {.action = find_action(argv[0])};
	const struct command *command = act.action->command;
	struct ids ids;
	char **operands = argv + command_start(&act.action->program, argc, argv);
	bool by_ids = operands[0] != NULL;

	if (check(by_ids, &err) < 0 || parse_rate(&act, &err) < 0 ||
		ids_init(&ids, operands, &err) < 0)
		return command_fail(command, &err);
	act.conn = command_connect(&err);
	if (act.conn == NULL)
		return command_fail(command, &err);
	act.started_ms = clock_ms();
	int rc = by_ids ? act_on_ids(&act, &ids, &err) : act_on_matching(&act, &err);
	PQfinish(act.conn);
	ids_release(&ids);
	tally_summary(&act.tally);
	if (rc < 0)
		return command_fail(command, &err);
	return act.tally.refused ? EXIT_REFUSED : EX_OK;
}

const struct command command_cancel = {"cancel", "stop jobs", run};
const struct command command_replay = {"replay", "run ended jobs anew", run};
const struct command command_resend = {"resend", "run jobs again, so many times", run};
const struct command command_retry_now = {"retry-now", "run waiting jobs now", run};
