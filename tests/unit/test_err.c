#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "err.h"

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

static void set_fills_and_returns_minus_one(void **state)
{
	struct err err = {.errnum = EIO, .sqlstate = "40001"};

	(void)state;
	assert_int_equal(err_set(&err, ERR_DATA, "field \"%s\" is %d", "a", 3), -1);
	assert_int_equal(err.class, ERR_DATA);
	assert_int_equal(err.errnum, 0);
	assert_string_equal(err.sqlstate, "");
	assert_string_equal(err.text, "field \"a\" is 3");
	assert_int_equal(err_set(NULL, ERR_DATA, "nobody listens"), -1);
	assert_int_equal(err_set_errno(NULL, ERR_DATA, EIO, "nobody listens"), -1);
	assert_int_equal(err_prefix(NULL, "nobody listens"), -1);
}

static void arguments_may_point_into_the_error(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	err_set(&err, ERR_IO, "inner");
	err_set(&err, ERR_IO, "outer: %s", err.text);
	assert_string_equal(err.text, "outer: inner");
	err_prefix(&err, "%s", err.text);
	assert_string_equal(err.text, "outer: inner: outer: inner");
}

static void errno_text_is_appended(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	err_set_errno(&err, ERR_NOINPUT, ENOENT, "could not open \"%s\"", "x");
	assert_string_equal(err.text, "could not open \"x\": No such file or directory");
	assert_int_equal(err.errnum, ENOENT);
	err_set_errno(&err, ERR_OS, 99999, "odd");
	assert_string_equal(err.text, "odd: unknown error 99999");
}

static void prefix_keeps_class_and_codes(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	err_set_errno(&err, ERR_OS, EMFILE, "could not open");
	memcpy(err.sqlstate, "53000", 6);
	err_prefix(&err, "kind \"%s\"", "k");
	assert_string_equal(err.text, "kind \"k\": could not open: Too many open files");
	assert_int_equal(err.class, ERR_OS);
	assert_int_equal(err.errnum, EMFILE);
	assert_string_equal(err.sqlstate, "53000");
}

static void long_texts_are_cut_between_characters(void **state)
{
	struct err err = ERR_INIT;
	char text[1200];

	(void)state;
	memset(text, 'a', sizeof(text));
	for (size_t i = 0; i + 2 < sizeof(text); i += 2)
		memcpy(text + i, "\xc3\xa9", 2); /* e with acute */
	text[sizeof(text) - 1] = '\0';

	err_set(&err, ERR_DATA, "%s", text);
	assert_int_equal(strlen(err.text), 510); /* 511 would split one */
	err_set(&err, ERR_DATA, "x%s", text);
	assert_int_equal(strlen(err.text), 511);
	err_set_errno(&err, ERR_OS, ENOENT, "%s", text);
	const char *reason = ": No such file or directory";
	assert_string_equal(err.text + strlen(err.text) - strlen(reason), reason);
	err_prefix(&err, "%s", text);
	assert_true(strlen(err.text) <= 511);
}

static void exit_codes_and_temporary_classes(void **state)
{
	static const struct {
		enum err_class class;
		int exit_code;
		bool temporary;
	} rows[] = {
		{ERR_NONE, 0, false},
		{ERR_USAGE, 64, false},
		{ERR_DATA, 65, false},
		{ERR_NOINPUT, 66, false},
		{ERR_UNAVAILABLE, 69, true},
		{ERR_SOFTWARE, 70, false},
		{ERR_OS, 71, true},
		{ERR_IO, 74, true},
		{ERR_TEMP, 75, true},
		{ERR_PROTOCOL, 76, false},
		{ERR_PERM, 77, false},
		{ERR_CONFIG, 78, false},
	};

	(void)state;
	for (size_t i = 0; i < ROWS(rows); i++) {
		struct err err = {.class = rows[i].class};
		assert_int_equal(err_exit_code(&err), rows[i].exit_code);
		assert_int_equal(err_is_temporary(&err), rows[i].temporary);
	}
}

static void sqlstates_have_classes(void **state)
{
	static const struct {
		const char *sqlstate;
		enum err_class class;
	} rows[] = {
		{"08006", ERR_UNAVAILABLE},
		{"57P01", ERR_UNAVAILABLE},
		{"57P02", ERR_UNAVAILABLE},
		{"57P03", ERR_UNAVAILABLE},
		{"57P04", ERR_SOFTWARE},
		{"57P05", ERR_UNAVAILABLE},
		{"57014", ERR_TEMP},
		{"25006", ERR_UNAVAILABLE},
		{"25P02", ERR_SOFTWARE},
		{"25P03", ERR_UNAVAILABLE},
		{"25P04", ERR_UNAVAILABLE},
		{"26000", ERR_UNAVAILABLE},
		{"42P05", ERR_UNAVAILABLE},
		{"40001", ERR_TEMP},
		{"40P01", ERR_TEMP},
		{"55P03", ERR_TEMP},
		{"53100", ERR_TEMP},
		{"58030", ERR_TEMP},
		{"42501", ERR_PERM},
		{"28P01", ERR_PERM},
		{"22P02", ERR_DATA},
		{"23505", ERR_DATA},
		{"3F000", ERR_CONFIG},
		{"42P01", ERR_CONFIG},
		{"42883", ERR_CONFIG},
		{"42601", ERR_SOFTWARE},
		{"XX000", ERR_SOFTWARE},
		{"", ERR_SOFTWARE},
	};

	(void)state;
	for (size_t i = 0; i < ROWS(rows); i++)
		assert_int_equal(err_class_of_sqlstate(rows[i].sqlstate), rows[i].class);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(set_fills_and_returns_minus_one),
		cmocka_unit_test(arguments_may_point_into_the_error),
		cmocka_unit_test(errno_text_is_appended),
		cmocka_unit_test(prefix_keeps_class_and_codes),
		cmocka_unit_test(long_texts_are_cut_between_characters),
		cmocka_unit_test(exit_codes_and_temporary_classes),
		cmocka_unit_test(sqlstates_have_classes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
