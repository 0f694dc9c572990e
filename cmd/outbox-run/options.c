#include "options.h"

#include <unistd.h>

#include "lease.h"
#include "program.h"

struct run_options run_options;

static const struct opt opts[] = {
	{
		.name = "handlers",
		.type = OPT_STRING,
		.value = &run_options.handlers,
		.argument = "DIR",
		.default_text = "handlers.d",
		.help = "folder with one executable a kind",
	},
	{
		.name = "slots",
		.short_name = 'j',
		.type = OPT_INTEGER,
		.value = &run_options.slots,
		.argument = "N",
		.min = 1,
		.max = 1000,
		.help = "most handlers at once; else the number of processors",
	},
	{
		.name = "window",
		.type = OPT_INTEGER,
		.value = &run_options.window,
		.argument = "N",
		.default_text = "1000",
		.min = 1,
		.max = 5000,
		.help = "most jobs of a stream handler's kind at once",
	},
	{
		.name = "lane",
		.type = OPT_STRING,
		.value = &run_options.lane,
		.argument = "LANE",
		.default_text = "default",
		.help = "run the kinds of this lane",
	},
	{
		.name = "jobs",
		.type = OPT_STRING,
		.value = &run_options.jobs,
		.argument = "ENDPOINT",
		.help = "where jobs come from; - for stdin; else the runtime directory's jobs",
	},
	{
		.name = "results",
		.type = OPT_STRING,
		.value = &run_options.results,
		.argument = "ENDPOINT",
		.help = "where results go; - for stdout; else the runtime directory's results",
	},
	{
		.name = "grace",
		.type = OPT_DURATION,
		.value = &run_options.grace_ms,
		.argument = "DURATION",
		.default_text = "30s",
		.help = "time for handlers to finish when the runner is told to stop",
	},
	{
		.name = "lease",
		.type = OPT_DURATION,
		.value = &run_options.lease_ms,
		.argument = "DURATION",
		.default_text = "1h",
		.min = 1000,
		.max = LEASE_MAX_MS,
		.help = "lease of jobs from stdin, where their hello does not say",
	},
	{
		.name = "max-response",
		.type = OPT_SIZE,
		.value = &run_options.max_response,
		.argument = "BYTES",
		.default_text = "64KiB",
		.min = 256,
		.max = 1 << 20,
		.help = "most that is kept of a handler's stdout",
	},
	{
		.name = "max-error",
		.type = OPT_SIZE,
		.value = &run_options.max_error,
		.argument = "BYTES",
		.default_text = "8KiB",
		.min = 256,
		.max = 1 << 20,
		.help = "most that is kept of a handler's stderr",
	},
	{
		.name = "max-unsettled",
		.type = OPT_INTEGER,
		.value = &run_options.max_unsettled,
		.argument = "N",
		.default_text = "1000",
		.min = 1,
		.max = 5000,
		.help = "take no jobs beyond this many results that are not settled",
	},
	{
		.name = "pass-env",
		.type = OPT_LIST,
		.value = &run_options.pass_env,
		.argument = "NAME",
		.help = "pass this variable on to handlers; may be repeated",
	},
	{
		.name = "check",
		.type = OPT_FLAG,
		.value = &run_options.check,
		.environment = "",
		.help = "check the handler folder, print its handlers, and exit",
	},
	{.name = NULL},
};

const struct opt_program run_program = {
	.name = "outbox-run",
	.summary = "execute the handlers of outbox jobs",
	.usage = "[option ...]",
	.tables = {opts, program_link_opts, program_opts},
};

void run_options_complete(void)
{
	if (run_options.slots == 0)
		run_options.slots = sysconf(_SC_NPROCESSORS_ONLN);
}
