/*
 * Dead workers: found by watching their beats, and recovered.
 *
 * A worker is dead when its beat has stood still for a whole lease while this process was
 * watching: only looks that were close to each other count, on the monotonic clock. So an
 * outage of the database, a stopped sweeper or a clock that jumps kills nobody, and any
 * number of sweepers may run.
 */
#ifndef OUTBOX_SWEEP_WORKERS_H
#define OUTBOX_SWEEP_WORKERS_H

#include "db.h"
#include "link.h"

struct workers {
	struct db *db;
	struct link *events;        /* or NULL */
	int64_t interval_ms;        /* between two looks, about */
	void (*on_done)(void *ctx); /* a look and the recoveries that it led to are over */
	void *ctx;

	struct watched *watched;
	size_t watched_count;
	int64_t looked_at_us; /* monotonic time of the last look; 0: none since connecting */
	size_t running;       /* queries that are not back yet */
};

/* The members above the blank line are the caller's to fill, the others zero. */
void workers_release(struct workers *workers);

/* Looks at all workers; not while the last look is not over. */
void workers_look(struct workers *workers);

/* What was seen before the connection was lost says nothing about now. */
void workers_forget(struct workers *workers);

#endif
