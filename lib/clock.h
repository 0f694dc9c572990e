/*
 * Local time. Every local wait uses the monotonic clock; every stored instant is the
 * database's, so the wall clock is read only to stamp log lines.
 */
#ifndef OUTBOX_CLOCK_H
#define OUTBOX_CLOCK_H

#include <stddef.h>
#include <stdint.h>

int64_t clock_us(void); /* CLOCK_MONOTONIC, microseconds */
int64_t clock_ms(void); /* CLOCK_MONOTONIC, milliseconds */

/* Microseconds since 1970 UTC -> "2026-11-29T15:59:56.123456Z"; needs 28 bytes. */
void clock_format_utc(int64_t unix_us, char *text, size_t size);
int64_t clock_wall_us(void); /* CLOCK_REALTIME, for log lines only */

/* Microseconds between PostgreSQL's epoch (2000-01-01) and Unix's. */
#define CLOCK_PG_EPOCH_US INT64_C(946684800000000)

/* A uniformly random number in [0, bound), from getrandom; bound > 0. */
uint64_t random_below(uint64_t bound);

#endif
