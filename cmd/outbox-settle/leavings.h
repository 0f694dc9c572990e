/*
 * What the workers of a pipe leave behind: jobs that they held and that have no result when
 * the stream ends. Their runner is gone then, so these are given back at once.
 */
#ifndef SETTLE_LEAVINGS_H
#define SETTLE_LEAVINGS_H

#include <stddef.h>

#include "buf.h"
#include "db.h"

#define LEAVINGS_MAX_WORKERS 64 /* others are the sweeper's */

struct leavings {
	char *workers[LEAVINGS_MAX_WORKERS];
	size_t count;
	size_t recovering;          /* statements under way */
	void (*on_done)(void *ctx); /* all are given back, or could not be */
	void *ctx;
};

/* on_done and ctx are set by the caller, all else zero. */
void leavings_note_worker(struct leavings *leavings, struct str worker);
void leavings_release(struct leavings *leavings);

/* Gives back what they left; not while that is under way. */
void leavings_recover(struct leavings *leavings, struct db *db);

#endif
