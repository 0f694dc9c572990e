#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "json.h"

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

static void strings_are_escaped(void **state)
{
	static const struct {
		struct str text;
		const char *json;
	} rows[] = {
		{STR_NULL, "null"},
		{STR(""), "\"\""},
		{STR("plain"), "\"plain\""},
		{STR("\"\\/"), "\"\\\"\\\\/\""},
		{STR("\b\f\n\r\t"), "\"\\b\\f\\n\\r\\t\""},
		{STR("\x01\x1f\x7f"), "\"\\u0001\\u001f\x7f\""},
		{STR("a\0b"), "\"a\\u0000b\""},
		{STR("\xc3\xa9\xf0\x9f\x98\x80"), "\"\xc3\xa9\xf0\x9f\x98\x80\""},
		{STR("a\xff"
			 "b\xe2\x82"),
			"\"a\xef\xbf\xbd"
			"b\xef\xbf\xbd\""},
		{STR("\xff\"\xff"), "\"\xef\xbf\xbd\\\"\xef\xbf\xbd\""},
	};

	(void)state;
	for (size_t i = 0; i < ROWS(rows); i++) {
		struct buf out;
		buf_init(&out, 100);
		assert_int_equal(json_put_string(&out, rows[i].text), 0);
		assert_string_equal(buf_cstr(&out), rows[i].json);
		assert_true(json_is_valid(out.data, out.len, 0));

		struct buf small; /* every smaller buffer refuses, and stays as it was */
		for (size_t max = 0; max < out.len; max++) {
			buf_init(&small, max);
			assert_int_equal(json_put_string(&small, rows[i].text), -1);
			assert_int_equal(small.len, 0);
			buf_release(&small);
		}
		buf_release(&out);
	}
}

static int put_sample(struct buf *out)
{
	struct json_object object;

	json_begin(&object, out);
	json_str(&object, "text", STR("a\"b"));
	json_str(&object, "absent", STR_NULL);
	json_int(&object, "least", INT64_MIN);
	json_id(&object, "id", INT64_MAX);
	json_bool(&object, "yes", true);
	json_bool(&object, "no", false);
	json_raw(&object, "raw", STR("{\"n\": 12345678901234567890}"));
	json_raw(&object, "none", STR_NULL);
	return json_end(&object);
}

static void objects_are_built(void **state)
{
	struct buf out;
	struct json_object empty;

	(void)state;
	buf_init(&out, 1000);
	json_begin(&empty, &out);
	assert_int_equal(json_end(&empty), 0);
	assert_string_equal(buf_cstr(&out), "{}");
	buf_clear(&out);
	assert_int_equal(put_sample(&out), 0);
	assert_string_equal(buf_cstr(&out),
		"{\"text\":\"a\\\"b\",\"absent\":null,\"least\":-9223372036854775808,"
		"\"id\":\"9223372036854775807\",\"yes\":true,"
		"\"no\":false,\"raw\":{\"n\": 12345678901234567890},\"none\":null}");

	for (size_t max = 0; max < out.len; max++) {
		struct buf small;
		buf_init(&small, max);
		assert_int_equal(put_sample(&small), -1);
		buf_release(&small);
	}
	buf_release(&out);
}

