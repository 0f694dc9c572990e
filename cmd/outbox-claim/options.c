#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "link.h"
#include "program.h"
#include "text.h"
#include "units.h"

#define DEFAULT_LEASE_MS 30000
#define PIPE_LEASE_MS 3600000 /* nobody can prolong the lease of a pipe */

struct claim_options claim_options;
static struct opt_list reserve_texts;

static const struct opt opts[] = {
	{
		.name = "jobs",
		.type = OPT_STRING,
		.value = &claim_options.jobs,
		.argument = "ENDPOINT",
		.help = "where runners connect, or - for stdout with --once; default: jobs (or "
				"jobs-LANE) in the runtime directory",
	},
	{
		.name = "nudges",
		.type = OPT_STRING,
		.value = &claim_options.nudges,
		.argument = "ENDPOINT",
		.help = "where outbox-listen publishes; default: nudges in the runtime directory",
	},
	{
		.name = "lane",
		.type = OPT_STRING,
		.value = &claim_options.lane,
		.argument = "LANE",
		.default_text = "default",
		.help = "claim the kinds of this lane",
	},
	{
		.name = "lease",
		.type = OPT_DURATION,
		.value = &claim_options.lease_ms,
		.argument = "TIME",
		.help =
			"how long a runner is trusted without a beat; default 30s, with --once 1h",
		.min = 1000,
		.max = 86400000,
	},
	{
		.name = "reserve",
		.type = OPT_LIST,
		.value = &reserve_texts,
		.argument = "KIND=N",
		.help = "keep room for N jobs of this kind whatever else waits; may be repeated",
	},
	{
		.name = "batch",
		.type = OPT_INTEGER,
		.value = &claim_options.batch,
		.argument = "N",
		.default_text = "500",
		.help = "claim at most this many jobs in one transaction",
		.min = 1,
		.max = 5000,
	},
	{
		.name = "grace",
		.type = OPT_DURATION,
		.value = &claim_options.grace_ms,
		.argument = "TIME",
		.default_text = "60s",
		.help = "after TERM, serve draining runners at most this long",
	},
	{
		.name = "once",
		.type = OPT_FLAG,
		.value = &claim_options.once,
		.environment = "",
		.help = "claim once, write the jobs to stdout, and exit",
	},
	{
		.name = "limit",
		.type = OPT_INTEGER,
		.value = &claim_options.limit,
		.argument = "N",
		.default_text = "100",
		.environment = "",
		.help = "with --once: claim at most this many jobs",
		.min = 1,
		.max = 5000,
	},
	{
		.name = "kind",
		.type = OPT_LIST,
		.value = &claim_options.kinds,
		.argument = "KIND",
		.environment = "",
		.help = "with --once: claim only this kind; may be repeated",
	},
	{.name = NULL},
};

const struct opt_program claim_program = {
	.name = "outbox-claim",
	.summary = "Claims jobs for the runners that are connected to it.",
	.usage = "[option ...]",
	.tables = {opts, program_db_opts, program_link_opts, program_opts},
};

/* KIND=N */
static int parse_reserve(const char *text, struct reserve *reserve, struct err *err)
{
	const char *equals = strchr(text, '=');

	if (equals == NULL || !text_is_kind(text, (size_t)(equals - text)) ||
		units_parse_integer(equals + 1, 1, 1000000, &reserve->count, err) < 0)
		return err_set(err, ERR_USAGE, "--reserve \"%s\" is not KIND=N", text);
	reserve->kind = mem_strndup(text, (size_t)(equals - text));
	return 0;
}

static int parse_reserves(struct err *err)
{
	struct claim_options *options = &claim_options;

	if (reserve_texts.count > OPTIONS_MAX_RESERVES)
		return err_set(err, ERR_USAGE, "more than %d times --reserve",
			OPTIONS_MAX_RESERVES);
	for (size_t i = 0; i < reserve_texts.count; i++) {
		if (parse_reserve(reserve_texts.items[i], &options->reserves[i], err) < 0)
			return -1;
		options->reserves_count++;
	}
	return 0;
}

int claim_options_complete(struct err *err)
{
	struct claim_options *options = &claim_options;
	bool is_pipe = options->jobs != NULL && link_is_stdio_endpoint(options->jobs);

	if (options->once != is_pipe)
		return err_set(err, ERR_USAGE, "--once and --jobs - go together");
	if (options->kinds.count > 0 && !options->once)
		return err_set(err, ERR_USAGE, "--kind goes with --once");
	if (options->lease_ms == 0)
		options->lease_ms = options->once ? PIPE_LEASE_MS : DEFAULT_LEASE_MS;
	return parse_reserves(err);
}

void claim_options_release(void)
{
	for (size_t i = 0; i < claim_options.reserves_count; i++)
		free(claim_options.reserves[i].kind);
	opt_list_release(&claim_options.kinds);
	opt_list_release(&reserve_texts);
}
