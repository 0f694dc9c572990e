/*
 * A bounds-checked cursor over msgpack bytes that somebody else wrote.
 *
 * It reads one element head at a time, allocates nothing and never recurses. A declared
 * length or count is handed on as a number and is believed by nobody: text is taken with
 * cursor_take, which checks it, and cursor_skip weighs counts against a budget.
 * Format: https://github.com/msgpack/msgpack/blob/master/spec.md
 */
#ifndef OUTBOX_CURSOR_H
#define OUTBOX_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

#define CURSOR_MAX_DEPTH 8 /* containers in containers */

struct cursor {
	const unsigned char *at;
	const unsigned char *end;
};

enum cursor_kind {
	CURSOR_NIL,
	CURSOR_BOOL,
	CURSOR_INT,
	CURSOR_STR,
	CURSOR_ARRAY,
	CURSOR_OTHER, /* float, bin, ext, map, integers past int64: only to be skipped */
};

struct cursor_head {
	enum cursor_kind kind;
	int64_t number;    /* of a bool (0, 1) or an int */
	uint32_t length;   /* bytes of the body that follows the head */
	uint64_t children; /* elements that follow: of a map, keys and values */
};

enum cursor_status {
	CURSOR_BAD = -1, /* can never become msgpack within the limits */
	CURSOR_MORE = 0, /* the bytes end before the element does */
	CURSOR_OK = 1,
};

void cursor_init(struct cursor *cursor, const void *bytes, size_t count);

static inline size_t cursor_left(const struct cursor *cursor)
{
	return (size_t)(cursor->end - cursor->at);
}

/* A head that carries its value or length in the first byte; false: in the bytes after it. */
static inline bool cursor_head_of_byte(unsigned char first, struct cursor_head *head)
{
	if (first <= 0x7f) { /* positive fixint */
		head->kind = CURSOR_INT;
		head->number = first;
	} else if (first <= 0x8f) { /* fixmap */
		head->kind = CURSOR_OTHER;
		head->children = 2 * (uint64_t)(first & 0x0f);
	} else if (first <= 0x9f) { /* fixarray */
		head->kind = CURSOR_ARRAY;
		head->children = first & 0x0f;
	} else if (first <= 0xbf) { /* fixstr */
		head->kind = CURSOR_STR;
		head->length = first & 0x1f;
	} else if (first >= 0xe0) { /* negative fixint */
		head->kind = CURSOR_INT;
		head->number = first - 0x100;
	} else if (first == 0xc0) {
		head->kind = CURSOR_NIL;
	} else if (first == 0xc2 || first == 0xc3) {
		head->kind = CURSOR_BOOL;
		head->number = first & 1;
	} else {
		return false;
	}
	return true;
}

/* cursor_read for heads of several bytes; at least one byte is left. */
enum cursor_status cursor_read_wide(struct cursor *cursor, struct cursor_head *head);

/*
 * Reads a head and stands after it; in front of the element unless CURSOR_OK. Inline,
 * because most heads are one byte, and a call for each cost a third more.
 */
static inline enum cursor_status cursor_read(struct cursor *cursor,
	struct cursor_head *head)
{
	*head = (struct cursor_head){.kind = CURSOR_NIL};
	if (cursor->at == cursor->end)
		return CURSOR_MORE;
	if (!cursor_head_of_byte(*cursor->at, head))
		return cursor_read_wide(cursor, head);
	cursor->at++;
	return CURSOR_OK;
}

/* Takes the body of a head of `length` bytes. CURSOR_OK or CURSOR_MORE. */
static inline enum cursor_status cursor_take(struct cursor *cursor, uint32_t length,
	struct str *body)
{
	if (cursor_left(cursor) < length)
		return CURSOR_MORE;
	*body = (struct str){(const char *)cursor->at, length};
	cursor->at += length;
	return CURSOR_OK;
}

/*
 * Skips `elements` elements that lie in `depth` containers (0: in none). CURSOR_BAD when
 * they nest deeper than CURSOR_MAX_DEPTH or cannot fit into `budget` bytes. Where the
 * cursor stands is undefined unless CURSOR_OK.
 */
enum cursor_status cursor_skip(struct cursor *cursor, uint64_t elements, int depth,
	size_t budget);

#endif
