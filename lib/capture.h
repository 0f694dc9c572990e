/*
 * A bounded copy of a stream that is drained to its end: the first head_bytes and the last
 * tail_bytes are kept, what is between is dropped and counted. Memory is flat.
 */
#ifndef OUTBOX_CAPTURE_H
#define OUTBOX_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"

struct capture {
	struct buf head;
	char *tail; /* ring; allocated when the head is full */
	size_t head_max, tail_max;
	size_t tail_len, tail_pos;
	int64_t total; /* bytes seen */
};

void capture_init(struct capture *capture, size_t head_bytes, size_t tail_bytes);
void capture_release(struct capture *capture);
void capture_add(struct capture *capture, const char *bytes, size_t count);
int64_t capture_dropped(const struct capture *capture);

/* Appends the bytes kept of the end, which follow those of capture->head: at once, or behind
 * those that were dropped. */
void capture_put_tail(const struct capture *capture, struct buf *out);

/* Reads fd until it would block, for at most `budget` bytes. 1: end of file (or a read
 * error), 0: would block or budget used. */
int capture_read(struct capture *capture, int fd, size_t budget);

#endif
