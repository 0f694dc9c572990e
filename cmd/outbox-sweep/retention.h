/*
 * Retention: deletes what is past its time, after each pass over the workers.
 *
 * One step is one short statement: where deleting is slow, or the server has a statement_timeout
 * that a step runs into, the next ones look at fewer rows. Between two steps it pauses for as
 * long as the last one took, so that clean-up takes at most half of a session, and the next look
 * at the workers waits for one step at most. When nothing is left it rests for a minute.
 */
#ifndef OUTBOX_SWEEP_RETENTION_H
#define OUTBOX_SWEEP_RETENTION_H

#include <stdbool.h>

#include "db.h"
#include "link.h"
#include "loop.h"

#define RETENTION_KINDS 6 /* of things that it deletes */

struct retention {
	struct loop *loop;
	struct db *db;
	struct link *events;        /* or NULL */
	int64_t batch;              /* rows that a step looks at in each place, at most */
	void (*on_done)(void *ctx); /* nothing is left to delete, or a step failed */
	void *ctx;

	struct loop_timer timer; /* starts the next step */
	bool running;            /* steps until on_done */
	bool asking;             /* a step is on its way */
	bool stopping;
	int64_t rows; /* that the next step looks at; 0: as many as it may */
	int64_t step_began_us;
	int64_t ended_us;                 /* when nothing was left; 0: not yet */
	int64_t told_us;                  /* when the last line was written */
	int64_t deleted[RETENTION_KINDS]; /* since then */
	int64_t at_us;                    /* database clock of the last that were deleted */
};

/* Begins, unless it is running or rests. The members above the blank line are the caller's to fill,
 * the others zero. */
void retention_start(struct retention *retention);

/* No further steps; says what was deleted. Returns whether none is on its way, else on_done
 * will be called. */
bool retention_stop(struct retention *retention);

#endif
