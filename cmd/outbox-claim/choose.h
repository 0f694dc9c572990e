/*
 * For whom to claim next, and what.
 */
#ifndef CLAIM_CHOOSE_H
#define CLAIM_CHOOSE_H

#include "claimer.h"

/*
 * The runner with the most room that can run something which may be due, or NULL. Leaves in
 * the claimer what to ask for: parts, asked, found_by.
 */
struct runner *choose_runner(struct claimer *claimer);

/* One more part. The name of a wanted kind outlives every runner. */
void choose_part(struct claimer *claimer, const struct wanted_kind *kind, int64_t limit,
	int64_t version);

#endif
