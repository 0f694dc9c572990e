/*
 * Frames over a plain descriptor: stdin or stdout in a shell pipe, or a file.
 *
 * A reader cuts the byte stream into frames and never blocks: it reads once each time that
 * the descriptor is ready, which needs no O_NONBLOCK (that flag would be shared with
 * whoever else holds the pipe or terminal). A writer keeps what the descriptor does not
 * take yet; it sets O_NONBLOCK and puts the old flags back. Neither closes the descriptor.
 */
#ifndef OUTBOX_FRAME_STREAM_H
#define OUTBOX_FRAME_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "loop.h"

#define FRAME_STREAM_MAX_BACKLOG \
	((size_t)64 << 20) /* bytes accepted and not yet written */

struct frame_stream_options {
	int fd;
	bool writes;
	/* One whole frame of any version and type; it dies with the call. */
	void (*on_frame)(void *ctx, const void *frame, size_t length, int64_t version,
		int64_t type);
	/* Once. Reader: end of input (err NULL), or it broke off or cannot be frames.
	 * Writer: whoever reads it went away, or writing failed. */
	void (*on_end)(void *ctx, const struct err *err);
	void *ctx;
};

struct frame_stream;

/* Callbacks come from the loop only, never from within these functions; they may call any
 * of these, frame_stream_free included. */
struct frame_stream *frame_stream_new(struct loop *loop,
	const struct frame_stream_options *options, struct err *err);
/* A writer waits up to linger_ms until what is left is written. */
void frame_stream_free(struct frame_stream *stream, int linger_ms);

/* ERR_TEMP: the backlog is full, nothing was taken. ERR_IO: the stream has ended. */
int frame_stream_send(struct frame_stream *stream, const void *frames, size_t length,
	struct err *err);
size_t frame_stream_backlog(const struct frame_stream *stream);

/* Stops reading and delivering, in the middle of a chunk too, and resumes. */
void frame_stream_pause(struct frame_stream *stream, bool paused);

#endif
