/*
 * What every program does at its start and end, so that main() is wiring only.
 */
#ifndef OUTBOX_PROGRAM_H
#define OUTBOX_PROGRAM_H

#include <stdbool.h>

#include "err.h"
#include "link.h"
#include "loop.h"
#include "opt.h"

/* Options that all programs share: --log-format, --log-level, --ready-fd. */
struct program_options {
	int log_format;
	int log_level;
	int64_t ready_fd; /* -1: none */
};
extern const struct opt program_opts[]; /* writes into program_options */
extern struct program_options program_options;

/* Options of programs that talk to PostgreSQL: --db, --pooled. */
struct program_db_options {
	const char *conninfo;
	bool pooled;
};
extern const struct opt program_db_opts[];
extern struct program_db_options program_db_options;

/* Options of programs with links: --keys, --insecure. */
struct program_link_options {
	const char *keys_dir;
	bool insecure;
};
extern const struct opt program_link_opts[];
extern struct program_link_options program_link_options;

/*
 * Opens a link at the endpoint that was given, or without one at `name` in the runtime
 * directory, with the keys of the shared link options. options: everything but those.
 * NULL on failure.
 */
struct link *program_open_link(struct loop *loop, const struct link_options *options,
	const char *given, const char *name, struct err *err);

/* The same for the jobs of a lane: "jobs", or "jobs-LANE" for others than "default". ERR_USAGE
 * when there can be no such lane. */
struct link *program_open_jobs_link(struct loop *loop, const struct link_options *options,
	const char *given, const char *lane, struct err *err);

/* The same for the link at which events are published: 0, and *link is NULL, when "none" was
 * given. */
int program_open_events_link(struct loop *loop, struct link **link, const char *given,
	const char *name, struct err *err);

/*
 * Parses options, sets up the log, ignores SIGPIPE, resets SIGCHLD, makes sure that
 * descriptors 0-2 are open. Prints the error and exits with its sysexits code when the
 * command line is wrong. Returns the index of the first operand.
 */
int program_start(const struct opt_program *program, int argc, char **argv);

/* Like program_start, and refuses operands. */
void program_start_no_operands(const struct opt_program *program, int argc, char **argv);

const char *program_name(void); /* after the start */

/*
 * Calls drain at the first TERM or INT and leave at the second. Both may be NULL: then
 * the loop stops.
 */
int program_handle_signals(struct loop *loop, void (*drain)(void *ctx),
	void (*leave)(void *ctx), void *ctx, struct err *err);

/*
 * Says "ready" once: a newline on --ready-fd, which is closed, READY=1 to systemd's
 * NOTIFY_SOCKET, and the log line `ready`. Later calls do nothing.
 */
void program_ready(void);
void program_stopping(void); /* STOPPING=1 to systemd */

/* Logs the error (event `failed`, or another) and returns the exit code for it, which is the
 * program's if it is the first. */
int program_fail(const struct err *err);
int program_fail_as(const char *event, const struct err *err);

/* As program_fail, and the loop of program_handle_signals stops: for callbacks. */
void program_give_up(const struct err *err);

/* That of the first failure; 0: there was none. */
int program_exit_code(void);

/* A random incarnation id, "HOST.PID.8HEX", HOST cut to 40 bytes; static storage. */
const char *program_incarnation(void);

#endif
