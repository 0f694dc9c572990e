#include "frame_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "buf.h"
#include "clock.h"
#include "frame.h"

#define CHUNK_BYTES ((size_t)64 << 10) /* one read; a pipe holds as much */

struct frame_stream {
	struct loop *loop;
	struct frame_stream_options options;
	struct buf buf;           /* reader: not yet delivered; writer: not yet written */
	struct loop_timer resume; /* delivers what was buffered when a pause ends */
	int old_flags;            /* writer: of the descriptor */
	bool paused;
	bool ended;
	int holds;  /* callbacks of ours that are running */
	bool freed; /* while they were: the last one frees */
};

static void release(struct frame_stream *stream)
{
	if (--stream->holds > 0 || !stream->freed)
		return;
	buf_release(&stream->buf);
	free(stream);
}

static void end(struct frame_stream *stream, const struct err *err)
{
	stream->ended = true;
	loop_del_fd(stream->loop, stream->options.fd);
	if (stream->options.on_end)
		stream->options.on_end(stream->options.ctx, err);
}

/* ---- reading */

static bool is_delivering(const struct frame_stream *stream)
{
	return !stream->freed && !stream->paused && !stream->ended;
}

/* Delivers the whole frames in the buffer, up to a pause. */
static void deliver(struct frame_stream *stream)
{
	const struct frame_stream_options *options = &stream->options;
	struct err err = ERR_INIT;
	size_t length;
	int64_t version, type;

	while (is_delivering(stream) && stream->buf.len > 0) {
		int found = frame_next(stream->buf.data, stream->buf.len, &length, &version,
			&type, &err);
		if (found < 0) {
			err_prefix(&err, "the input is not a stream of frames");
			end(stream, &err);
		}
		if (found <= 0)
			return;
		options->on_frame(options->ctx, stream->buf.data, length, version, type);
		buf_consume(&stream->buf, length);
	}
}

static void end_of_input(struct frame_stream *stream)
{
	struct err err = ERR_INIT;

	if (stream->buf.len == 0) {
		end(stream, NULL);
		return;
	}
	err_set(&err, ERR_PROTOCOL, "the input ended within a frame");
	end(stream, &err);
}

static void read_chunk(struct frame_stream *stream)
{
	struct err err = ERR_INIT;

	/* Fits always: frame_next refuses what cannot be a frame of FRAME_MAX_BYTES. */
	char *space = buf_reserve(&stream->buf, CHUNK_BYTES);
	if (!space) {
		err_set(&err, ERR_PROTOCOL, "the input holds a frame that is too large");
		end(stream, &err);
		return;
	}
	ssize_t count = read(stream->options.fd, space, CHUNK_BYTES);
	if (count > 0) {
		stream->buf.len += (size_t)count;
		deliver(stream);
	} else if (count == 0) {
		end_of_input(stream);
	} else if (errno != EAGAIN && errno != EINTR) {
		err_set_errno(&err, ERR_IO, errno, "could not read the input");
		end(stream, &err);
	}
}

static void on_readable(void *ctx, int fd, uint32_t events)
{
	struct frame_stream *stream = ctx;
	(void)fd;
	(void)events;

	stream->holds++;
	read_chunk(stream);
	release(stream);
}

static void on_resume(void *ctx)
{
	struct frame_stream *stream = ctx;
	struct err err = ERR_INIT;

	stream->holds++;
	deliver(stream);
	if (is_delivering(stream) &&
		loop_add_fd(stream->loop, stream->options.fd, EPOLLIN, on_readable, stream,
			&err) < 0)
		end(stream, &err);
	release(stream);
}

void frame_stream_pause(struct frame_stream *stream, bool paused)
{
	if (stream->options.writes || stream->ended || stream->paused == paused)
		return;
	stream->paused = paused;
	/* Removed, not only without EPOLLIN: a hang-up would wake the loop all the time. */
	if (paused) {
		loop_del_fd(stream->loop, stream->options.fd);
		loop_stop_timer(stream->loop, &stream->resume);
	} else {
		loop_set_timer(stream->loop, &stream->resume, 0);
	}
}

/* ---- writing */

