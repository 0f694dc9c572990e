#include "json.h"

#include <string.h>

#include "text.h"

/* ---- writing */

static int put_escaped(struct buf *out, char c)
{
	switch (c) {
	case '"':
		return buf_put_str(out, STR("\\\""));
	case '\\':
		return buf_put_str(out, STR("\\\\"));
	case '\b':
		return buf_put_str(out, STR("\\b"));
	case '\f':
		return buf_put_str(out, STR("\\f"));
	case '\n':
		return buf_put_str(out, STR("\\n"));
	case '\r':
		return buf_put_str(out, STR("\\r"));
	case '\t':
		return buf_put_str(out, STR("\\t"));
	default:
		return buf_printf(out, "\\u%04x", (unsigned char)c);
	}
}

static bool needs_escape(char c)
{
	return (unsigned char)c < 0x20 || c == '"' || c == '\\';
}

/* So many bytes at the front stand in a string as they are. *valid is false when what follows
 * is no UTF-8, of which *length bytes are to be replaced. */
static size_t plain_run(const char *text, size_t count, size_t *length, bool *valid)
{
	size_t run = 0;

	*valid = true;
	while (run < count && !needs_escape(text[run])) {
		if ((unsigned char)text[run] < 0x80) {
			run++;
			continue;
		}
		*length = text_next(text + run, count - run, valid);
		if (!*valid)
			break;
		run += *length;
	}
	return run;
}

/* The characters between the quotes. */
static int put_characters(struct buf *out, struct str text)
{
	size_t done = 0;

	while (done < text.n) {
		bool valid;
		size_t length = 0;
		size_t run = plain_run(text.s + done, text.n - done, &length, &valid);
		if (buf_put(out, text.s + done, run) < 0)
			return -1;
		done += run;
		if (!valid) {
			if (buf_put_str(out, STR("\xef\xbf\xbd")) < 0)
				return -1;
			done += length;
		} else if (done < text.n) {
			if (put_escaped(out, text.s[done++]) < 0)
				return -1;
		}
	}
	return 0;
}

int json_put_string(struct buf *out, struct str text)
{
	size_t before = out->len;

	if (text.s == NULL)
		return buf_put_str(out, STR("null"));
	if (buf_put_char(out, '"') < 0 || put_characters(out, text) < 0 ||
		buf_put_char(out, '"') < 0) {
		out->len = before;
		return -1;
	}
	return 0;
}

void json_begin(struct json_object *object, struct buf *out)
{
	*object = (struct json_object){.out = out};
	object->failed = buf_put_char(out, '{') < 0;
}

int json_end(struct json_object *object)
{
	if (buf_put_char(object->out, '}') < 0)
		object->failed = true;
	return object->failed ? -1 : 0;
}

/* Writes all of a member but its value. */
static void put_key(struct json_object *object, const char *key)
{
	size_t length = strlen(key);
	char *start = buf_reserve(object->out, length + (object->any ? 4 : 3));
	char *at = start;

	if (start == NULL) {
		object->failed = true;
		return;
	}
	if (object->any)
		*at++ = ',';
	*at++ = '"';
	memcpy(at, key, length);
	at += length;
	*at++ = '"';
	*at++ = ':';
	object->out->len += (size_t)(at - start);
	object->any = true;
}

void json_str(struct json_object *object, const char *key, struct str value)
{
	put_key(object, key);
	if (json_put_string(object->out, value) < 0)
		object->failed = true;
}

void json_int(struct json_object *object, const char *key, int64_t value)
{
	put_key(object, key);
	if (buf_put_int(object->out, value) < 0)
		object->failed = true;
}

void json_id(struct json_object *object, const char *key, int64_t number)
{
	put_key(object, key);
	if (buf_put_char(object->out, '"') < 0 || buf_put_int(object->out, number) < 0 ||
		buf_put_char(object->out, '"') < 0)
		object->failed = true;
}

void json_bool(struct json_object *object, const char *key, bool value)
{
	json_raw(object, key, value ? STR("true") : STR("false"));
}

void json_raw(struct json_object *object, const char *key, struct str json)
{
	put_key(object, key);
	if (buf_put_str(object->out, json.s == NULL ? STR("null") : json) < 0)
		object->failed = true;
}

/* ---- checking: one pass over the bytes, one bit for each open array or object */

struct check {
	const char *at, *end;
	uint64_t is_object[JSON_MAX_DEPTH / 64]; /* bit d: the container at depth d + 1 */
	int depth, max_depth;
};

