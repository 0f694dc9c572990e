#include "capture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES ((size_t)65536) /* what a pipe holds */

void capture_init(struct capture *capture, size_t head_bytes, size_t tail_bytes)
{
	*capture = (struct capture){.head_max = head_bytes, .tail_max = tail_bytes};
	buf_init(&capture->head, head_bytes);
}

void capture_release(struct capture *capture)
{
	buf_release(&capture->head);
	free(capture->tail);
	capture->tail = NULL;
	capture->tail_len = capture->tail_pos = 0;
}

/* The ring's next byte goes to tail_pos; once full, that is also where the oldest one is. */
static void tail_add(struct capture *capture, const char *bytes, size_t count)
{
	if (capture->tail_max == 0 || count == 0)
		return;
	if (capture->tail == NULL)
		capture->tail = mem_alloc(capture->tail_max, 1);
	if (count > capture->tail_max) {
		bytes += count - capture->tail_max;
		count = capture->tail_max;
	}
	size_t to_end = capture->tail_max - capture->tail_pos;
	size_t first = count < to_end ? count : to_end;
	memcpy(capture->tail + capture->tail_pos, bytes, first);
	memcpy(capture->tail, bytes + first, count - first);
	capture->tail_pos = (capture->tail_pos + count) % capture->tail_max;
	capture->tail_len += count;
	if (capture->tail_len > capture->tail_max)
		capture->tail_len = capture->tail_max;
}

void capture_add(struct capture *capture, const char *bytes, size_t count)
{
	size_t room = capture->head_max - capture->head.len;
	size_t to_head = count < room ? count : room;

	capture->total += (int64_t)count;
	buf_put(&capture->head, bytes, to_head); /* fits: room is what is left of its max */
	tail_add(capture, bytes + to_head, count - to_head);
}

int64_t capture_dropped(const struct capture *capture)
{
	return capture->total - (int64_t)(capture->head.len + capture->tail_len);
}

void capture_put_tail(const struct capture *capture, struct buf *out)
{
	size_t oldest = capture->tail_len < capture->tail_max ? 0 : capture->tail_pos;

	buf_put(out, capture->tail + oldest, capture->tail_len - oldest);
	buf_put(out, capture->tail, oldest);
}

int capture_read(struct capture *capture, int fd, size_t budget)
{
	char bytes[READ_BYTES];

	while (budget > 0) {
		ssize_t got = read(fd, bytes, budget < READ_BYTES ? budget : READ_BYTES);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return 0;
		if (got <= 0)
			return 1;
		capture_add(capture, bytes, (size_t)got);
		budget -= (size_t)got;
	}
	return 0;
}
