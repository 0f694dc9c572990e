/*
 * Durations that are collected first and asked for their quantiles afterwards.
 */
#ifndef OUTBOX_BENCH_SAMPLES_H
#define OUTBOX_BENCH_SAMPLES_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "buf.h"

struct samples {
	int64_t *ns;
	size_t count;
	size_t room;
};

/* CLOCK_MONOTONIC in nanoseconds: the same clock in every process of the machine. */
static inline int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void samples_add(struct samples *samples, int64_t ns)
{
	if (samples->count == samples->room) {
		samples->room = samples->room == 0 ? 1024 : 2 * samples->room;
		samples->ns = mem_realloc(samples->ns, samples->room, sizeof(*samples->ns));
	}
	samples->ns[samples->count++] = ns;
}

static inline int samples_compare(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* The smallest sample that at least this part (0 < part <= 1) of all does not exceed, in
 * milliseconds. Sort first. */
static inline double samples_quantile_ms(const struct samples *samples, double part)
{
	size_t rank = (size_t)ceil(part * (double)samples->count);

	return (double)samples->ns[rank > 0 ? rank - 1 : 0] / 1e6;
}

/* Prints "PREFIXp50 VALUE ms" and so on; nothing when there are no samples. */
static inline void samples_print(struct samples *samples, const char *prefix)
{
	if (samples->count == 0)
		return;
	qsort(samples->ns, samples->count, sizeof(*samples->ns), samples_compare);
	printf("%sp50 %.3f ms\n", prefix, samples_quantile_ms(samples, 0.5));
	printf("%sp95 %.3f ms\n", prefix, samples_quantile_ms(samples, 0.95));
	printf("%sp99 %.3f ms\n", prefix, samples_quantile_ms(samples, 0.99));
}

static inline void samples_release(struct samples *samples)
{
	free(samples->ns);
	*samples = (struct samples){0};
}

#endif
