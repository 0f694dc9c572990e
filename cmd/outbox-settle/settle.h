/*
 * The settler: takes results from runners, writes them in batches, acknowledges.
 *
 * Group commit without a timer: what arrives while one settle statement runs goes into the
 * next. A batch that the server refuses is split until the bad result is alone; that one is
 * settled as settle_failed, the others as usual. One that something hinders (a lock, a conflict)
 * is split in the same way, and what is hindered is tried again later; so is one that takes too
 * long, until its own statements are to blame. For what concerns all, all wait.
 */
#ifndef SETTLE_SETTLE_H
#define SETTLE_SETTLE_H

#include "batch.h"
#include "claims.h"
#include "db.h"
#include "link.h"
#include "loop.h"
#include "peers.h"
#include "queue.h"

struct settler {
	struct loop *loop;
	struct db *db;
	struct link *results;
	struct link *events; /* NULL: none */
	struct peers peers;
	struct queue queue;  /* waiting */
	struct queue parked; /* failed twice, or blocked by a lock: tried again later */
	struct batch batch;  /* in the running statement */
	struct claims claims;
	struct loop_timer retry_timer;
	size_t limit; /* of the next batch: halved by a failure, doubled by a success */
	int64_t backoff_ms;
	size_t max_queue_bytes;
	bool running;               /* a settle statement is under way */
	bool paused;                /* reading results is, because the queue is full */
	bool waiting;               /* backing off */
	void (*on_idle)(void *ctx); /* nothing is queued or running (called each time) */
	void *ctx;
};

void settler_init(struct settler *settler, size_t batch_size, size_t max_queue_bytes);
void settler_release(struct settler *settler);

/* A result frame; peer is NULL in a pipe. */
void settler_take(struct settler *settler, const void *frame, size_t length,
	struct peer *peer);

/* Starts a statement if there is something to settle and the database is there. */
void settler_go(struct settler *settler);

bool settler_is_idle(const struct settler *settler);

#endif
