/*
 * The subcommands of `outbox`: one file each, thin over the SQL functions.
 */
#ifndef OUTBOX_COMMAND_H
#define OUTBOX_COMMAND_H

#include <libpq-fe.h>
#include <stdint.h>

#include "err.h"
#include "opt.h"

struct command {
	const char *name;
	const char *summary; /* one line for `outbox --help` */
	/* argv[0] is the subcommand's name. Returns the exit code. */
	int (*run)(int argc, char **argv);
};

extern const struct command command_keygen;
extern const struct command command_migrate;

/* Parses the options; a wrong command line prints what is wrong and exits with EX_USAGE.
 * Returns the index of the first operand. */
int command_start(const struct opt_program *program, int argc, char **argv);

/* As command_start, and requires between `least` and `most` operands. */
int command_start_operands(const struct opt_program *program, int argc, char **argv,
	int least, int most);

/* Connects by --db and checks the schema version. NULL on failure. */
PGconn *command_connect(struct err *err);

/* Prints "outbox NAME: text" on stderr and returns the exit code of the class. */
int command_fail(const struct command *command, const struct err *err);

/* Runs one statement with text parameters. NULL with *err filled when the server refuses. */
PGresult *command_query(PGconn *conn, const char *sql, int nparams,
	const char *const *values, struct err *err);

/* Runs statements whose results do not matter. */
int command_execute(PGconn *conn, const char *sql, struct err *err);

/* Parses a job id; ERR_USAGE naming what is none. */
int command_parse_id(const char *text, int64_t *id, struct err *err);

void command_pause_ms(int64_t ms);

#endif
