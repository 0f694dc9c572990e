#include "cursor.h"

void cursor_init(struct cursor *cursor, const void *bytes, size_t count)
{
	cursor->at = bytes;
	cursor->end = cursor->at + count;
}

static uint64_t big_endian(const unsigned char *at, size_t width)
{
	uint64_t value = 0;
	for (size_t i = 0; i < width; i++)
		value = value << 8 | at[i];
	return value;
}

static int64_t sign_extended(uint64_t value, size_t width)
{
	unsigned shift = (unsigned)(64 - 8 * width);
	return (int64_t)(value << shift) >> shift;
}

/* Bytes between the first one and the body, by first byte 0xc4..0xdf. */
static size_t head_width(unsigned char first)
{
	static const unsigned char widths[] = {
		1, 2, 4,       /* c4 bin */
		1, 2, 4,       /* c7 ext: the type byte counts as body */
		0, 0,          /* ca float: all body */
		1, 2, 4, 8,    /* cc uint */
		1, 2, 4, 8,    /* d0 int */
		0, 0, 0, 0, 0, /* d4 fixext: all body */
		1, 2, 4,       /* d9 str */
		2, 4, 2, 4,    /* dc array, de map */
	};
	return widths[first - 0xc4];
}

/* Heads of which `value` is the number after the first byte, 0xc4..0xdf. */
static bool head_of_value(unsigned char first, uint64_t value, struct cursor_head *head)
{
	head->kind = CURSOR_OTHER;
	if (first <= 0xc6) { /* bin */
		head->length = (uint32_t)value;
	} else if (first <= 0xc9) { /* ext */
		if (value == UINT32_MAX)
			return false;
		head->length = (uint32_t)value + 1;
	} else if (first <= 0xcb) { /* float */
		head->length = 4u << (first - 0xca);
	} else if (first <= 0xcf) { /* uint */
		if (value <= INT64_MAX)
			head->kind = CURSOR_INT;
		head->number = (int64_t)value;
	} else if (first <= 0xd3) { /* int */
		head->kind = CURSOR_INT;
		head->number = sign_extended(value, head_width(first));
	} else if (first <= 0xd8) { /* fixext */
		head->length = (1u << (first - 0xd4)) + 1;
	} else if (first <= 0xdb) { /* str */
		head->kind = CURSOR_STR;
		head->length = (uint32_t)value;
	} else if (first <= 0xdd) { /* array */
		head->kind = CURSOR_ARRAY;
		head->children = value;
	} else { /* map */
		head->children = 2 * value;
	}
	return true;
}

enum cursor_status cursor_read_wide(struct cursor *cursor, struct cursor_head *head)
{
	unsigned char first = *cursor->at;
	if (first == 0xc1) /* never used in msgpack */
		return CURSOR_BAD;
	size_t width = head_width(first);
	if (cursor_left(cursor) < 1 + width)
		return CURSOR_MORE;
	if (!head_of_value(first, big_endian(cursor->at + 1, width), head))
		return CURSOR_BAD;
	cursor->at += 1 + width;
	return CURSOR_OK;
}

/*
 * open[d] counts the elements still to come in the container at depth d. Each takes a byte
 * at least, so what they owe in all must fit into the rest of the budget: a count of 2^32-1
 * is refused when it is read and not when the bytes run out.
 */
enum cursor_status cursor_skip(struct cursor *cursor, uint64_t elements, int depth,
	size_t budget)
{
	uint64_t open[CURSOR_MAX_DEPTH + 1];
	const unsigned char *start = cursor->at;
	uint64_t owed = elements;
	int base = depth;

	open[depth] = elements;
	for (;;) {
		while (depth > base && open[depth] == 0)
			depth--;
		if (open[depth] == 0)
			return CURSOR_OK;
		struct cursor_head head;
		enum cursor_status status = cursor_read(cursor, &head);
		if (status != CURSOR_OK)
			return status;
		open[depth]--;
		owed += head.children - 1;
		size_t used = (size_t)(cursor->at - start);
		if (used > budget || head.length > budget - used ||
			owed > budget - used - head.length)
			return CURSOR_BAD;
		struct str body;
		if (cursor_take(cursor, head.length, &body) != CURSOR_OK)
			return CURSOR_MORE;
		if (head.children > 0) {
			if (depth == CURSOR_MAX_DEPTH)
				return CURSOR_BAD;
			open[++depth] = head.children;
		}
	}
}
