#include "buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define BUF_FIRST_CAP 64 /* bytes */

struct str str_of(const char *zero_terminated)
{
	if (zero_terminated == NULL)
		return STR_NULL;
	return (struct str){zero_terminated, strlen(zero_terminated)};
}

int str_equal(struct str a, struct str b)
{
	if (a.s == NULL || b.s == NULL)
		return a.s == b.s;
	return a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
}

void buf_init(struct buf *buf, size_t max_bytes)
{
	*buf = (struct buf){.max = max_bytes};
}

void buf_release(struct buf *buf)
{
	if (buf->data != NULL)
		free(buf->data - buf->start);
	buf_init(buf, buf->max);
}

void buf_clear(struct buf *buf)
{
	buf_consume(buf, buf->len);
}

static void buf_move_to_front(struct buf *buf)
{
	if (buf->start == 0)
		return;
	char *front = buf->data - buf->start;
	memmove(front, buf->data, buf->len);
	buf->data = front;
	buf->start = 0;
}

/*
 * Afterwards `extra` bytes fit behind the present ones, whatever max says. Bytes are moved
 * over a gap at the front only if the gap is at least as long as they are, else the
 * allocation doubles as well, so that consuming stays cheap on average. An allocation
 * therefore never passes four times the bytes it has held.
 */
static void buf_make_room(struct buf *buf, size_t extra)
{
	if (buf->cap - buf->start - buf->len >= extra)
		return;
	bool gap_pays = buf->start >= buf->len;
	buf_move_to_front(buf);
	if (gap_pays && buf->cap - buf->len >= extra)
		return;

	size_t needed;
	if (__builtin_add_overflow(buf->len, extra, &needed))
		needed = SIZE_MAX; /* which mem_realloc refuses */
	size_t cap = buf->cap < BUF_FIRST_CAP ? BUF_FIRST_CAP : buf->cap;
	if (buf->cap > 0 && cap <= SIZE_MAX / 2)
		cap *= 2;
	if (cap < needed)
		cap = needed;
	buf->data = mem_realloc(buf->data, cap, 1);
	buf->cap = cap;
}

char *buf_reserve(struct buf *buf, size_t count)
{
	if (buf->len > buf->max || count > buf->max - buf->len)
		return NULL;
	buf_make_room(buf, count > 0 ? count : 1);
	return buf->data + buf->len;
}

int buf_put(struct buf *buf, const void *bytes, size_t count)
{
	char *place = buf_reserve(buf, count);
	if (place == NULL)
		return -1;
	if (count > 0)
		memcpy(place, bytes, count);
	buf->len += count;
	return 0;
}

int buf_put_char(struct buf *buf, char c)
{
	return buf_put(buf, &c, 1);
}

int buf_put_str(struct buf *buf, struct str text)
{
	return buf_put(buf, text.s, text.n);
}

int buf_put_int(struct buf *buf, int64_t number)
{
	char digits[20]; /* of INT64_MIN, with its sign */
	char *at = digits + sizeof(digits);
	uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;

	do
		*--at = (char)('0' + rest % 10);
	while ((rest /= 10) > 0);
	if (number < 0)
		*--at = '-';
	return buf_put(buf, at, (size_t)(digits + sizeof(digits) - at));
}

int buf_printf(struct buf *buf, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	int length = vsnprintf(NULL, 0, format, args);
	va_end(args);
	if (length < 0)
		return -1;

	if (buf_reserve(buf, (size_t)length) == NULL)
		return -1;
	buf_make_room(buf, (size_t)length + 1); /* vsnprintf ends with a NUL */
	va_start(args, format);
	vsnprintf(buf->data + buf->len, (size_t)length + 1, format, args);
	va_end(args);
	buf->len += (size_t)length;
	return 0;
}

void buf_consume(struct buf *buf, size_t count)
{
	if (count >= buf->len) {
		if (buf->data != NULL)
			buf->data -= buf->start;
		buf->start = 0;
		buf->len = 0;
		return;
	}
	buf->data += count;
	buf->start += count;
	buf->len -= count;
}

const char *buf_cstr(struct buf *buf)
{
	buf_make_room(buf, 1);
	buf->data[buf->len] = '\0';
	return buf->data;
}

static void *mem_check(void *memory)
{
	if (memory == NULL) {
		fprintf(stderr, "could not allocate memory: %s\n", strerror(ENOMEM));
		exit(EX_OSERR);
	}
	return memory;
}

void *mem_alloc(size_t count, size_t size)
{
	if (count == 0 || size == 0)
		count = size = 1;
	return mem_check(calloc(count, size));
}

void *mem_realloc(void *old, size_t count, size_t size)
{
	if (count == 0 || size == 0)
		count = size = 1;
	return mem_check(reallocarray(old, count, size));
}

char *mem_strdup(const char *text)
{
	return mem_check(strdup(text));
}

char *mem_strndup(const char *text, size_t count)
{
	return mem_check(strndup(text, count));
}
