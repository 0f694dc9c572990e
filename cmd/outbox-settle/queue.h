/*
 * Results waiting to be settled, in the order of their arrival, each a copy of its frame.
 */
#ifndef SETTLE_QUEUE_H
#define SETTLE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frame.h"
#include "peers.h"

struct entry {
	struct entry *next;
	struct peer *peer;          /* who wants the acknowledgement; NULL in a pipe */
	struct frame_result result; /* views into `frame` */
	char *failure;              /* why it could not be settled as it is, or NULL */
	int64_t not_before_us;      /* parked entries: when to try again (monotonic) */
	bool apart;                 /* goes into a batch of its own */
	int timeouts;               /* how often that took too long */
	size_t length;
	unsigned char frame[];
};

struct queue {
	struct entry *head;
	struct entry **tail;
	size_t count;
	size_t bytes;
};

void queue_init(struct queue *queue);
void queue_release(struct queue *queue);

/* Copies and decodes a result frame. ERR_PROTOCOL when it is not one. */
struct entry *entry_new(const void *frame, size_t length, struct peer *peer,
	struct err *err);
void entry_free(struct entry *entry);
bool entry_has_effects(
	const struct entry *entry); /* statements or follow-ups of its own */

void queue_put(struct queue *queue, struct entry *entry); /* takes the entry */
struct entry *queue_take(struct queue *queue); /* the first, or NULL; the caller's */

#endif
