/* JSON as slices. What a whole frame makes of it is tested by fuzz_frame and e2e/frame.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "json.h"
#include "json_read.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void assert_str(struct str got, const char *expected)
{
	assert_int_equal(got.n, strlen(expected));
	assert_memory_equal(got.s, expected, got.n);
}

static void members_are_the_bytes_of_the_text(void **state)
{
	(void)state;
	static const char text[] =
		" {\"a\": 1.0e5 ,\"b\":[{\"]\":\"}\"}, \"\\\"\"] , \"c\" : "
		"\"x,\\\\\",\"d\":{},\"e\\u0041\":null} ";
	static const char *const expected[][2] = {
		{"\"a\"", "1.0e5"},
		{"\"b\"", "[{\"]\":\"}\"}, \"\\\"\"]"},
		{"\"c\"", "\"x,\\\\\""},
		{"\"d\"", "{}"},
		{"\"e\\u0041\"", "null"},
	};
	struct json_reader reader;
	struct str key, value;

	assert_true(json_is_valid(text, sizeof text - 1, 8));
	assert_false(json_read_begin(&reader, STR(text), '['));
	assert_true(json_read_begin(&reader, STR(text), '{'));
	for (size_t i = 0; i < COUNT(expected); i++) {
		assert_true(json_read_member(&reader, &key, &value));
		assert_str(key, expected[i][0]);
		assert_str(value, expected[i][1]);
	}
	assert_false(json_read_member(&reader, &key, &value));
	assert_true(json_read_is(value, "null"));
}

static void items_come_one_by_one(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int count;
		const char *last;
	} cases[] = {
		{"[]", 0, ""},
		{" [ ] ", 0, ""},
		{"[1]", 1, "1"},
		{"[ true ,\n[ ] ]", 2, "[ ]"},
		{"[\"]\"]", 1, "\"]\""},
		{"[{\"a\":[1,2]},-0.5]", 2, "-0.5"},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct json_reader reader;
		struct str value = STR("");
		int count = 0;
		assert_true(json_read_begin(&reader, str_of(cases[i].text), '['));
		while (json_read_item(&reader, &value))
			count++;
		assert_int_equal(count, cases[i].count);
		assert_str(value, cases[i].last);
	}
}

static void strings_lose_their_escapes(void **state)
{
	(void)state;
	static const struct {
		const char *json;
		struct str expected; /* absent: refused */
	} cases[] = {
		{"\"\"", {"", 0}},
		{"\"plain é\"", {"plain é", 8}},
		{"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", {"\"\\/\b\f\n\r\t", 8}},
		{"\"\\u0000\\u007F\\u00e9\\u20ac\"", {"\0\x7fé€", 7}},
		{"\"\\uD83D\\ude00!\"", {"😀!", 5}},
		{"\"\\ud83d\"", STR_NULL},
		{"\"\\ud83dx\"", STR_NULL},
		{"\"\\ud83d\\u0041\"", STR_NULL},
		{"\"\\ude00\"", STR_NULL},
		{"5", STR_NULL},
		{"null", STR_NULL},
	};
	struct buf out;
	buf_init(&out, 100);
	for (size_t i = 0; i < COUNT(cases); i++) {
		buf_clear(&out);
		int rc = json_read_string(&out, str_of(cases[i].json));
		assert_int_equal(rc, cases[i].expected.s ? 0 : -1);
		assert_int_equal(out.len, cases[i].expected.n);
		if (out.len > 0)
			assert_memory_equal(out.data, cases[i].expected.s, out.len);
	}
	buf_release(&out);

	buf_init(&out, 3);
	assert_int_equal(json_read_string(&out, STR("\"abcd\"")), -1);
	assert_int_equal(out.len, 0);
	buf_release(&out);
}

static void whole_numbers_keep_64_bits(void **state)
{
	(void)state;
	static const struct {
		const char *json;
		int rc;
		int64_t expected;
	} cases[] = {
		{"0", 0, 0},
		{"-1", 0, -1},
		{"9007199254740993", 0, 9007199254740993},
		{"9223372036854775807", 0, INT64_MAX},
		{"-9223372036854775808", 0, INT64_MIN},
		{"9223372036854775808", -1, 0},
		{"123456789012345678901234567890", -1, 0},
		{"1.0", -1, 0},
		{"1e3", -1, 0},
		{"\"1\"", -1, 0},
		{"null", -1, 0},
		{"", -1, 0},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		int64_t number = 0;
		assert_int_equal(json_read_int(str_of(cases[i].json), &number), cases[i].rc);
		assert_true(number == cases[i].expected);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(members_are_the_bytes_of_the_text),
		cmocka_unit_test(items_come_one_by_one),
		cmocka_unit_test(strings_lose_their_escapes),
		cmocka_unit_test(whole_numbers_keep_64_bits),
	};
	return cmocka_run_group_tests_name("json_read", tests, NULL, NULL);
}
