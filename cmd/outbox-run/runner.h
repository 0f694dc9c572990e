/*
 * The runner proper: takes jobs, starts handlers in its slots, reports how they ended, and
 * says how much more it could take. Where jobs come from is not its business.
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
#include "jobdoc.h"
#include "lease.h"
#include "loop.h"
#include "opt.h"
#include "report.h"
#include "results.h"
#include "stream.h"

#define RUNNER_LATER_MS 5000 /* until a job that could not be taken is due again */

struct runner_options {
	size_t slots;     /* most attempts at once, each in a process of its own */
	size_t window;    /* most jobs of a stream kind at once */
	int64_t grace_ms; /* for handlers when the runner drains */
	bool by_credit;   /* jobs come for credit: hand back those that wait too long */
	const struct opt_list *pass_env;
	struct attempt_options
		attempts; /* loop, guard and limits; the rest is the runner's */
};

struct
	runner_kind { /* one a handler, in the same order; one more for kinds that are gone */
	struct jobdoc_environment environment;
	struct stream *stream; /* NULL: it gets a process for each attempt */
	size_t running;        /* such processes, and jobs that wait for one */
	size_t queued;
};

struct runner {
	struct runner_options options;
	const struct handlers *handlers;
	struct runner_kind *kinds;
	struct results *results;
	struct jobs *jobs;
	struct job_list queue;  /* not started yet, oldest first; streams have their own */
	struct attempt **slots; /* options.slots entries; NULL: free */
	size_t running;         /* of the slots */
	struct stream_options stream_options;
	struct stream *streams; /* of the kinds that are streams, and retired ones */
	char *worker;           /* the id that jobs were claimed for */
	struct lease lease;
	struct loop_timer lease_timer; /* the lease is given up */
	struct loop_timer stale_timer; /* the oldest job in the queue has waited too long */
	struct loop_timer grace_timer; /* handlers are told to stop */
	struct loop_timer pause_timer; /* the host was short of something: try again */
	int64_t pause_ms;              /* the last pause; 0: all is well */
	int64_t average_us; /* moving average of an attempt's duration; 0: unknown */
	bool draining;
};

/* The handlers, jobs and results must outlive the runner. */
void runner_init(struct runner *runner, const struct runner_options *options,
	const struct handlers *handlers, struct jobs *jobs, struct results *results,
	const char *worker);
void runner_release(struct runner *runner); /* kills what still runs */

void runner_set_worker(struct runner *runner, struct str worker);

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

/* How many more jobs may come: for the slots, and of one kind (`free` being the former). A
 * stream kind has a window of its own and does not use slots. */
size_t runner_capacity(const struct runner *runner);
size_t runner_kind_capacity(const struct runner *runner, size_t kind, size_t free);
bool runner_kind_is_stream(const struct runner *runner, size_t kind);
size_t runner_kind_held(const struct runner *runner, size_t kind);    /* run and wait */
size_t runner_kind_waiting(const struct runner *runner, size_t kind); /* wait */
/* So much more capacity for a kind is worth a word to the claimer. */
size_t runner_kind_step(const struct runner *runner, size_t kind);
/* Whether jobs that come without credit should stop coming. */
bool runner_is_full(const struct runner *runner);

/* Ends an attempt that was not started: hands the job back, or says what else. */
void runner_hand_back(struct runner *runner, struct job *job, const char *code,
	int64_t after_ms);
void runner_report(struct runner *runner, struct job *job,
	const struct report_unstarted *report);

/* No more jobs: hands back what waits, gives handlers the grace, then stops them. */
void runner_drain(struct runner *runner);
/* As above, without a grace. */
void runner_leave(struct runner *runner);
bool runner_is_idle(const struct runner *runner); /* nothing runs or waits */
/* Once idle at the end: lets stream handlers leave. True when none is left. */
bool runner_dismiss(struct runner *runner);

#endif
