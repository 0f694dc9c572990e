/*
 * The subcommands of `outbox`: one file each, thin over the SQL functions.
 */
#ifndef OUTBOX_COMMAND_H
#define OUTBOX_COMMAND_H

#include <libpq-fe.h>
#include <stdint.h>

#include "err.h"
#include "opt.h"

/* The exit code, besides 0 and those of sysexits, when what was asked for is refused or not
 * there. */
#define EXIT_REFUSED 1

struct command {
	const char *name;
	const char *summary; /* one line for `outbox --help` */
	/* argv[0] is the subcommand's name. Returns the exit code. */
	int (*run)(int argc, char **argv);
};

extern const struct command command_backlog;
extern const struct command command_cancel;
extern const struct command command_count;
extern const struct command command_doctor;
extern const struct command command_drain;
extern const struct command command_enqueue;
extern const struct command command_erase_tenant;
extern const struct command command_explain;
extern const struct command command_history;
extern const struct command command_keygen;
extern const struct command command_lane;
extern const struct command command_list;
extern const struct command command_metrics;
extern const struct command command_migrate;
extern const struct command command_replay;
extern const struct command command_resend;
extern const struct command command_retry_now;
extern const struct command command_schedule;
extern const struct command command_show;
extern const struct command command_stats;
extern const struct command command_tail;
extern const struct command command_verify;
extern const struct command command_watch;

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
