/*
 * One settle statement: a run of results as arrays, and what came of it.
 */
#ifndef SETTLE_BATCH_H
#define SETTLE_BATCH_H

#include <stddef.h>

#include "claims.h"
#include "db.h"
#include "queue.h"

#define BATCH_MAX_BYTES ((size_t)8 << 20) /* of frames in one statement */

struct batch {
	struct entry **entries; /* owned while the statement runs */
	size_t count;
	size_t capacity; /* --batch */
};

void batch_init(struct batch *batch, size_t capacity);
void batch_release(struct batch *batch);

/* Moves at most `limit` entries from the queue. */
void batch_fill(struct batch *batch, struct queue *queue, size_t limit);

/* Sends the statement. A result with a failure is settled as settle_failed. */
void batch_send(struct batch *batch, struct db *db, struct claims *claims,
	db_result_fn *fn, void *ctx);

/* Gives the entries back to the caller in their order, and empties the batch. */
void batch_return(struct batch *batch, struct queue *queue);

#endif