static bool check_push(struct check *check, bool is_object)
{
	if (check->depth >= check->max_depth)
		return false;
	uint64_t bit = UINT64_C(1) << (check->depth % 64);
	uint64_t *word = &check->is_object[check->depth / 64];
	*word = is_object ? *word | bit : *word & ~bit;
	check->depth++;
	return true;
}

static bool check_in_object(const struct check *check)
{
	int top = check->depth - 1;
	return check->is_object[top / 64] >> (top % 64) & 1;
}

static void check_space(struct check *check)
{
	while (check->at < check->end &&
		(*check->at == ' ' || *check->at == '\t' || *check->at == '\n' ||
			*check->at == '\r'))
		check->at++;
}

static bool check_char(struct check *check, char c)
{
	if (check->at == check->end || *check->at != c)
		return false;
	check->at++;
	return true;
}

static bool check_word(struct check *check, struct str word)
{
	if ((size_t)(check->end - check->at) < word.n ||
		memcmp(check->at, word.s, word.n) != 0)
		return false;
	check->at += word.n;
	return true;
}

static bool check_digits(struct check *check)
{
	const char *start = check->at;

	while (check->at < check->end && *check->at >= '0' && *check->at <= '9')
		check->at++;
	return check->at > start;
}

static bool check_number(struct check *check)
{
	check_char(check, '-');
	if (!check_char(check, '0') && !check_digits(check))
		return false;
	if (check_char(check, '.') && !check_digits(check))
		return false;
	if (check_char(check, 'e') || check_char(check, 'E')) {
		if (!check_char(check, '+'))
			check_char(check, '-');
		return check_digits(check);
	}
	return true;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* What follows a backslash. */
static bool check_escape(struct check *check)
{
	if (check->at == check->end)
		return false;
	char c = *check->at++;
	if (c != 'u')
		return c != '\0' && strchr("\"\\/bfnrt", c) != NULL;
	for (int i = 0; i < 4; i++)
		if (check->at == check->end || !is_hex(*check->at++))
			return false;
	return true;
}

static bool check_string(struct check *check)
{
	if (!check_char(check, '"'))
		return false;
	while (check->at < check->end) {
		unsigned char c = (unsigned char)*check->at;
		if (c < 0x20)
			return false;
		if (c >= 0x80) {
			bool valid;
			check->at += text_next(check->at, (size_t)(check->end - check->at), &valid);
			if (!valid)
				return false;
			continue;
		}
		check->at++;
		if (c == '"')
			return true;
		if (c == '\\' && !check_escape(check))
			return false;
	}
	return false;
}

static bool check_key(struct check *check)
{
	check_space(check);
	if (!check_string(check))
		return false;
	check_space(check);
	return check_char(check, ':');
}

/* A value, or the opening of one: then *open is set and its first value is next. */
static bool check_value(struct check *check, bool *open)
{
	*open = false;
	check_space(check);
	if (check->at == check->end)
		return false;
	switch (*check->at) {
	case '{':
		check->at++;
		if (!check_push(check, true))
			return false;
		check_space(check);
		if (check->at < check->end && *check->at == '}')
			return true;
		*open = true;
		return check_key(check);
	case '[':
		check->at++;
		if (!check_push(check, false))
			return false;
		check_space(check);
		*open = check->at == check->end || *check->at != ']';
		return true;
	case '"':
		return check_string(check);
	case 't':
		return check_word(check, STR("true"));
	case 'f':
		return check_word(check, STR("false"));
	case 'n':
		return check_word(check, STR("null"));
	default:
		return check_number(check);
	}
}

/* Closes containers up to a comma; *more says whether another value must follow. */
static bool check_after_value(struct check *check, bool *more)
{
	*more = false;
	for (;;) {
		check_space(check);
		if (check->depth == 0)
			return check->at == check->end;
		bool in_object = check_in_object(check);
		if (check_char(check, ',')) {
			*more = true;
			return !in_object || check_key(check);
		}
		if (!check_char(check, in_object ? '}' : ']'))
			return false;
		check->depth--;
	}
}

bool json_is_valid(const char *text, size_t count, int max_depth)
{
	struct check check = {.at = text, .end = text + count, .max_depth = max_depth};
	bool open, more = true;

	if (check.max_depth > JSON_MAX_DEPTH)
		check.max_depth = JSON_MAX_DEPTH;
	while (more) {
		do {
			if (!check_value(&check, &open))
				return false;
		} while (open);
		if (!check_after_value(&check, &more))
			return false;
	}
	return true;
}
