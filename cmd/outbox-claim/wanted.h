/*
 * What the claimer knows of each kind that its runners can run: whether looking for it may
 * find something.
 */
#ifndef CLAIM_WANTED_H
#define CLAIM_WANTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

#define WANTED_PRIORITIES 4

struct wanted_kind {
	char *name;
	bool may_be_due; /* look for it at the next chance */
	bool was_nudged; /* because somebody said so, and not because of the clock */
	uint64_t round;  /* rises with every reason to look */
	/* the latest due time claimed so far, by priority - 1; Unix microseconds, 0: none */
	int64_t claimed_to_us[WANTED_PRIORITIES];
};

struct wanted {
	struct wanted_kind *kinds;
	size_t count;
};

/* Index of the kind, or -1. */
long wanted_find(const struct wanted *wanted, struct str name);

/* Index of the kind, which is added as possibly due when it is new. */
size_t wanted_add(struct wanted *wanted, struct str name);

/* There is a reason to look for it. */
void wanted_mark(struct wanted_kind *kind);
void wanted_mark_all(struct wanted *wanted);
void wanted_release(struct wanted *wanted);

#endif
