/*
 * The runner proper: takes jobs, passes them to the slots or to the stream of their kind, and
 * holds the lease under which it may. Where jobs come from is not its business.
 */
#ifndef OUTBOX_RUN_RUNNER_H
#define OUTBOX_RUN_RUNNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attempt.h"
#include "frame.h"
#include "handlers.h"
#include "job.h"
#include "kinds.h"
#include "lease.h"
#include "loop.h"
#include "opt.h"
#include "results.h"
#include "slots.h"
#include "streams.h"

struct runner_options {
	size_t slots;     /* most attempts at once, each in a process of its own */
	size_t window;    /* most jobs of a stream kind at once */
	int64_t grace_ms; /* for handlers when the runner drains */
	bool by_credit;   /* jobs come for credit: hand back those that wait too long */
	const struct opt_list *pass_env;
	struct attempt_options attempts; /* loop, guard and limits; the rest is the slots' */
};

struct runner {
	struct runner_options options;
	struct kinds kinds;
	struct slots slots;     /* for kinds that get a process for each attempt */
	struct streams streams; /* for the others */
	struct results *results;
	struct jobs *jobs;
	struct lease lease;
	struct loop_timer lease_timer; /* the lease is given up */
	struct loop_timer stale_timer; /* the job that waits longest has waited too long */
	struct loop_timer grace_timer; /* handlers are told to stop */
	struct loop_timer look_timer;  /* the program of a handler was gone: is it back? */
	bool draining;
};

/* The handlers, jobs and results must outlive the runner. */
void runner_init(struct runner *runner, const struct runner_options *options,
	const struct handlers *handlers, struct jobs *jobs, struct results *results);
void runner_release(struct runner *runner); /* kills what still runs */

/* Goes on with other handlers: what waits without one now is handed back, what runs runs on. */
void runner_reload(struct runner *runner, const struct handlers *handlers);
/* Whether something runs that began with these handlers. */
bool runner_uses(const struct runner *runner, const struct handlers *handlers);

/* A job has arrived: it is started, queued, handed back, or ignored when it is held already. */
void runner_accept(struct runner *runner, const void *frame, size_t length);
void runner_cancel(struct runner *runner, const struct frame_cancel *cancel);

/* After a change of runner->lease. */
void runner_lease_changed(struct runner *runner);
/* Kills all handlers and hands back what waits: others may run these jobs from now on. */
void runner_lose_lease(struct runner *runner);

/* Starts what can be started. Once a turn. */
void runner_turn(struct runner *runner);

/* No more jobs: hands back what waits, gives handlers the grace, then stops them. */
void runner_drain(struct runner *runner);
/* As above, without a grace. */
void runner_leave(struct runner *runner);
bool runner_is_idle(const struct runner *runner); /* nothing runs or waits */
/* Once idle at the end: lets stream handlers leave. True when none is left. */
bool runner_dismiss(struct runner *runner);

#endif
