/*
 * What the subcommands that only look have in common.
 */
#ifndef OUTBOX_INSPECT_H
#define OUTBOX_INSPECT_H

#include "command.h"
#include "options.h"
#include "transaction.h"

/* Runs one query with a connection of its own. NULL on failure. The caller clears the result. */
PGresult *inspect_once(const char *sql, const struct params *params, struct err *err);

/*
 * What show, history and explain have in common: parses "[option ...] ID", runs a query with
 * the parameters id, tenant, no_tenant, and prints its result: to people the first `columns`
 * columns of it (0: all). No rows mean that the job is not found. Returns the exit code.
 */
int inspect_job(const struct command *command, const struct opt_program *program,
	int argc, char **argv, const char *sql, enum table_form form, int columns);

/* Says that a job is not found, and returns the exit code of that. */
int inspect_not_found(const struct command *command, int64_t id);

#endif
