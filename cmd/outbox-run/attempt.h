/*
 * One attempt: a handler process at work. Feeds its stdin, drains its outputs, holds its
 * deadline, and says once that it is over.
 *
 * The leader's exit decides. What it left in the pipes is read for at most one second more;
 * then the pipes are closed and what is left of its process group is killed. At the deadline,
 * or when told to stop, the group gets TERM and after the grace KILL.
 */
#ifndef OUTBOX_RUN_ATTEMPT_H
#define OUTBOX_RUN_ATTEMPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "capture.h"
#include "child.h"
#include "err.h"
#include "handlers.h"
#include "job.h"
#include "loop.h"

enum attempt_stop { /* why it was told to stop; the first reason counts */
	ATTEMPT_NOT_STOPPED,
	ATTEMPT_TIMEOUT,
	ATTEMPT_CANCELLED,
	ATTEMPT_INTERRUPTED, /* the runner is going away */
	ATTEMPT_LEASE_LOST,
};

struct attempt;

struct attempt_options { /* what all attempts of a runner share */
	struct loop *loop;
	struct guard *guard;
	int64_t max_response_bytes;
	int64_t max_error_bytes;
	/* Called once, from the loop; afterwards call attempt_free. */
	void (*on_end)(void *ctx, struct attempt *attempt);
	void *ctx;
};

struct attempt {
	const struct attempt_options *options;
	const struct handler *handler;
	struct job *job;
	size_t slot;
	struct child child;
	struct buf in; /* what of the document is not written yet */
	struct capture out, error, result;
	struct loop_timer
		timer; /* the deadline, then the grace; after the exit the last second */
	enum attempt_stop stop;
	char *cancel_reason;   /* or NULL */
	int64_t started_us;    /* monotonic */
	int64_t started_at_us; /* database clock */
	int64_t duration_us;
	bool exited;
	int exit_status;   /* -1: by signal */
	int signal_number; /* 0: by exit */
};

struct attempt_start {
	const struct handler *handler;
	struct job *job;
	size_t slot;
	char *const *envp;
	int64_t started_at_us; /* database clock */
	int64_t deadline_us;   /* database clock; for the document */
};

/* NULL and ERR_OS: the host is short of something, nothing was started. ERR_CONFIG: the
 * handler cannot be executed. */
struct attempt *attempt_new(const struct attempt_options *options,
	const struct attempt_start *start, struct err *err);

/* TERM to the group now and KILL after the handler's grace. */
void attempt_stop(struct attempt *attempt, enum attempt_stop why);
/* KILL to the group now. */
void attempt_kill(struct attempt *attempt, enum attempt_stop why);

/* Kills what is left and frees; the job is not touched. */
void attempt_free(struct attempt *attempt);

#endif
