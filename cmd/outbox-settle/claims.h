/*
 * Counts the settled jobs of each claim, so that the settle which completes a claim can
 * delete it. Only a hint: the database checks, and the sweeper collects what is missed
 * (another settler had a part, or this table was full).
 */
#ifndef SETTLE_CLAIMS_H
#define SETTLE_CLAIMS_H

#include <stdbool.h>
#include <stdint.h>

#define CLAIMS_SLOTS 8192 /* a power of two */

struct claims {
	struct claim_count {
		int64_t id; /* 0: free */
		int64_t settled;
	} slots[CLAIMS_SLOTS];
};

/* One more job of the claim is being settled; true when it was the last of `size`. */
bool claims_count(struct claims *claims, int64_t id, int64_t size);

/* The settle was rolled back: takes that one back. */
void claims_uncount(struct claims *claims, int64_t id, int64_t size);

/* The claim is complete and committed. */
void claims_forget(struct claims *claims, int64_t id);

#endif
