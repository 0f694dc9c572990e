#include "lines.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void lines_init(struct lines *lines, size_t max_line)
{
	*lines = (struct lines){.max_line = max_line};
	buf_init(&lines->bytes, max_line + 1 + LINES_CHUNK);
}

void lines_release(struct lines *lines)
{
	buf_release(&lines->bytes);
	lines_init(lines, lines->max_line);
}

static void drop_given(struct lines *lines)
{
	buf_consume(&lines->bytes, lines->given);
	lines->given = 0;
}

void lines_add(struct lines *lines, const char *bytes, size_t count)
{
	drop_given(lines);
	buf_put(&lines->bytes, bytes, count); /* fits: a line at most was left */
}

int lines_read(struct lines *lines, int fd)
{
	ssize_t got;

	drop_given(lines);
	char *place = buf_reserve(&lines->bytes, LINES_CHUNK);
	do
		got = read(fd, place, LINES_CHUNK);
	while (got < 0 && errno == EINTR);
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return 0;
	if (got <= 0)
		return -1;
	lines->bytes.len += (size_t)got;
	/* A pipe that gives less than was asked for is empty. */
	return (size_t)got == LINES_CHUNK ? 1 : 0;
}

/* The line, its newline excluded, is the first `length` bytes; `used` go with it. */
static struct str give(struct lines *lines, size_t length, size_t used)
{
	lines->given = used;
	lines->searched = 0;
	return (struct str){lines->bytes.data, length};
}

enum lines_found lines_next(struct lines *lines, struct str *line)
{
	for (;;) {
		drop_given(lines);
		struct buf *bytes = &lines->bytes;
		const char *newline = bytes->len == lines->searched
			? NULL
			: memchr(bytes->data + lines->searched, '\n', bytes->len - lines->searched);
		bool was_skipping = lines->skipping;
		size_t length = newline != NULL ? (size_t)(newline - bytes->data) : bytes->len;

		if (newline == NULL && !was_skipping && length <= lines->max_line) {
			lines->searched = length;
			return LINES_NONE;
		}
		lines->skipping = newline == NULL;
		*line = give(lines, length, length + (newline != NULL));
		if (was_skipping && newline == NULL)
			return LINES_NONE;
		if (was_skipping)
			continue;
		if (length <= lines->max_line)
			return LINES_LINE;
		line->n = lines->max_line;
		return LINES_TOO_LONG;
	}
}

struct str lines_rest(struct lines *lines)
{
	drop_given(lines);
	if (lines->skipping || lines->bytes.len == 0)
		return STR_NULL;
	return (struct str){lines->bytes.data, lines->bytes.len};
}
