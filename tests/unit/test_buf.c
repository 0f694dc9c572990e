#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "buf.h"
#include "forked.h"

static void views_compare(void **state)
{
	(void)state;
	assert_true(str_equal(STR("a"), str_of("a")));
	assert_false(str_equal(STR("a"), STR("b")));
	assert_false(str_equal(STR("a"), STR("ab")));
	assert_false(str_equal(STR(""), STR_NULL));
	assert_true(str_equal(STR_NULL, str_of(NULL)));
}

static void empty_buffer(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, 10);
	assert_null(buf.data);
	buf_clear(&buf);
	buf_consume(&buf, 0);
	assert_int_equal(buf_put(&buf, NULL, 0), 0);
	assert_string_equal(buf_cstr(&buf), "");
	assert_int_equal(buf.len, 0);
	buf_release(&buf);
	buf_release(&buf);
	assert_null(buf.data);
	assert_int_equal(buf_put_char(&buf, 'x'), 0); /* usable again, with its maximum */
	assert_int_equal(buf.max, 10);
	buf_release(&buf);
}

static void put_past_the_maximum_changes_nothing(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, 5);
	assert_int_equal(buf_put(&buf, "abc", 3), 0);
	assert_int_equal(buf_put(&buf, "def", 3), -1);
	assert_int_equal(buf_printf(&buf, "%d", 123), -1);
	assert_null(buf_reserve(&buf, 3));
	assert_null(buf_reserve(&buf, SIZE_MAX));
	assert_string_equal(buf_cstr(&buf), "abc");
	assert_int_equal(buf_printf(&buf, "%d", 12), 0);
	assert_int_equal(buf_put_char(&buf, 'x'), -1);
	assert_int_equal(buf_put(&buf, "", 0), 0);
	assert_string_equal(buf_cstr(&buf), "abc12"); /* the NUL is not counted */
	buf_release(&buf);

	buf_init(&buf, 0);
	assert_int_equal(buf_put_char(&buf, 'x'), -1);
	assert_string_equal(buf_cstr(&buf), "");
	buf_release(&buf);
}

static void reserve_and_fill(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, SIZE_MAX);
	char *place = buf_reserve(&buf, 3);
	memcpy(place, "xyz", 3);
	buf.len += 2;
	assert_string_equal(buf_cstr(&buf), "xy");
	assert_non_null(buf_reserve(&buf, 0));
	buf_release(&buf);
}

static void printf_grows(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, 4096);
	for (int i = 0; i < 100; i++)
		assert_int_equal(buf_printf(&buf, "%03d,", i), 0);
	assert_int_equal(buf.len, 400);
	assert_memory_equal(buf.data + 396, "099,", 4);
	assert_int_equal(buf_printf(&buf, "%s", ""), 0);
	assert_int_equal(buf.len, 400);
	buf_release(&buf);
}

static void integers_have_digits(void **state)
{
	static const int64_t numbers[] = {0, 7, -7, 10, 1000, INT64_MAX, INT64_MIN};
	struct buf buf;

	(void)state;
	buf_init(&buf, 20);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		char expected[24];
		snprintf(expected, sizeof(expected), "%" PRId64, numbers[i]);
		buf_clear(&buf);
		assert_int_equal(buf_put_int(&buf, numbers[i]), 0);
		assert_string_equal(buf_cstr(&buf), expected);
	}
	assert_int_equal(buf_put_int(&buf, 1), -1);
	assert_int_equal(buf.len, 20);
	buf_release(&buf);
}

static void consume_from_the_front(void **state)
{
	struct buf buf;

	(void)state;
	buf_init(&buf, 100);
	buf_put_str(&buf, STR("abcdef"));
	buf_consume(&buf, 2);
	assert_string_equal(buf_cstr(&buf), "cdef");
	buf_put_str(&buf, STR("gh"));
	assert_string_equal(buf_cstr(&buf), "cdefgh");
	buf_consume(&buf, 1000); /* more than there is: all */
	assert_int_equal(buf.len, 0);
	assert_int_equal(buf.start, 0);
	buf_put_str(&buf, STR("again"));
	assert_string_equal(buf_cstr(&buf), "again");
	buf_consume(&buf, 1);
	buf_release(&buf); /* frees the start of the allocation */
}

/* A queue that never empties must neither grow for ever nor mix its bytes. */
static void a_long_queue_stays_small(void **state)
{
	struct buf buf;
	unsigned in = 0, out = 0;

	(void)state;
	buf_init(&buf, 1000);
	for (int turn = 0; turn < 100000; turn++) {
		while (buf.len + 4 <= 1000 && in - out < 7u + (unsigned)turn % 200) {
			assert_int_equal(buf_put(&buf, &in, 4), 0);
			in++;
		}
		unsigned first;
		memcpy(&first, buf.data, 4);
		assert_int_equal(first, out);
		buf_consume(&buf, 4);
		out++;
	}
	assert_true(buf.cap <= 4000);
	buf_release(&buf);
}

static void memory_helpers(void **state)
{
	(void)state;
	unsigned char *zeroed = mem_alloc(3, 2);
	for (int i = 0; i < 6; i++)
		assert_int_equal(zeroed[i], 0);
	zeroed = mem_realloc(zeroed, 0, 4); /* never NULL, never freed */
	assert_non_null(zeroed);
	free(zeroed);
	void *nothing = mem_alloc(0, 8);
	assert_non_null(nothing);
	free(nothing);
	char *copy = mem_strndup("abc", 2);
	assert_string_equal(copy, "ab");
	free(copy);
	copy = mem_strdup("abc");
	assert_string_equal(copy, "abc");
	free(copy);
}

/* The address sanitizer would abort where malloc returns NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void exhaust_memory(void *ctx)
{
	volatile size_t most = SIZE_MAX /
		2; /* not known to the compiler, which would object */

	(void)ctx;
	free(mem_realloc(NULL, most, 4)); /* overflows */
}

static void running_out_of_memory_exits(void **state)
{
	char said[4096];

	(void)state;
	assert_int_equal(run_forked(exhaust_memory, NULL, STDERR_FILENO, said, sizeof(said)),
		71);
	assert_non_null(strstr(said, "could not allocate memory: Cannot allocate memory\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(views_compare),
		cmocka_unit_test(empty_buffer),
		cmocka_unit_test(put_past_the_maximum_changes_nothing),
		cmocka_unit_test(reserve_and_fill),
		cmocka_unit_test(printf_grows),
		cmocka_unit_test(integers_have_digits),
		cmocka_unit_test(consume_from_the_front),
		cmocka_unit_test(a_long_queue_stays_small),
		cmocka_unit_test(memory_helpers),
		cmocka_unit_test(running_out_of_memory_exits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
