/*
 * A growable byte buffer that knows its maximum from birth.
 *
 * The bytes are data[0 .. len); data may be NULL while len is 0. A put that would pass
 * `max` changes nothing and returns -1. Running out of memory exits the process
 * (leases make that safe). _init cannot fail; _release is safe twice.
 */
#ifndef OUTBOX_BUF_H
#define OUTBOX_BUF_H

#include <stddef.h>
#include <stdint.h>

/* A view into somebody else's bytes; dies with them. s is NULL for "absent" (SQL null). */
struct str {
	const char *s;
	size_t n;
};

#define STR(literal) ((struct str){(literal), sizeof(literal) - 1})
#define STR_NULL ((struct str){NULL, 0})

struct str str_of(const char *zero_terminated); /* NULL gives STR_NULL */
int str_equal(struct str a, struct str b);      /* absent equals only absent */

struct buf {
	char *data;
	size_t len;
	size_t cap;
	size_t max;   /* bytes */
	size_t start; /* offset of data in the allocation; see buf_consume */
};

void buf_init(struct buf *buf, size_t max_bytes);
void buf_release(struct buf *buf);
void buf_clear(struct buf *buf); /* len = 0, keeps the memory */

int buf_put(struct buf *buf, const void *bytes, size_t count);
int buf_put_char(struct buf *buf, char c);
int buf_put_str(struct buf *buf, struct str text);
int buf_put_int(struct buf *buf, int64_t number); /* decimal digits */
int buf_printf(struct buf *buf, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Makes room for at least `count` more bytes and returns where they go, or NULL past max.
 * After writing there, add the number written to len. */
char *buf_reserve(struct buf *buf, size_t count);

/* Drops `count` bytes from the front in constant time (amortised). */
void buf_consume(struct buf *buf, size_t count);

/* Ends the bytes with a NUL that len does not count, and returns data ("" when empty). */
const char *buf_cstr(struct buf *buf);

/* malloc, realloc and strdup that exit (EX_OSERR, one line on stderr) instead of failing. */
void *mem_alloc(size_t count, size_t size); /* zeroed */
void *mem_realloc(void *old, size_t count, size_t size);
char *mem_strdup(const char *text);
char *mem_strndup(const char *text, size_t count);

#endif
