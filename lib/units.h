/*
 * Durations and sizes as people write them.
 *
 * Duration: digits and a unit ms, s, m (min), h, d; "500ms", "30s", "5m", "7d", "1.5h"; "0" alone
 * needs no unit. Size: digits and nothing, K, KiB, M, MiB, G, GiB (powers of 1024) or B.
 * Negative, empty, overflowing and unit-less durations are refused with ERR_DATA.
 */
#ifndef OUTBOX_UNITS_H
#define OUTBOX_UNITS_H

#include <stdint.h>

#include "err.h"

int units_parse_duration_ms(const char *text, int64_t *duration_ms, struct err *err);
int units_parse_size(const char *text, int64_t *bytes, struct err *err);
int units_parse_integer(const char *text, int64_t min, int64_t max, int64_t *value,
	struct err *err);

#endif
