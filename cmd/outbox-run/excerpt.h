/*
 * What is kept of a text that a handler wrote: made storable, redacted by its patterns, and,
 * where it is too long, cut out of the middle.
 */
#ifndef OUTBOX_RUN_EXCERPT_H
#define OUTBOX_RUN_EXCERPT_H

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "capture.h"
#include "handlers.h"

struct excerpt { /* so much from the beginning and from the end */
	size_t head_bytes;
	size_t tail_bytes;
};

/* Within max_bytes, the marker of what was cut out included. */
struct excerpt excerpt_of_response(int64_t max_bytes); /* is told by its beginning */
struct excerpt excerpt_of_error(int64_t max_bytes);    /* is told by its end */
struct excerpt excerpt_of_message(int64_t max_bytes);  /* beginning only */
struct excerpt excerpt_of_tail(int64_t max_bytes);     /* end only */

/* A capture that has all that an excerpt needs. What is redacted is found across the cut:
 * a little more is captured for handlers with patterns. */
void excerpt_init_capture(struct capture *capture, const struct excerpt *excerpt,
	const struct handler *handler);

/* Append the excerpt; one newline at the end is dropped. Return the number of bytes that were
 * cut out. */
int64_t excerpt_put_capture(struct buf *out, const struct capture *capture,
	const struct excerpt *excerpt, const struct handler *handler);
int64_t excerpt_put_text(struct buf *out, struct str text, const struct excerpt *excerpt,
	const struct handler *handler);

#endif
