#include "clock.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define CLOCK_UTC_LENGTH (sizeof("0000-00-00T00:00:00.000000Z") - 1)

static int64_t read_us(clockid_t id)
{
	struct timespec now;

	clock_gettime(id, &now); /* cannot fail with these clocks */
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t clock_us(void)
{
	return read_us(CLOCK_MONOTONIC);
}

int64_t clock_ms(void)
{
	return clock_us() / 1000;
}

int64_t clock_wall_us(void)
{
	return read_us(CLOCK_REALTIME);
}

/* Backwards from the place of the last one, over zeros. */
static void put_digits(char *last, int number)
{
	for (; number > 0; number /= 10)
		*last-- = (char)('0' + number % 10);
}

void clock_format_utc(int64_t unix_us, char *text, size_t size)
{
	int64_t microseconds = unix_us % 1000000;
	time_t seconds = (time_t)(unix_us / 1000000);
	struct tm utc;

	if (microseconds < 0) { /* before 1970 division rounds the wrong way */
		microseconds += 1000000;
		seconds--;
	}
	gmtime_r(&seconds, &utc); /* 64 bits of microseconds stay within an int of years */
	int year = utc.tm_year + 1900;
	if (year < 0 || year > 9999 || size <= CLOCK_UTC_LENGTH) {
		snprintf(text, size, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", year, utc.tm_mon + 1,
			utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, (int)microseconds);
		return;
	}
	/* by hand: every job has two of them */
	memcpy(text, "0000-00-00T00:00:00.000000Z", CLOCK_UTC_LENGTH + 1);
	put_digits(text + 3, year);
	put_digits(text + 6, utc.tm_mon + 1);
	put_digits(text + 9, utc.tm_mday);
	put_digits(text + 12, utc.tm_hour);
	put_digits(text + 15, utc.tm_min);
	put_digits(text + 18, utc.tm_sec);
	put_digits(text + 25, (int)microseconds);
}

static uint64_t random_u64(void)
{
	uint64_t value;

	/* getrandom(2): once the kernel's pool is ready, up to 256 bytes come whole and without
	 * failing; before that a signal may interrupt the wait. */
	while (getrandom(&value, sizeof(value), 0) != sizeof(value))
		continue;
	return value;
}

uint64_t random_below(uint64_t bound)
{
	/* 2^64 mod bound values at the bottom are too many for the modulo to be uniform. */
	uint64_t excess = -bound % bound;
	uint64_t value;

	do {
		value = random_u64();
	} while (value < excess);
	return value % bound;
}
