/*
 * How many more jobs the runner could take: for the slots, and of one kind. A stream kind has
 * a window of its own and does not use slots. Nothing may come while the runner drains, has no
 * lease, or could not hold the results.
 */
#ifndef OUTBOX_RUN_CAPACITY_H
#define OUTBOX_RUN_CAPACITY_H

#include <stdbool.h>
#include <stddef.h>

#include "runner.h"

size_t capacity_of_slots(const struct runner *runner);

/* free: what capacity_of_slots says. */
size_t capacity_of_kind(const struct runner *runner, const struct kind *kind,
	size_t free);

/* So much more of it is worth a word to the claimer: half of what there is at the most. */
size_t capacity_step_of_slots(const struct runner *runner);
size_t capacity_step_of_kind(const struct runner *runner, const struct kind *kind);

/* Whether jobs that come without being asked for should stop coming. */
bool capacity_is_used_up(const struct runner *runner);

#endif
