#include "table.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "json.h"
#include "text.h"

#define CELL_MAX 60 /* characters */

/* From the server's catalog/pg_type.h, which clients do not have. */
enum {
	TYPE_BOOL = 16,
	TYPE_INT8 = 20,
	TYPE_INT2 = 21,
	TYPE_INT4 = 23,
	TYPE_JSON = 114,
	TYPE_FLOAT8 = 701,
	TYPE_TIMESTAMPTZ = 1184,
	TYPE_NUMERIC = 1700,
	TYPE_JSONB = 3802,
};

static struct str cell_of(const PGresult *result, int row, int column)
{
	if (PQgetisnull(result, row, column))
		return STR_NULL;
	return (struct str){PQgetvalue(result, row, column),
		(size_t)PQgetlength(result, row, column)};
}

static bool is_number(Oid type)
{
	return type == TYPE_INT8 || type == TYPE_INT4 || type == TYPE_INT2 ||
		type == TYPE_FLOAT8 || type == TYPE_NUMERIC;
}

static void flush_line(struct buf *line)
{
	buf_put_char(line, '\n');
	fwrite(line->data, 1, line->len, stdout);
	buf_clear(line);
}

/* ---- for people */

/* C0, DEL and, in UTF-8, C1. */
static bool is_control(const char *text, size_t length)
{
	unsigned char first = (unsigned char)text[0];

	if (length == 1)
		return first < 0x20 || first == 0x7f;
	return length == 2 && first == 0xc2 && (unsigned char)text[1] < 0xa0;
}

static size_t put_escaped(struct buf *out, const char *text, size_t length)
{
	size_t before = out->len;

	if (text[0] == '\n')
		buf_put_str(out, STR("\\n"));
	else if (text[0] == '\t')
		buf_put_str(out, STR("\\t"));
	else
		buf_printf(out, "\\x%02x", (unsigned char)text[length - 1]);
	return out->len - before;
}

/* Appends at most max_width characters, the last one an ellipsis when more would follow.
 * Returns the width. */
static size_t put_text(struct buf *out, struct str text, size_t max_width)
{
	size_t width = 0, last = out->len; /* where the character before the end starts */

	for (size_t at = 0; at < text.n;) {
		bool valid;
		size_t length = text_next(text.s + at, text.n - at, &valid);
		if (width >= max_width) {
			out->len = last;
			buf_put_str(out, STR("…"));
			return max_width;
		}
		last = out->len;
		if (!valid) {
			buf_put_char(out, '?');
			width++;
		} else if (is_control(text.s + at, length)) {
			width += put_escaped(out, text.s + at, length);
		} else {
			buf_put(out, text.s + at, length);
			width++;
		}
		at += length;
	}
	return width;
}

/* "2026-11-29 16:52:17.128543+00" without the fraction. */
static size_t put_instant(struct buf *out, struct str value)
{
	const char *point = memchr(value.s, '.', value.n);
	size_t whole = point == NULL ? value.n : (size_t)(point - value.s);
	size_t zone = whole;

	while (
		zone < value.n && (value.s[zone] == '.' || isdigit((unsigned char)value.s[zone])))
		zone++;
	buf_put(out, value.s, whole);
	buf_put(out, value.s + zone, value.n - zone);
	return whole + value.n - zone;
}

static size_t put_value(struct buf *out, struct str value, Oid type, size_t max_width)
{
	if (value.s == NULL)
		return 0;
	if (type == TYPE_TIMESTAMPTZ)
		return put_instant(out, value);
	if (type == TYPE_BOOL)
		value = value.s[0] == 't' ? STR("yes") : STR("no");
	return put_text(out, value, max_width);
}

static void put_spaces(struct buf *out, size_t count)
{
	for (; count > 0; count--)
		buf_put_char(out, ' ');
}

/* A value in a field of a table. */
static void put_field(struct buf *line, struct str value, Oid type, size_t width)
{
	struct buf text;

	buf_init(&text, SIZE_MAX);
	size_t own = put_value(&text, value, type, CELL_MAX);
	size_t missing = own < width ? width - own : 0;
	if (is_number(type))
		put_spaces(line, missing);
	buf_put(line, text.data, text.len);
	if (!is_number(type))
		put_spaces(line, missing);
	buf_release(&text);
}

static void end_row(struct buf *line)
{
	while (line->len > 0 && line->data[line->len - 1] == ' ')
		line->len--;
	flush_line(line);
}

/* Underlined on a terminal, unless its user wants none of that: https://no-color.org */
static void print_header(const PGresult *result, int columns, const size_t *widths)
{
	const char *no_color = getenv("NO_COLOR");
	bool underlined = isatty(STDOUT_FILENO) && (no_color == NULL || *no_color == '\0');
	struct buf line;

	buf_init(&line, SIZE_MAX);
	for (int column = 0; column < columns; column++) {
		struct str name = str_of(PQfname(result, column));
		size_t missing = widths[column] - name.n;
		bool right = is_number(PQftype(result, column));

		put_spaces(&line, (column > 0 ? 2 : 0) + (right ? missing : 0));
		if (underlined)
			buf_put_str(&line, STR("\033[4m"));
		buf_put_str(&line, name);
		if (underlined)
			buf_put_str(&line, STR("\033[24m"));
		put_spaces(&line, right ? 0 : missing);
	}
	end_row(&line);
	buf_release(&line);
}

static void measure(const PGresult *result, int columns, size_t *widths)
{
	struct buf scratch;

	buf_init(&scratch, SIZE_MAX);
	for (int column = 0; column < columns; column++) {
		widths[column] = strlen(PQfname(result, column));
		for (int row = 0; row < PQntuples(result); row++) {
			size_t width = put_value(&scratch, cell_of(result, row, column),
				PQftype(result, column), CELL_MAX);
			if (width > widths[column])
				widths[column] = width;
			buf_clear(&scratch);
		}
	}
	buf_release(&scratch);
}

