/*
 * The slots: a process for each attempt, so many at once. Jobs wait in one queue for a free
 * slot and for room below the concurrency of their kind.
 *
 * When the host is short of something, starting pauses, for 1 s and doubling to 30 s; what
 * waits goes back.
 */
#ifndef OUTBOX_RUN_SLOTS_H
#define OUTBOX_RUN_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attempt.h"
#include "kinds.h"
#include "lease.h"
#include "loop.h"
#include "pace.h"
#include "results.h"

struct slots_options {
	size_t count;
	bool asks_ahead;                 /* false: jobs come as they do */
	struct attempt_options attempts; /* loop, guard and limits; the rest is the slots' */
	struct kinds *kinds;             /* whose `running` and `queued` are counted here */
	struct results *results;
	const struct lease *lease; /* knows the database's clock */
};

struct slots {
	struct slots_options options;
	struct job_list queue;     /* oldest first */
	struct attempt **attempts; /* options.count entries; NULL: free */
	size_t running;
	struct loop_timer pause_timer;
	bool draining;      /* nothing more will come */
	int64_t pause_ms;   /* the last pause; 0: the last start succeeded */
	int64_t average_us; /* moving average of an attempt's duration; 0: unknown */
	struct pace pace;
};

void slots_init(struct slots *slots, const struct slots_options *options);
void slots_release(struct slots *slots); /* kills what runs; the queue is not touched */

/* ---- what waits: `put` and `remove` are for jobs of kinds that are no streams */
void slots_put(struct slots *slots, struct job *job);
void slots_remove(struct slots *slots, struct job *job);
void slots_hand_back(struct slots *slots, const char *code, int64_t after_ms);

/* Starts what there is room for. Once a turn. */
void slots_turn(struct slots *slots);

/* ---- what runs */
/* False: the job is in no slot. */
bool slots_cancel(struct slots *slots, const struct job *job, struct str reason);
void slots_stop(struct slots *slots, enum attempt_stop why); /* TERM, later KILL */
void slots_kill(struct slots *slots, enum attempt_stop why);

size_t slots_held(const struct slots *slots); /* jobs, running and waiting */
bool slots_are_paused(const struct slots *slots);

/* How many jobs, running and waiting, are best had at once: more than there are slots while
 * attempts are short. */
size_t slots_window(const struct slots *slots);
/* They are not short: a job has waited too long for one to end. */
void slots_note_slow(struct slots *slots);

/* The kinds were replaced while the queue was empty: counts what runs among the new ones. */
void slots_recount(struct slots *slots);
/* Whether something runs that began with these handlers. */
bool slots_use(const struct slots *slots, const struct handlers *handlers);

#endif
