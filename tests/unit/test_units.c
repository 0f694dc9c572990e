#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "units.h"

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))
#define REFUSED INT64_C(-1)

struct row {
	const char *text;
	int64_t value; /* REFUSED: an error */
};

static void check_rows(const struct row *rows, size_t count,
	int (*parse)(const char *text, int64_t *value, struct err *err))
{
	for (size_t i = 0; i < count; i++) {
		struct err err = ERR_INIT;
		int64_t value = 4711;
		int result = parse(rows[i].text, &value, &err);
		if (result != (rows[i].value == REFUSED ? -1 : 0))
			fail_msg("\"%s\" gave %d: %s", rows[i].text, result, err.text);
		if (rows[i].value == REFUSED) {
			assert_int_equal(err.class, ERR_DATA);
			assert_int_equal(value, 4711);
		} else {
			assert_int_equal(value, rows[i].value);
		}
	}
}

static void durations(void **state)
{
	static const struct row rows[] = {
		{"0", 0},
		{"0s", 0},
		{"500ms", 500},
		{"30s", 30000},
		{"5m", 300000},
		{"5min", 300000},
		{"2h", 7200000},
		{"7d", 604800000},
		{"1.5h", 5400000},
		{"0.25s", 250},
		{"1.000s", 1000},
		{"0.000000001d", REFUSED}, /* 0.0864 ms */
		{"1.5ms", REFUSED},
		{"0.0001s", REFUSED},
		{"106751991167d", INT64_C(106751991167) * 86400000},
		{"106751991168d", REFUSED},
		{"9223372036854775807ms", INT64_MAX},
		{"9223372036854775807.5s", REFUSED},
		{"9223372036854775808ms", REFUSED},
		{"", REFUSED},
		{"s", REFUSED},
		{".5s", REFUSED},
		{"5.s", REFUSED},
		{"1.0000000001s", REFUSED},
		{"30", REFUSED},
		{"00", REFUSED},
		{"-1s", REFUSED},
		{"+1s", REFUSED},
		{" 1s", REFUSED},
		{"1 s", REFUSED},
		{"1s ", REFUSED},
		{"1S", REFUSED},
		{"1h30m", REFUSED},
		{"1e3s", REFUSED},
		{"1w", REFUSED},
	};

	(void)state;
	check_rows(rows, ROWS(rows), units_parse_duration_ms);
}

static void sizes(void **state)
{
	static const struct row rows[] = {
		{"0", 0},
		{"512", 512},
		{"512B", 512},
		{"1K", 1024},
		{"256KiB", 262144},
		{"16MiB", 16777216},
		{"16M", 16777216},
		{"2GiB", INT64_C(2147483648)},
		{"2G", INT64_C(2147483648)},
		{"8589934591G", INT64_C(8589934591) << 30},
		{"8589934592G", REFUSED},
		{"9223372036854775807", INT64_MAX},
		{"9223372036854775808", REFUSED},
		{"", REFUSED},
		{"K", REFUSED},
		{"-1", REFUSED},
		{"1.5M", REFUSED},
		{"1k", REFUSED},
		{"1KB", REFUSED},
		{"1 K", REFUSED},
		{"0x10", REFUSED},
	};

	(void)state;
	check_rows(rows, ROWS(rows), units_parse_size);
}

static void integers(void **state)
{
	static const struct {
		const char *text;
		int64_t min, max;
		int64_t value; /* REFUSED is not used as a value here */
	} rows[] = {
		{"0", 0, 10, 0},
		{"10", 0, 10, 10},
		{"007", 0, 10, 7},
		{"-3", -5, 5, -3},
		{"-9223372036854775808", INT64_MIN, 0, INT64_MIN},
		{"9223372036854775807", 0, INT64_MAX, INT64_MAX},
		{"9223372036854775808", 0, INT64_MAX, REFUSED},
		{"-9223372036854775809", INT64_MIN, 0, REFUSED},
		{"11", 0, 10, REFUSED},
		{"-2", 0, 10, REFUSED},
		{"", 0, 10, REFUSED},
		{"-", -10, 10, REFUSED},
		{"+1", 0, 10, REFUSED},
		{" 1", 0, 10, REFUSED},
		{"1 ", 0, 10, REFUSED},
		{"1.0", 0, 10, REFUSED},
		{"1x", 0, 10, REFUSED},
		{"--1", -10, 10, REFUSED},
	};

	(void)state;
	for (size_t i = 0; i < ROWS(rows); i++) {
		struct err err = ERR_INIT;
		int64_t value = 4711;
		int result = units_parse_integer(rows[i].text, rows[i].min, rows[i].max, &value,
			&err);
		if (result != (rows[i].value == REFUSED ? -1 : 0))
			fail_msg("\"%s\" gave %d: %s", rows[i].text, result, err.text);
		assert_int_equal(value, rows[i].value == REFUSED ? 4711 : rows[i].value);
	}
}

static void messages_name_the_value(void **state)
{
	struct err err = ERR_INIT;
	int64_t value;

	(void)state;
	units_parse_duration_ms("30", &value, &err);
	assert_non_null(strstr(err.text, "\"30\""));
	units_parse_size("1KB", &value, &err);
	assert_non_null(strstr(err.text, "\"1KB\""));
	units_parse_integer("11", 0, 10, &value, &err);
	assert_string_equal(err.text, "11 is not between 0 and 10");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(durations),
		cmocka_unit_test(sizes),
		cmocka_unit_test(integers),
		cmocka_unit_test(messages_name_the_value),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
