#include "text.h"

#include <string.h>

#define REPLACEMENT STR("\xef\xbf\xbd") /* U+FFFD */

/* The bytes that may follow a lead byte: Unicode 15, table 3-7. */
struct lead {
	size_t length; /* of the whole character; 0: not a lead byte */
	unsigned char second_min, second_max;
};

static struct lead lead_of(unsigned char byte)
{
	if (byte < 0x80)
		return (struct lead){1, 0, 0};
	if (byte < 0xc2)
		return (struct lead){0, 0, 0};
	if (byte < 0xe0)
		return (struct lead){2, 0x80, 0xbf};
	if (byte < 0xf0)
		return (struct lead){3, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
	if (byte < 0xf5)
		return (struct lead){4, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
	return (struct lead){0, 0, 0};
}

size_t text_next(const char *text, size_t count, bool *valid)
{
	const unsigned char *bytes = (const unsigned char *)text;
	struct lead lead = lead_of(bytes[0]);

	*valid = lead.length == 1;
	if (lead.length <= 1)
		return 1;
	if (count < 2 || bytes[1] < lead.second_min || bytes[1] > lead.second_max)
		return 1;
	for (size_t i = 2; i < lead.length; i++)
		if (i >= count || (bytes[i] & 0xc0) != 0x80)
			return i;
	*valid = true;
	return lead.length;
}

/* The number of bytes at the front, at most `limit` and whole characters, that can be stored. */
static size_t storable_run(const char *text, size_t count, size_t limit)
{
	size_t run = 0;

	while (run < count && text[run] != '\0') {
		bool valid;
		size_t length = text_next(text + run, count - run, &valid);
		if (!valid || length > limit - run)
			break;
		run += length;
	}
	return run;
}

size_t text_put_storable(struct buf *out, const char *text, size_t count,
	size_t max_bytes)
{
	size_t taken = 0;
	size_t room = out->max > out->len ? out->max - out->len : 0;

	if (room > max_bytes)
		room = max_bytes;
	while (taken < count) {
		size_t run = storable_run(text + taken, count - taken, room);
		buf_put(out, text + taken, run);
		taken += run;
		room -= run;
		if (taken == count)
			break;

		bool valid;
		size_t length = text_next(text + taken, count - taken, &valid);
		bool stopped_by_room = valid && text[taken] != '\0';
		if (stopped_by_room || room < REPLACEMENT.n)
			break;
		buf_put_str(out, REPLACEMENT);
		taken += length;
		room -= REPLACEMENT.n;
	}
	return taken;
}

bool text_is_storable(const char *text, size_t count)
{
	return storable_run(text, count, count) == count;
}

size_t text_clip(const char *text, size_t count, size_t max_bytes)
{
	if (count <= max_bytes)
		return count;
	for (size_t back = 0; back < 4 && back <= max_bytes; back++) {
		size_t at = max_bytes - back;
		size_t length = lead_of((unsigned char)text[at]).length;
		if (length > 0)
			return length > back ? at : max_bytes;
	}
	return max_bytes; /* not UTF-8: anywhere will do */
}

bool text_is_kind(const char *text, size_t count)
{
	if (count < 1 || count > 100)
		return false;
	for (size_t i = 0; i < count; i++) {
		char c = text[i];
		bool letter_or_digit = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
		bool mark = c == '.' || c == '_' || c == '-';
		if (!letter_or_digit && !(mark && i > 0))
			return false;
	}
	return true;
}
