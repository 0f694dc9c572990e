#include "inifile.h"

#include <ctype.h>
#include <ini.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

#define SECTION_MAX_BYTES 48 /* inih cuts longer ones */
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

/* inih asks for lines and hands out names and values; lines are counted here. */
struct parse {
	const struct inifile_reader *reader;
	const char *file;
	struct str rest; /* of the text */
	int line;
	bool is_indented; /* that line */
	char section[SECTION_MAX_BYTES + 1];
	char *name; /* of the entry whose value may go on in the next line, or NULL */
	struct buf value;
	int entry_line;
	int failed_line; /* 0: none */
	struct err *err;
};

static int fail(struct parse *parse, int line)
{
	parse->failed_line = line;
	return err_prefix(parse->err, "%s:%d", parse->file, line);
}

/* Hands out the entry that has been gathered. */
static int finish_entry(struct parse *parse)
{
	const struct inifile_reader *reader = parse->reader;
	int result = 0;

	if (parse->name == NULL)
		return 0;
	if (reader->entry(reader->ctx, parse->section, parse->name, buf_cstr(&parse->value),
			parse->err) != 0)
		result = fail(parse, parse->entry_line);
	free(parse->name);
	parse->name = NULL;
	buf_clear(&parse->value);
	return result;
}

/* "[name]", and at most a comment behind it. */
static int begin_section(struct parse *parse, struct str line)
{
	const struct inifile_reader *reader = parse->reader;
	const char *end = memchr(line.s, ']', line.n);
	size_t length = end == NULL ? 0 : (size_t)(end - line.s) - 1;
	size_t behind = (size_t)(end == NULL ? 0 : end - line.s + 1);

	if (finish_entry(parse) != 0)
		return -1;
	while (behind < line.n && isspace((unsigned char)line.s[behind]))
		behind++;
	if (end == NULL ||
		(behind < line.n && line.s[behind] != ';' && line.s[behind] != '#'))
		err_set(parse->err, ERR_CONFIG, "not a [section]");
	else if (length > SECTION_MAX_BYTES)
		err_set(parse->err, ERR_CONFIG, "the name of the section has more than %d bytes",
			SECTION_MAX_BYTES);
	else {
		memcpy(parse->section, line.s + 1, length);
		parse->section[length] = '\0';
		if (reader->section(reader->ctx, parse->section, parse->err) == 0)
			return 0;
	}
	return fail(parse, parse->line);
}

static struct str take_line(struct parse *parse)
{
	const char *newline = memchr(parse->rest.s, '\n', parse->rest.n);
	struct str line = {parse->rest.s,
		newline == NULL ? parse->rest.n : (size_t)(newline - parse->rest.s)};
	size_t taken = line.n + (newline != NULL);

	parse->rest.s += taken;
	parse->rest.n -= taken;
	parse->line++;
	return line;
}

static int check_line(struct parse *parse, struct str line, size_t max_bytes)
{
	if (!text_is_storable(line.s, line.n))
		err_set(parse->err, ERR_CONFIG, "not UTF-8, or a NUL");
	else if (line.n > max_bytes)
		err_set(parse->err, ERR_CONFIG,
			"longer than %zu bytes; an indented line continues the one before",
			max_bytes);
	else
		return 0;
	return fail(parse, parse->line);
}

/* For inih, as fgets(3). */
static char *read_line(char *to, int size, void *stream)
{
	struct parse *parse = stream;

	if (parse->failed_line > 0 || parse->rest.n == 0)
		return NULL;
	struct str line = take_line(parse);
	if (check_line(parse, line, (size_t)size - 3) != 0)
		return NULL;
	parse->is_indented = line.n > 0 && isspace((unsigned char)line.s[0]);
	if (line.n > 0 && line.s[0] == '[' && begin_section(parse, line) != 0)
		return NULL;
	memcpy(to, line.s, line.n);
	to[line.n] = '\n';
	to[line.n + 1] = '\0';
	return to;
}

/* Versions of inih differ in whether they do it in lines that continue others. */
static size_t without_comment(const char *text)
{
	size_t length = 0;

	while (text[length] != '\0' &&
		(text[length] != ';' || length == 0 || !isspace((unsigned char)text[length - 1])))
		length++;
	while (length > 0 && isspace((unsigned char)text[length - 1]))
		length--;
	return length;
}

/* For inih: an entry, or one more line of the value of the last. */
static int on_entry(void *ctx, const char *section, const char *name, const char *value)
{
	struct parse *parse = ctx;

	(void)section; /* known in full */
	if (parse->failed_line > 0)
		return 0;
	if (parse->name != NULL && parse->is_indented) {
		buf_put_char(&parse->value, '\n');
		buf_put(&parse->value, value, without_comment(value));
		return 1;
	}
	if (finish_entry(parse) != 0)
		return 0;
	parse->name = mem_strdup(name);
	parse->entry_line = parse->line;
	buf_put_str(&parse->value, str_of(value));
	return 1;
}

int inifile_parse(struct str text, const char *file, const struct inifile_reader *reader,
	struct err *err)
{
	struct err unwanted = ERR_INIT;
	struct parse parse = {
		.reader = reader,
		.file = file,
		.rest = text,
		.err = err != NULL ? err : &unwanted,
	};
	size_t mark = sizeof(BYTE_ORDER_MARK) - 1;

	if (text.n >= mark && memcmp(text.s, BYTE_ORDER_MARK, mark) == 0)
		parse.rest = (struct str){text.s + mark, text.n - mark};
	buf_init(&parse.value, text.n + 1);
	int bad_line = ini_parse_stream(read_line, &parse, on_entry, &parse);
	if (parse.failed_line == 0)
		finish_entry(&parse);
	free(parse.name);
	buf_release(&parse.value);
	/* What inih itself does not understand, unless something before it was wrong. */
	if (bad_line > 0 && (parse.failed_line == 0 || bad_line < parse.failed_line))
		return err_set(err, ERR_CONFIG, "%s:%d: neither a [section] nor name = value",
			file, bad_line);
	return parse.failed_line > 0 ? -1 : 0;
}
