/*
 * outbox: the operator's front end. Finds the subcommand and leaves the rest to it.
 */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "command.h"
#include "version.h"

static const struct command *const commands[] = {
	&command_backlog,
	&command_cancel,
	&command_count,
	&command_doctor,
	&command_drain,
	&command_enqueue,
	&command_erase_tenant,
	&command_explain,
	&command_history,
	&command_keygen,
	&command_lane,
	&command_list,
	&command_metrics,
	&command_migrate,
	&command_replay,
	&command_resend,
	&command_retry_now,
	&command_schedule,
	&command_show,
	&command_stats,
	&command_tail,
	&command_verify,
	&command_watch,
};

#define COMMANDS_COUNT (sizeof(commands) / sizeof(commands[0]))

static void print_help(FILE *out)
{
	fprintf(out,
		"usage: outbox COMMAND [option ...] [operand ...]\n"
		"Operates the transactional outbox of a PostgreSQL database.\n\n"
		"commands:\n");
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		fprintf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
	fprintf(out,
		"\n`outbox COMMAND --help` lists the options of a command; "
		"see also outbox(1) and outbox(7).\n");
}

/* What was printed counts only when it was written. */
static int run_command(const struct command *command, int argc, char **argv)
{
	int code = command->run(argc, argv);

	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	fprintf(stderr, "outbox %s: could not write to stdout\n", command->name);
	return EX_IOERR;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;

	if (name == NULL) {
		print_help(stderr);
		return EX_USAGE;
	}
	if (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0) {
		print_help(stdout);
		return EX_OK;
	}
	if (strcmp(name, "--version") == 0) {
		printf("outbox %s\n", OUTBOX_VERSION);
		return EX_OK;
	}
	for (size_t i = 0; i < COMMANDS_COUNT; i++)
		if (strcmp(name, commands[i]->name) == 0)
			return run_command(commands[i], argc - 1, argv + 1);
	fprintf(stderr, "outbox: unknown command \"%s\"\ntry \"outbox --help\"\n", name);
	return EX_USAGE;
}
