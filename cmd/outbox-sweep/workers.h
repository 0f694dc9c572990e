/*
 * Dead workers: found by watching their beats, and recovered.
 *
 * A worker is dead when its beat has stood still for a whole lease while this process was
 * watching: only looks that were close to each other count, on the monotonic clock, and after
 * an outage none until the claimers had time to come back, too. So an outage of the database,
 * a stopped sweeper or a clock that jumps kills nobody, and any number of sweepers may run.
 */
#ifndef OUTBOX_SWEEP_WORKERS_H
#define OUTBOX_SWEEP_WORKERS_H

#include <stdbool.h>

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
	int64_t looked_at_us;  /* monotonic time of the last look; 0: none since connecting */
	int64_t count_from_us; /* looks before this do not count; 0: all do */
	bool is_cut_off;       /* the connection was lost, or could not be made */
	size_t running;        /* queries that are not back yet */
};

/* The members above the blank line are the caller's to fill, the others zero. */
void workers_release(struct workers *workers);

/* Looks at all workers; not while the last look is not over. */
void workers_look(struct workers *workers);

/* The connection is lost, or could not be made; it is there (again). What was seen before it
 * was lost says nothing about now. */
void workers_db_down(struct workers *workers);
void workers_db_up(struct workers *workers);

#endif
