/* Captures: what is kept of a stream, what is counted, and that it is drained to its end. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "capture.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct keep_case {
	size_t head, tail;
	const char *input;
	const char *kept_head, *kept_tail;
	int64_t dropped;
} keep_cases[] = {
	{4, 3, "", "", "", 0},
	{4, 3, "abcd", "abcd", "", 0},
	{4, 3, "abcde", "abcd", "e", 0},
	{4, 3, "abcdefg", "abcd", "efg", 0},
	{4, 3, "abcdefgh", "abcd", "fgh", 1},
	{4, 3, "abcdefghijklmnopq", "abcd", "opq", 10},
	{4, 0, "abcdef", "abcd", "", 2},
	{0, 3, "abcdef", "", "def", 3},
	{0, 0, "ab", "", "", 2},
};

/* The same stream in pieces of every size keeps the same bytes. */
static void keeps_head_and_tail(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(keep_cases); i++) {
		const struct keep_case *c = &keep_cases[i];
		size_t length = strlen(c->input);
		for (size_t piece = 1; piece <= length + 1; piece++) {
			struct capture capture;
			struct buf tail;
			capture_init(&capture, c->head, c->tail);
			buf_init(&tail, 200);
			for (size_t at = 0; at < length; at += piece)
				capture_add(&capture, c->input + at,
					length - at < piece ? length - at : piece);
			capture_put_tail(&capture, &tail);
			assert_string_equal(buf_cstr(&capture.head), c->kept_head);
			assert_string_equal(buf_cstr(&tail), c->kept_tail);
			assert_int_equal(capture_dropped(&capture), c->dropped);
			assert_int_equal(capture.total, length);
			buf_release(&tail);
			capture_release(&capture);
			capture_release(&capture);
		}
	}
}

static void reads_until_it_would_block_and_to_the_end(void **state)
{
	(void)state;
	struct capture capture;
	char bytes[1000];
	int ends[2];

	memset(bytes, 'x', sizeof(bytes));
	assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
	capture_init(&capture, 10, 10);
	assert_int_equal(capture_read(&capture, ends[0], 1 << 20), 0);
	for (int i = 0; i < 50; i++)
		assert_int_equal(write(ends[1], bytes, sizeof(bytes)), sizeof(bytes));
	assert_int_equal(capture_read(&capture, ends[0], 100), 0);
	assert_int_equal(capture.total, 100);
	assert_int_equal(capture_read(&capture, ends[0], 1 << 20), 0);
	close(ends[1]);
	assert_int_equal(capture_read(&capture, ends[0], 1 << 20), 1);
	assert_int_equal(capture.total, 50000);
	assert_int_equal(capture_dropped(&capture), 49980);
	assert_int_equal(capture_read(&capture, -1, 10), 1);
	close(ends[0]);
	capture_release(&capture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_head_and_tail),
		cmocka_unit_test(reads_until_it_would_block_and_to_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
