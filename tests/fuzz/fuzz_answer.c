/*
 * Fuzz target: what a stream handler writes, split into lines and read as answers. The first
 * byte says in pieces of which size it comes.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -std=c11 -D_GNU_SOURCE -Ilib \
 *       tests/fuzz/fuzz_answer.c \
 *       lib/{answer,buf,err,json,json_read,lines,outcome,text,units}.c -lm -o fuzz_answer
 *   ./fuzz_answer -max_len=4096 tests/fuzz/corpus/answer
 *
 * tests/unit/test_fuzz_answer.c replays the corpus.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "json.h"
#include "lines.h"

#define MAX_LINE ((size_t)300)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int condition)
{
	if (!condition)
		abort();
}

/* In memory that ends where the line ends, for a sanitizer. */
static void check_answer(struct str line)
{
	struct answer answer;
	char *bytes = mem_alloc(line.n, 1);

	memcpy(bytes, line.s, line.n);
	int rc = answer_parse(&answer, (struct str){bytes, line.n}, NULL);
	expect(answer.id >= 0);
	if (rc == 0) {
		expect(json_is_valid(bytes, line.n, JSON_MAX_DEPTH));
		expect(answer.id > 0 || answer.wants_cancels);
		expect(answer.response.s == NULL ||
			json_is_valid(answer.response.s, answer.response.n, JSON_MAX_DEPTH));
	}
	answer_release(&answer);
	free(bytes);
}

/* The next line of the input, as lines_next should give it. */
static struct str expected_line(const char **at, const char *end, enum lines_found *found)
{
	const char *start = *at;
	const char *newline = memchr(start, '\n', (size_t)(end - start));
	size_t length = (size_t)((newline != NULL ? newline : end) - start);

	*found = length > MAX_LINE ? LINES_TOO_LONG
		: newline != NULL      ? LINES_LINE
							   : LINES_NONE;
	*at = newline != NULL ? newline + 1 : end;
	return (struct str){start, length > MAX_LINE ? MAX_LINE : length};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *bytes = (const char *)data + 1, *end = (const char *)data + size;
	const char *at = bytes;
	struct lines lines;
	struct str line;
	enum lines_found found, expected;

	if (size < 2)
		return 0;
	lines_init(&lines, MAX_LINE);
	for (const char *piece = bytes; piece < end; piece += data[0] + 1) {
		size_t left = (size_t)(end - piece), most = (size_t)data[0] + 1;
		lines_add(&lines, piece, left < most ? left : most);
		while ((found = lines_next(&lines, &line)) != LINES_NONE) {
			struct str want = expected_line(&at, end, &expected);
			expect(found == expected && str_equal(line, want));
			check_answer(line);
		}
	}
	struct str want = expected_line(&at, end, &expected), rest = lines_rest(&lines);
	expect(rest.s == NULL ? want.n == 0 || expected == LINES_TOO_LONG
						  : str_equal(rest, want));
	lines_release(&lines);
	return 0;
}
