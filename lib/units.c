#include "units.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Reads digits at *text, moves behind them. Returns false when there are none or they do
 * not fit. */
static bool read_digits(const char **text, int64_t *value)
{
	const char *start = *text;

	*value = 0;
	for (; **text >= '0' && **text <= '9'; (*text)++)
		if (__builtin_mul_overflow(*value, 10, value) ||
			__builtin_add_overflow(*value, **text - '0', value))
			return false;
	return *text > start;
}

struct unit {
	const char *name;
	int64_t factor;
};

static const struct unit duration_units[] = {
	{"ms", 1},
	{"s", 1000},
	{"m", 60 * 1000},
	{"min", 60 * 1000},
	{"h", 60 * 60 * 1000},
	{"d", 24 * 60 * 60 * 1000},
	{NULL, 0},
};

static const struct unit size_units[] = {
	{"", 1},
	{"B", 1},
	{"K", INT64_C(1) << 10},
	{"KiB", INT64_C(1) << 10},
	{"M", INT64_C(1) << 20},
	{"MiB", INT64_C(1) << 20},
	{"G", INT64_C(1) << 30},
	{"GiB", INT64_C(1) << 30},
	{NULL, 0},
};

/* The factor of a unit, or 0. */
static int64_t unit_factor(const struct unit *units, const char *name)
{
	for (; units->name != NULL; units++)
		if (strcmp(units->name, name) == 0)
			return units->factor;
	return 0;
}

/* Reads what follows the point of "1.5h" as numerator / denominator, nine digits at most. */
static bool read_fraction(const char **text, int64_t *numerator, int64_t *denominator)
{
	const char *start = *text;

	if (!read_digits(text, numerator) || *text - start > 9)
		return false;
	*denominator = 1;
	for (const char *digit = start; digit < *text; digit++)
		*denominator *= 10;
	return true;
}

int units_parse_duration_ms(const char *text, int64_t *duration_ms, struct err *err)
{
	const char *rest = text;
	int64_t whole, numerator = 0, denominator = 1;
	bool well_formed = read_digits(&rest, &whole);

	if (well_formed && *rest == '.') {
		rest++;
		well_formed = read_fraction(&rest, &numerator, &denominator);
	}
	int64_t factor = strcmp(text, "0") == 0 ? 1 : unit_factor(duration_units, rest);
	if (!well_formed || factor == 0)
		return err_set(err, ERR_DATA,
			"\"%s\" is not a duration such as \"500ms\", \"30s\", \"5m\", \"1.5h\" or \"7d\"",
			text);
	if (numerator * factor % denominator != 0)
		return err_set(err, ERR_DATA, "duration \"%s\" is finer than a millisecond",
			text);

	int64_t total;
	if (__builtin_mul_overflow(whole, factor, &total) ||
		__builtin_add_overflow(total, numerator * factor / denominator, &total))
		return err_set(err, ERR_DATA, "duration \"%s\" is too long", text);
	*duration_ms = total;
	return 0;
}

int units_parse_size(const char *text, int64_t *bytes, struct err *err)
{
	const char *rest = text;
	int64_t count, total;
	bool well_formed = read_digits(&rest, &count);
	int64_t factor = unit_factor(size_units, rest);

	if (!well_formed || factor == 0)
		return err_set(err, ERR_DATA,
			"\"%s\" is not a size such as \"512\", \"64KiB\", \"16MiB\" or \"2G\"", text);
	if (__builtin_mul_overflow(count, factor, &total))
		return err_set(err, ERR_DATA, "size \"%s\" is too large", text);
	*bytes = total;
	return 0;
}

int units_parse_integer(const char *text, int64_t min, int64_t max, int64_t *value,
	struct err *err)
{
	const char *digits = text[0] == '-' ? text + 1 : text;
	size_t length = strspn(digits, "0123456789");

	if (length == 0 || digits[length] != '\0')
		return err_set(err, ERR_DATA, "\"%s\" is not an integer", text);
	errno = 0;
	long long number = strtoll(text, NULL, 10);
	if (errno == ERANGE || number < min || number > max)
		return err_set(err, ERR_DATA, "%s is not between %lld and %lld", text,
			(long long)min, (long long)max);
	*value = number;
	return 0;
}
