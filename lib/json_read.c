#include "json_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void skip_space(struct json_reader *reader)
{
	while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) && *reader->at)
		reader->at++;
}

static void skip_string(struct json_reader *reader)
{
	for (reader->at++; reader->at < reader->end && *reader->at != '"'; reader->at++) {
		if (*reader->at == '\\')
			reader->at++;
	}
	reader->at++;
}

/* Stands behind the value afterwards. Brackets within strings do not count, all others
 * match: the text is valid. */
static struct str take_value(struct json_reader *reader)
{
	const char *start = reader->at;
	size_t depth = 0;

	while (reader->at < reader->end) {
		char c = *reader->at;
		if (c == '"') {
			skip_string(reader);
			if (depth == 0)
				break;
			continue;
		}
		if (c == '{' || c == '[') {
			depth++;
		} else if (c == '}' || c == ']') {
			if (depth == 0)
				break; /* of the container that the value is in */
			depth--;
			if (depth == 0) {
				reader->at++;
				break;
			}
		} else if (depth == 0 && strchr(", \t\r\n", c)) {
			break;
		}
		reader->at++;
	}
	return (struct str){start, (size_t)(reader->at - start)};
}

bool json_read_begin(struct json_reader *reader, struct str json, char open)
{
	reader->at = json.s;
	reader->end = json.s + json.n;
	skip_space(reader);
	if (reader->at == reader->end || *reader->at != open)
		return false;
	reader->at++;
	return true;
}

/* Whether an element follows, past white space and the comma between two. */
static bool find_element(struct json_reader *reader)
{
	skip_space(reader);
	if (reader->at < reader->end && *reader->at == ',') {
		reader->at++;
		skip_space(reader);
	}
	return reader->at < reader->end && *reader->at != '}' && *reader->at != ']';
}

bool json_read_item(struct json_reader *reader, struct str *value)
{
	if (!find_element(reader))
		return false;
	*value = take_value(reader);
	return true;
}

bool json_read_member(struct json_reader *reader, struct str *key, struct str *value)
{
	if (!find_element(reader))
		return false;
	*key = take_value(reader);
	skip_space(reader);
	reader->at++; /* the colon */
	skip_space(reader);
	*value = take_value(reader);
	return true;
}

static int hex_digits(const char *at, const char *end, unsigned *code)
{
	*code = 0;
	if (end - at < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		char c = at[i];
		unsigned digit = (unsigned)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
		*code = *code << 4 | digit;
	}
	return 0;
}

static int put_utf8(struct buf *out, unsigned code)
{
	char bytes[4];
	size_t n = 0;

	if (code < 0x80) {
		bytes[n++] = (char)code;
	} else if (code < 0x800) {
		bytes[n++] = (char)(0xc0 | code >> 6);
	} else if (code < 0x10000) {
		bytes[n++] = (char)(0xe0 | code >> 12);
		bytes[n++] = (char)(0x80 | (code >> 6 & 0x3f));
	} else {
		bytes[n++] = (char)(0xf0 | code >> 18);
		bytes[n++] = (char)(0x80 | (code >> 12 & 0x3f));
		bytes[n++] = (char)(0x80 | (code >> 6 & 0x3f));
	}
	if (code >= 0x80)
		bytes[n++] = (char)(0x80 | (code & 0x3f));
	return buf_put(out, bytes, n);
}

/* The four digits after "\u", and the second escape of a surrogate pair. Returns where the
 * text goes on, or NULL. */
static const char *put_unicode(struct buf *out, const char *at, const char *end)
{
	unsigned code, low;

	if (hex_digits(at, end, &code) < 0)
		return NULL;
	at += 4;
	if (code >= 0xdc00 && code <= 0xdfff)
		return NULL;
	if (code >= 0xd800 && code <= 0xdbff) {
		if (end - at < 6 || at[0] != '\\' || at[1] != 'u' ||
			hex_digits(at + 2, end, &low) < 0 || low < 0xdc00 || low > 0xdfff)
			return NULL;
		at += 6;
		code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
	}
	return put_utf8(out, code) < 0 ? NULL : at;
}

static const char *put_escape(struct buf *out, const char *at, const char *end)
{
	static const char names[] = "bfnrt", bytes[] = "\b\f\n\r\t";

	if (at == end)
		return NULL;
	char c = *at++;
	if (c == 'u')
		return put_unicode(out, at, end);
	const char *name = strchr(names, c);
	return buf_put_char(out, name ? bytes[name - names] : c) < 0 ? NULL : at;
}

int json_read_string(struct buf *out, struct str value)
{
	if (value.n < 2 || value.s[0] != '"')
		return -1;
	const char *at = value.s + 1, *end = value.s + value.n - 1;
	size_t before = out->len;

	while (at && at < end) {
		const char *escape = memchr(at, '\\', (size_t)(end - at));
		size_t run = (size_t)((escape ? escape : end) - at);
		if (buf_put(out, at, run) < 0)
			at = NULL;
		else
			at = escape ? put_escape(out, escape + 1, end) : end;
	}
	if (!at)
		out->len = before;
	return at ? 0 : -1;
}

int json_read_int(struct str value, int64_t *number)
{
	char digits[24]; /* "-9223372036854775808" is the longest */
	char *end;

	if (value.n == 0 || value.n >= sizeof digits)
		return -1;
	if (value.s[0] != '-' && (value.s[0] < '0' || value.s[0] > '9'))
		return -1;
	memcpy(digits, value.s, value.n);
	digits[value.n] = '\0';
	errno = 0;
	long long parsed = strtoll(digits, &end, 10);
	if (errno || *end)
		return -1;
	*number = parsed;
	return 0;
}

bool json_read_is(struct str value, const char *word)
{
	return str_equal(value, str_of(word));
}
