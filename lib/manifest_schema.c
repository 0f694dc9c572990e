#include "manifest_schema.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "folder.h"
#include "json.h"
#include "json_read.h"
#include "text.h"

#define MAX_BYTES ((size_t)64 << 10)
#define MAX_DEPTH 64
#define EXPONENT_MAX_DIGITS 4 /* PostgreSQL's numeric ends soon after */

/* The length of the string that begins at `text`, with its quotes. */
static size_t string_length(struct str text)
{
	size_t length = 1;

	while (text.s[length] != '"')
		length += text.s[length] == '\\' ? 2 : 1;
	return length + 1;
}

static bool string_is_storable(struct str string)
{
	struct buf decoded;

	buf_init(&decoded, string.n);
	bool storable = json_read_string(&decoded, string) == 0 &&
		text_is_storable(decoded.data, decoded.len);
	buf_release(&decoded);
	return storable;
}

static bool exponent_is_storable(struct str text)
{
	size_t start = text.n > 0 && (text.s[0] == '+' || text.s[0] == '-');
	size_t end = start;

	while (end < text.n && isdigit((unsigned char)text.s[end]))
		end++;
	return end - start <= EXPONENT_MAX_DIGITS;
}

/* Whether valid JSON can be a jsonb: no NUL, no half of a surrogate pair, no number beyond
 * numeric. A hello with a schema that cannot would not be accepted at all. */
static bool json_is_storable(struct str json)
{
	for (size_t at = 0; at < json.n; at++) {
		struct str rest = {json.s + at, json.n - at};
		if (rest.s[0] == '"') {
			rest.n = string_length(rest);
			if (!string_is_storable(rest))
				return false;
			at += rest.n - 1;
		} else if (at > 0 && isdigit((unsigned char)json.s[at - 1]) &&
			(rest.s[0] == 'e' || rest.s[0] == 'E') &&
			!exponent_is_storable((struct str){rest.s + 1, rest.n - 1})) {
			return false;
		}
	}
	return true;
}

static int check_schema(struct str text, const char *name, struct err *err)
{
	struct json_reader members;

	if (!json_is_valid(text.s, text.n, MAX_DEPTH))
		return err_set(err, ERR_CONFIG, "\"%s\" is not JSON of at most %d levels", name,
			MAX_DEPTH);
	if (!json_read_begin(&members, text, '{'))
		return err_set(err, ERR_CONFIG, "\"%s\" is not a schema: it is not an object",
			name);
	if (!json_is_storable(text))
		return err_set(err, ERR_CONFIG,
			"\"%s\" has text or numbers that PostgreSQL cannot hold", name);
	return 0;
}

char *manifest_read_schema(const char *folder, const char *name, struct err *err)
{
	char *schema = NULL;
	struct buf text;

	buf_init(&text, MAX_BYTES);
	if (folder_read(folder, name, &text, err) == 0 &&
		check_schema((struct str){text.data, text.len}, name, err) == 0)
		schema = mem_strdup(buf_cstr(&text));
	buf_release(&text);
	return schema;
}