/* Writes what the descriptor takes. -1: it is broken. */
static int write_some(struct frame_stream *stream, struct err *err)
{
	while (stream->buf.len > 0) {
		ssize_t count = write(stream->options.fd, stream->buf.data, stream->buf.len);
		if (count >= 0)
			buf_consume(&stream->buf, (size_t)count);
		else if (errno == EAGAIN)
			return 0;
		else if (errno != EINTR)
			return err_set_errno(err, ERR_IO, errno, "could not write the output");
	}
	return 0;
}

static void on_writable(void *ctx, int fd, uint32_t events)
{
	struct frame_stream *stream = ctx;
	struct err err = ERR_INIT;
	int rc = 0;

	stream->holds++;
	if (events & EPOLLOUT)
		rc = write_some(stream, &err);
	else if (events & (EPOLLERR | EPOLLHUP))
		rc = err_set(&err, ERR_IO, "nobody reads the output any more");
	if (rc < 0)
		end(stream, &err);
	else if (stream->buf.len == 0)
		loop_mod_fd(stream->loop, fd, 0);
	release(stream);
}

int frame_stream_send(struct frame_stream *stream, const void *frames, size_t length,
	struct err *err)
{
	if (stream->ended)
		return err_set(err, ERR_IO, "nobody reads the output any more");
	if (buf_put(&stream->buf, frames, length) < 0)
		return err_set(err, ERR_TEMP, "the output is not read fast enough");
	loop_mod_fd(stream->loop, stream->options.fd, EPOLLOUT);
	return 0;
}

size_t frame_stream_backlog(const struct frame_stream *stream)
{
	return stream->options.writes && !stream->ended ? stream->buf.len : 0;
}

static void linger(struct frame_stream *stream, int linger_ms)
{
	struct pollfd item = {.fd = stream->options.fd, .events = POLLOUT};
	int64_t deadline_ms = clock_ms() + linger_ms;

	while (write_some(stream, NULL) == 0 && stream->buf.len > 0) {
		int64_t left_ms = deadline_ms - clock_ms();
		if (left_ms <= 0 || (poll(&item, 1, (int)left_ms) < 0 && errno != EINTR))
			return;
	}
}

/* ---- life */

static int start(struct frame_stream *stream, struct err *err)
{
	int fd = stream->options.fd;

	if (!stream->options.writes)
		return loop_add_fd(stream->loop, fd, EPOLLIN, on_readable, stream, err);

	stream->old_flags = fcntl(fd, F_GETFL);
	if (stream->old_flags < 0 || fcntl(fd, F_SETFL, stream->old_flags | O_NONBLOCK) < 0)
		return err_set_errno(err, ERR_IO, errno,
			"could not set the output to non-blocking");
	/* Without a wish of ours the loop still tells when the reader goes away. */
	if (loop_add_fd(stream->loop, fd, 0, on_writable, stream, err) < 0) {
		fcntl(fd, F_SETFL, stream->old_flags);
		return -1;
	}
	return 0;
}

struct frame_stream *frame_stream_new(struct loop *loop,
	const struct frame_stream_options *options, struct err *err)
{
	struct frame_stream *stream = mem_alloc(1, sizeof(*stream));

	stream->loop = loop;
	stream->options = *options;
	stream->resume.fn = on_resume;
	stream->resume.ctx = stream;
	buf_init(&stream->buf,
		options->writes ? FRAME_STREAM_MAX_BACKLOG : FRAME_MAX_BYTES + CHUNK_BYTES);
	if (start(stream, err) < 0) {
		buf_release(&stream->buf);
		free(stream);
		return NULL;
	}
	return stream;
}

void frame_stream_free(struct frame_stream *stream, int linger_ms)
{
	if (!stream || stream->freed)
		return;
	loop_del_fd(stream->loop, stream->options.fd);
	loop_stop_timer(stream->loop, &stream->resume);
	if (stream->options.writes) {
		if (!stream->ended)
			linger(stream, linger_ms);
		fcntl(stream->options.fd, F_SETFL, stream->old_flags);
	}
	stream->freed = true;
	stream->holds++;
	release(stream);
}
