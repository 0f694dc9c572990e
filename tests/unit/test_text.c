#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "text.h"

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))
#define BAD "\xef\xbf\xbd" /* U+FFFD */

/* Sequences of the Unicode standard, section 3.9, and of table 3-7's edges. */
static const struct {
	struct str input;
	struct str stored;
} conversions[] = {
	{STR(""), STR("")}, {STR("plain"), STR("plain")}, {STR("a\0b"), STR("a" BAD "b")},
	{STR("\0"), STR(BAD)}, {STR("\x7f"), STR("\x7f")}, {STR("\xc2\x80"), STR("\xc2\x80")},
	{STR("\xdf\xbf"), STR("\xdf\xbf")}, {STR("\xe0\xa0\x80"), STR("\xe0\xa0\x80")},
	{STR("\xed\x9f\xbf"), STR("\xed\x9f\xbf")},
	{STR("\xee\x80\x80"), STR("\xee\x80\x80")},
	{STR("\xef\xbf\xbf"), STR("\xef\xbf\xbf")},
	{STR("\xf0\x90\x80\x80"), STR("\xf0\x90\x80\x80")},
	{STR("\xf4\x8f\xbf\xbf"), STR("\xf4\x8f\xbf\xbf")}, {STR("\x80"), STR(BAD)},
	{STR("\xff"), STR(BAD)}, {STR("\xc0\x80"), STR(BAD BAD)}, /* overlong NUL */
	{STR("\xc1\xbf"), STR(BAD BAD)},                          /* overlong */
	{STR("\xe0\x9f\xbf"), STR(BAD BAD BAD)},                  /* overlong */
	{STR("\xf0\x8f\xbf\xbf"), STR(BAD BAD BAD BAD)},          /* overlong */
	{STR("\xed\xa0\x80"), STR(BAD BAD BAD)},                  /* surrogate */
	{STR("\xf4\x90\x80\x80"), STR(BAD BAD BAD BAD)},          /* above U+10FFFF */
	{STR("\xf5\x80"), STR(BAD BAD)}, {STR("\xc3"), STR(BAD)}, /* cut short */
	{STR("\xe2\x82"), STR(BAD)},     /* cut short: one for both */
	{STR("\xf0\x9f\x98"), STR(BAD)}, /* cut short: one for all three */
	{STR("\xe2\x82"
		 "a"),
		STR(BAD "a")}, /* the next character survives */
	{STR("a\xf1\x80\x80\xe1\x80\xc2"
		 "b\x80"
		 "c\x80\xbf"
		 "d"),
		STR("a" BAD BAD BAD "b" BAD "c" BAD BAD "d")}, /* table 3-8 */
};

static void input_becomes_storable(void **state)
{
	(void)state;
	for (size_t i = 0; i < ROWS(conversions); i++) {
		struct str input = conversions[i].input, expected = conversions[i].stored;
		struct buf out;
		buf_init(&out, 1000);
		assert_int_equal(text_put_storable(&out, input.s, input.n, 1000), input.n);
		if (out.len != expected.n || memcmp(buf_cstr(&out), expected.s, expected.n) != 0)
			fail_msg("row %zu gave \"%s\"", i, buf_cstr(&out));
		assert_true(text_is_storable(buf_cstr(&out), out.len));
		assert_int_equal(text_is_storable(input.s, input.n), str_equal(input, expected));
		buf_release(&out);
	}
}

static void storing_stops_at_the_limit(void **state)
{
	static const struct {
		struct str input;
		size_t max, taken, put;
	} rows[] = {
		{STR("abc"), 2, 2, 2},
		{STR("abc"), 0, 0, 0},
		{STR("a\xc3\xa9"), 2, 1, 1},
		{STR("a\xc3\xa9"), 3, 3, 3},
		{STR("a\xff"), 3, 1, 1}, /* no room for the replacement */
		{STR("a\xff"), 4, 2, 4},
		{STR("\xff\xff\xff"), 8, 2, 6},
		{STR("\xf0\x9f\x98\x80x"), 3, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < ROWS(rows); i++)
		for (int limited_by_buf = 0; limited_by_buf < 2; limited_by_buf++) {
			struct buf out;
			buf_init(&out, limited_by_buf ? rows[i].max : 1000);
			size_t taken = text_put_storable(&out, rows[i].input.s, rows[i].input.n,
				limited_by_buf ? SIZE_MAX : rows[i].max);
			assert_int_equal(taken, rows[i].taken);
			assert_int_equal(out.len, rows[i].put);
			buf_release(&out);
		}
}

static void clipping_keeps_characters_whole(void **state)
{
	static const struct {
		struct str text;
		size_t max, clipped;
	} rows[] = {
		{STR("abc"), 5, 3},
		{STR("abc"), 3, 3},
		{STR("abc"), 2, 2},
		{STR("abc"), 0, 0},
		{STR("\xc3\xa9"), 1, 0},
		{STR("a\xc3\xa9z"), 2, 1},
		{STR("a\xc3\xa9z"), 3, 3},
		{STR("\xf0\x9f\x98\x80!"), 1, 0},
		{STR("\xf0\x9f\x98\x80!"), 3, 0},
		{STR("\xf0\x9f\x98\x80!"), 4, 4},
		{STR("\x80\x80\x80\x80\x80\x80\x80"), 6, 6}, /* not UTF-8: anywhere */
		{STR("a\x80\x80\x80"), 2, 2},
		{STR("\xc3\xa9\x80\x80"), 3, 3},
		{STR("\x80\x80"), 1, 1},
	};

	(void)state;
	for (size_t i = 0; i < ROWS(rows); i++)
		assert_int_equal(text_clip(rows[i].text.s, rows[i].text.n, rows[i].max),
			rows[i].clipped);
}

static void kinds(void **state)
{
	char longest[101];
	static const struct {
		struct str name;
		bool valid;
	} rows[] = {
		{STR("email.welcome"), true},
		{STR("a"), true},
		{STR("0"), true},
		{STR("a.b_c-d9"), true},
		{STR("a.."), true},
		{STR(""), false},
		{STR(".a"), false},
		{STR("-a"), false},
		{STR("_a"), false},
		{STR("Email"), false},
		{STR("a b"), false},
		{STR("a/b"), false},
		{STR("a\0b"), false},
		{STR("a\n"), false},
		{STR("\xc3\xa9"), false},
	};

	(void)state;
	for (size_t i = 0; i < ROWS(rows); i++)
		assert_int_equal(text_is_kind(rows[i].name.s, rows[i].name.n), rows[i].valid);
	memset(longest, 'a', sizeof(longest));
	assert_true(text_is_kind(longest, 100));
	assert_false(text_is_kind(longest, 101));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(input_becomes_storable),
		cmocka_unit_test(storing_stops_at_the_limit),
		cmocka_unit_test(clipping_keeps_characters_whole),
		cmocka_unit_test(kinds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
