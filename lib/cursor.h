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

/* Reads a head and stands after it; in front of the element unless CURSOR_OK. */
enum cursor_status cursor_read(struct cursor *cursor, struct cursor_head *head);

/* Takes the body of a head of `length` bytes. CURSOR_OK or CURSOR_MORE. */
enum cursor_status cursor_take(struct cursor *cursor, uint32_t length, struct str *body);

/*
 * Skips `elements` elements that lie in `depth` containers (0: in none). CURSOR_BAD when
 * they nest deeper than CURSOR_MAX_DEPTH or cannot fit into `budget` bytes. Where the
 * cursor stands is undefined unless CURSOR_OK.
 */
enum cursor_status cursor_skip(struct cursor *cursor, uint64_t elements, int depth,
	size_t budget);

#endif
