/*
 * The results link: how attempts ended, kept until the settler has committed them.
 *
 * Over a socket a result is sent again after every greeting of the settler and forgotten
 * when it is acknowledged. In a pipe what is written is done. Results leave together: at
 * once when nothing else is running or RESULTS_BATCH have come together, else after at most
 * RESULTS_LINGER_MS.
 */
#ifndef OUTBOX_RUN_RESULTS_H
#define OUTBOX_RUN_RESULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "job.h"
#include "link.h"
#include "loop.h"

#define RESULTS_LINGER_MS 10
#define RESULTS_BATCH 128
#define RESULTS_MAX_BYTES ((size_t)16 << 20) /* unsettled, then no more jobs are taken */
#define RESULTS_MAX_BACKLOG \
	((size_t)1 << 20) /* bytes that the reader of stdout is behind */

struct results {
	struct loop *loop;
	struct link *link;
	struct jobs *jobs;
	struct job_list unsent;
	struct job_list sent; /* not acknowledged yet */
	size_t bytes;         /* of both */
	size_t max_unsettled;
	char *worker; /* the id that the jobs were claimed for */
	bool greeted; /* a settler is there */
	bool due;     /* the linger is over */
	bool blocked; /* the link took nothing: wait for the timer */
	struct loop_timer timer;
	void (
		*on_broken)(void *ctx, const struct err *err); /* nobody reads stdout any more */
	void *ctx;
};

/* The struct's loop, jobs, max_unsettled, on_broken and ctx are set by the caller, all else
 * zero. endpoint: as program_open_link. */
int results_open(struct results *results, const char *endpoint, struct err *err);
void results_close(struct results *results);

/* Until then it is our incarnation. */
void results_set_worker(struct results *results, struct str worker);

/* The job has ended; its result frame is encoded. */
void results_add(struct results *results, struct job *job);

/* Nobody wants its result any more; frees the job. */
void results_forget(struct results *results, struct job *job);

/* Once a turn: sends what is due. idle: nothing is running whose result could join. */
void results_turn(struct results *results, bool idle);

/* Writes a frame that is no result: the hello of a pipe, the goodbye. */
void results_put(struct results *results, const struct buf *frame);

size_t results_unsettled(const struct results *results);
/* How many more results may come before the bound is reached. */
size_t results_room(const struct results *results);
/* Whether there is nothing left that a settler should get. */
bool results_are_settled(const struct results *results);

#endif