static void print_rows(const PGresult *result, int columns)
{
	size_t *widths = mem_alloc((size_t)columns, sizeof(*widths));
	struct buf line;

	buf_init(&line, SIZE_MAX);
	measure(result, columns, widths);
	print_header(result, columns, widths);
	for (int row = 0; row < PQntuples(result); row++) {
		for (int column = 0; column < columns; column++) {
			put_spaces(&line, column > 0 ? 2 : 0);
			put_field(&line, cell_of(result, row, column), PQftype(result, column),
				widths[column]);
		}
		end_row(&line);
	}
	buf_release(&line);
	free(widths);
}

/* Values that are null are left out. */
static void print_records(const PGresult *result, int columns)
{
	size_t width = 0;
	struct buf line;

	buf_init(&line, SIZE_MAX);
	for (int column = 0; column < columns; column++)
		if (strlen(PQfname(result, column)) > width)
			width = strlen(PQfname(result, column));
	for (int row = 0; row < PQntuples(result); row++) {
		if (row > 0)
			flush_line(&line);
		for (int column = 0; column < columns; column++) {
			if (PQgetisnull(result, row, column))
				continue;
			const char *name = PQfname(result, column);
			buf_put_str(&line, str_of(name));
			put_spaces(&line, width + 2 - strlen(name));
			put_value(&line, cell_of(result, row, column), PQftype(result, column),
				SIZE_MAX);
			flush_line(&line);
		}
	}
	buf_release(&line);
}

/* name=value; values that are null are left out. */
static void print_lines(const PGresult *result, int columns)
{
	struct buf line;

	buf_init(&line, SIZE_MAX);
	for (int row = 0; row < PQntuples(result); row++) {
		for (int column = 0; column < columns; column++) {
			struct str value = cell_of(result, row, column);
			if (value.s == NULL)
				continue;
			Oid type = PQftype(result, column);
			bool quoted = memchr(value.s, ' ', value.n) != NULL;

			buf_printf(&line, "%s%s=%s", line.len > 0 ? " " : "", PQfname(result, column),
				quoted ? "\"" : "");
			put_value(&line, value, type, SIZE_MAX);
			buf_put_str(&line, quoted ? STR("\"") : STR(""));
		}
		flush_line(&line);
	}
	buf_release(&line);
}

/* ---- for programs */

static bool is_id(const char *name)
{
	size_t length = strlen(name);

	return strcmp(name, "id") == 0 ||
		(length > 3 && strcmp(name + length - 3, "_id") == 0);
}

/* "2026-11-29 16:52:17.128543+00" as RFC 3339 wants it; infinity stays as it is. */
static void json_instant(struct json_object *object, const char *name, struct str value)
{
	struct buf text;

	buf_init(&text, SIZE_MAX);
	buf_put_str(&text, value);
	if (text.len > 10 && text.data[10] == ' ') {
		const char *zone = text.data + text.len - 3; /* "+00", or the end of "+05:30" */

		text.data[10] = 'T';
		if (memcmp(zone, "+00", 3) == 0) {
			text.len -= 3;
			buf_put_char(&text, 'Z');
		} else if (*zone != ':') {
			buf_put_str(&text, STR(":00"));
		}
	}
	json_str(object, name, (struct str){text.data, text.len});
	buf_release(&text);
}

/* Line breaks can only stand between the tokens of a document. */
static void json_document(struct json_object *object, const char *name, struct str value)
{
	struct buf text;

	buf_init(&text, SIZE_MAX);
	buf_put_str(&text, value);
	for (size_t i = 0; i < text.len; i++)
		if (text.data[i] == '\n' || text.data[i] == '\r')
			text.data[i] = ' ';
	json_raw(object, name, (struct str){text.data, text.len});
	buf_release(&text);
}

/* NaN and the infinities are no JSON. */
static bool is_finite(struct str number)
{
	return number.s[number.n - 1] >= '0' && number.s[number.n - 1] <= '9';
}

static void json_column(struct json_object *object, const PGresult *result, int row,
	int column)
{
	const char *name = PQfname(result, column);
	struct str value = cell_of(result, row, column);
	Oid type = PQftype(result, column);

	if (value.s == NULL)
		json_str(object, name, STR_NULL);
	else if (is_number(type) && !is_id(name) && is_finite(value))
		json_raw(object, name, value);
	else if (type == TYPE_BOOL)
		json_bool(object, name, value.s[0] == 't');
	else if (type == TYPE_JSON || type == TYPE_JSONB)
		json_document(object, name, value);
	else if (type == TYPE_TIMESTAMPTZ)
		json_instant(object, name, value);
	else
		json_str(object, name, value);
}

static void print_json(const PGresult *result, int columns)
{
	struct buf line;

	buf_init(&line, SIZE_MAX);
	for (int row = 0; row < PQntuples(result); row++) {
		struct json_object object;
		json_begin(&object, &line);
		for (int column = 0; column < columns; column++)
			json_column(&object, result, row, column);
		json_end(&object);
		flush_line(&line);
	}
	buf_release(&line);
}

void table_print(const PGresult *result, enum table_form form, int columns)
{
	if (columns == 0)
		columns = PQnfields(result);
	switch (form) {
	case TABLE_ROWS:
		print_rows(result, columns);
		break;
	case TABLE_RECORD:
		print_records(result, columns);
		break;
	case TABLE_LINES:
		print_lines(result, columns);
		break;
	case TABLE_JSON:
		print_json(result, columns);
		break;
	}
}
