#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "clock.h"

static void monotonic_time_does_not_go_back(void **state)
{
	int64_t before = clock_us();

	(void)state;
	for (int i = 0; i < 1000; i++) {
		int64_t now = clock_us();
		assert_true(now >= before);
		before = now;
	}
	assert_true(clock_ms() >= before / 1000);
	assert_true(clock_wall_us() > CLOCK_PG_EPOCH_US);
}

static void instants_as_text(void **state)
{
	static const struct {
		int64_t unix_us;
		const char *text;
	} rows[] = {
		{0, "1970-01-01T00:00:00.000000Z"},
		{1, "1970-01-01T00:00:00.000001Z"},
		{-1, "1969-12-31T23:59:59.999999Z"},
		{-1000000, "1969-12-31T23:59:59.000000Z"},
		{CLOCK_PG_EPOCH_US, "2000-01-01T00:00:00.000000Z"},
		{INT64_C(1795967996123456), "2026-11-29T15:59:56.123456Z"},
		{INT64_C(951825600000000), "2000-02-29T12:00:00.000000Z"},
		{INT64_C(253402300799999999), "9999-12-31T23:59:59.999999Z"},
	};
	char text[28];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		clock_format_utc(rows[i].unix_us, text, sizeof(text));
		assert_string_equal(text, rows[i].text);
	}
	clock_format_utc(INT64_MAX, text, sizeof(text)); /* cut, not overrun */
	clock_format_utc(INT64_MIN, text, sizeof(text));
	assert_true(strlen(text) < sizeof(text));
}

static void random_numbers_stay_below_the_bound(void **state)
{
	static const uint64_t bounds[] = {1, 2, 3, 7, 1000, UINT64_C(1) << 63,
		(UINT64_C(1) << 63) + 1, UINT64_MAX};

	(void)state;
	for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
		for (int turn = 0; turn < 200; turn++)
			assert_true(random_below(bounds[i]) < bounds[i]);
}

static void random_numbers_are_spread(void **state)
{
	int seen[6] = {0};

	(void)state;
	for (int turn = 0; turn < 6000; turn++)
		seen[random_below(6)]++;
	for (int i = 0; i < 6; i++) /* 1000 expected; 13 standard deviations */
		assert_in_range(seen[i], 620, 1380);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(monotonic_time_does_not_go_back),
		cmocka_unit_test(instants_as_text),
		cmocka_unit_test(random_numbers_stay_below_the_bound),
		cmocka_unit_test(random_numbers_are_spread),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
