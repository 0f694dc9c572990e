/* Lines: the same ones in whatever pieces they come, and bounded memory. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lines.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MAX_LINE 5

static const struct split_case {
	const char *input;
	const char *lines; /* each followed by "|"; "!" stands before one that was too long */
	const char *rest;
} split_cases[] = {
	{"", "", ""},
	{"\n", "|", ""},
	{"a\n", "a|", ""},
	{"a", "", "a"},
	{"a\nbc\n\nd", "a|bc||", "d"},
	{"12345\n", "12345|", ""},
	{"123456\nab\n", "!12345|ab|", ""},
	{"1234567890123\n\nx", "!12345||", "x"},
	{"1234567890123", "!12345|", ""},
	{"a\n123456789\n1234567\nb\n", "a|!12345|!12345|b|", ""},
	{"a\r\n", "a\r|", ""},
};

/* Appends what has been found so far. */
static void take(struct lines *lines, struct buf *found)
{
	enum lines_found what;
	struct str line;

	while ((what = lines_next(lines, &line)) != LINES_NONE) {
		if (what == LINES_TOO_LONG)
			buf_put_char(found, '!');
		buf_put_str(found, line);
		buf_put_char(found, '|');
	}
}

static void pieces_do_not_matter(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(split_cases); i++) {
		const struct split_case *c = &split_cases[i];
		size_t length = strlen(c->input);
		for (size_t piece = 1; piece <= length + 1; piece++) {
			struct lines lines;
			struct buf found, rest;
			lines_init(&lines, MAX_LINE);
			buf_init(&found, 100);
			buf_init(&rest, 100);
			for (size_t at = 0; at < length; at += piece) {
				lines_add(&lines, c->input + at,
					length - at < piece ? length - at : piece);
				take(&lines, &found);
			}
			buf_put_str(&rest, lines_rest(&lines));
			assert_string_equal(buf_cstr(&found), c->lines);
			assert_string_equal(buf_cstr(&rest), c->rest);
			buf_release(&found);
			buf_release(&rest);
			lines_release(&lines);
			lines_release(&lines);
		}
	}
}

static void a_descriptor_is_read_until_it_would_block_and_to_its_end(void **state)
{
	static char chunk[LINES_CHUNK];
	struct lines lines;
	struct str line;
	int ends[2];

	(void)state;
	memset(chunk, 'x', sizeof(chunk));
	chunk[10] = chunk[sizeof(chunk) - 1] = '\n';
	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	lines_init(&lines, 2 * LINES_CHUNK);
	assert_int_equal(lines_read(&lines, ends[0]), 0);
	assert_int_equal(lines_next(&lines, &line), LINES_NONE);
	assert_int_equal(write(ends[1], chunk, sizeof(chunk)), sizeof(chunk));
	assert_int_equal(lines_read(&lines, ends[0]), 1);
	assert_int_equal(lines_next(&lines, &line), LINES_LINE);
	assert_int_equal(line.n, 10);
	assert_int_equal(lines_next(&lines, &line), LINES_LINE);
	assert_int_equal(line.n, LINES_CHUNK - 12);
	assert_int_equal(lines_next(&lines, &line), LINES_NONE);
	assert_int_equal(write(ends[1], "end", 3), 3);
	close(ends[1]);
	assert_int_equal(lines_read(&lines, ends[0]), 0);
	assert_int_equal(lines_next(&lines, &line), LINES_NONE);
	assert_int_equal(lines_read(&lines, ends[0]), -1);
	line = lines_rest(&lines);
	assert_int_equal(line.n, 3);
	assert_memory_equal(line.s, "end", 3);
	lines_release(&lines);
	close(ends[0]);
}

static void memory_is_bounded(void **state)
{
	static char chunk[LINES_CHUNK];
	struct lines lines;
	struct str line;
	int too_long = 0;

	(void)state;
	memset(chunk, 'x', sizeof(chunk));
	lines_init(&lines, 100000);
	for (int i = 0; i < 1000; i++) {
		enum lines_found found;
		lines_add(&lines, chunk, sizeof(chunk));
		while ((found = lines_next(&lines, &line)) != LINES_NONE) {
			assert_int_equal(found, LINES_TOO_LONG);
			assert_int_equal(line.n, 100000);
			too_long++;
		}
		assert_true(lines.bytes.cap <= 4 * (100001 + LINES_CHUNK));
	}
	assert_int_equal(too_long, 1);
	lines_release(&lines);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_do_not_matter),
		cmocka_unit_test(a_descriptor_is_read_until_it_would_block_and_to_its_end),
		cmocka_unit_test(memory_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