/* Those of github.com/nst/JSONTestSuite in spirit: what must pass and what must not. */
static const struct {
	struct str text;
	bool valid;
} documents[] = {
	{STR("null"), true},
	{STR("true"), true},
	{STR("false"), true},
	{STR(" \t\r\n1 \t\r\n"), true},
	{STR("0"), true},
	{STR("-0"), true},
	{STR("-0.0e-0"), true},
	{STR("1.5E+10"), true},
	{STR("12345678901234567890123"), true},
	{STR("\"\""), true},
	{STR("\"a\\u00e9\\n\\/\""), true},
	{STR("\"\\ud800\""), true}, /* the grammar has no rule about pairs */
	{STR("\"\xc3\xa9\""), true},
	{STR("\"\x7f\""), true},
	{STR("[]"), true},
	{STR("[ ]"), true},
	{STR("{}"), true},
	{STR("{ }"), true},
	{STR("[1,2, [3] ,{\"a\" : [ ] , \"a\":{}}]"), true},
	{STR("{\"\":0}"), true},
	{STR("[[],[],{}]"), true},
	{STR("[{\"a\":{\"b\":[1]}},2]"), true},
	{STR(""), false},
	{STR(" "), false},
	{STR("\xef\xbb\xbf{}"), false}, /* byte order mark */
	{STR("nul"), false},
	{STR("nulll"), false},
	{STR("True"), false},
	{STR("NaN"), false},
	{STR("Infinity"), false},
	{STR("01"), false},
	{STR("-"), false},
	{STR("-01"), false},
	{STR("+1"), false},
	{STR("1."), false},
	{STR(".5"), false},
	{STR("1e"), false},
	{STR("1e+"), false},
	{STR("1e+-1"), false},
	{STR("0x1"), false},
	{STR("1 2"), false},
	{STR("\""), false},
	{STR("\"a"), false},
	{STR("'a'"), false},
	{STR("\"\\\""), false},
	{STR("\"\\"), false},
	{STR("\"\\x\""), false},
	{STR("\"\\\0\""), false},
	{STR("\"\\u12\""), false},
	{STR("\"\\u12g4\""), false},
	{STR("\"\\u123"), false},
	{STR("\"a\nb\""), false},
	{STR("\"a\0b\""), false},
	{STR("\"\xff\""), false},
	{STR("\"\xed\xa0\x80\""), false},
	{STR("\"\xc3"), false},
	{STR("[1\0]"), false},
	{STR("1\0"), false},
	{STR("["), false},
	{STR("]"), false},
	{STR("[1"), false},
	{STR("[1,"), false},
	{STR("[1,]"), false},
	{STR("[,1]"), false},
	{STR("[1 2]"), false},
	{STR("[1}"), false},
	{STR("[]]"), false},
	{STR("[[]"), false},
	{STR("{"), false},
	{STR("{\"a\""), false},
	{STR("{\"a\":"), false},
	{STR("{\"a\":1"), false},
	{STR("{\"a\":1,"), false},
	{STR("{\"a\":1,}"), false},
	{STR("{,}"), false},
	{STR("{\"a\"}"), false},
	{STR("{\"a\" 1}"), false},
	{STR("{a:1}"), false},
	{STR("{1:1}"), false},
	{STR("{\"a\":1]"), false},
	{STR("{\"a\":1}}"), false},
	{STR("{\"a\":1 \"b\":2}"), false},
	{STR("[\"a\":1]"), false},
	{STR("// c\n1"), false},
	{STR("[1]\f"), false},
	{STR("\xc2\xa0"
		 "1"),
		false},
};

static void documents_are_judged(void **state)
{
	(void)state;
	for (size_t i = 0; i < ROWS(documents); i++) {
		struct str text = documents[i].text;
		/* A copy of just that size, so that the address sanitizer sees any overrun. */
		char *copy = malloc(text.n > 0 ? text.n : 1);
		assert_non_null(copy);
		memcpy(copy, text.s, text.n);
		if (json_is_valid(copy, text.n, 100) != documents[i].valid)
			fail_msg("wrong about \"%s\"", text.s);
		free(copy);
	}
}

/* "[[…]]", or objects within objects. */
static void put_nested(struct buf *out, int depth, bool objects)
{
	buf_clear(out);
	for (int i = 0; i < depth; i++)
		buf_put_str(out, objects ? STR("{\"a\":") : STR("["));
	if (objects)
		buf_put_str(out, STR("1"));
	for (int i = 0; i < depth; i++)
		buf_put_char(out, objects ? '}' : ']');
}

static void depth_is_limited(void **state)
{
	static const int limits[] = {1, 2, 63, 64, 65, 500, JSON_MAX_DEPTH};
	struct buf out;

	(void)state;
	buf_init(&out, SIZE_MAX);
	for (size_t i = 0; i < ROWS(limits); i++)
		for (int objects = 0; objects < 2; objects++) {
			put_nested(&out, limits[i], objects);
			assert_true(json_is_valid(out.data, out.len, limits[i]));
			put_nested(&out, limits[i] + 1, objects);
			assert_false(json_is_valid(out.data, out.len, limits[i]));
			assert_int_equal(json_is_valid(out.data, out.len, limits[i] + 1),
				limits[i] < JSON_MAX_DEPTH);
		}
	assert_true(json_is_valid("1", 1, 0));
	assert_false(json_is_valid("[]", 2, 0));
	put_nested(&out, 1000000, false);
	assert_false(json_is_valid(out.data, out.len, 2000000));
	buf_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings_are_escaped),
		cmocka_unit_test(objects_are_built),
		cmocka_unit_test(documents_are_judged),
		cmocka_unit_test(depth_is_limited),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
