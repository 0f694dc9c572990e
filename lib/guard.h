/*
 * The guard: a process that outlives a runner killed with KILL and then kills the groups
 * of the handlers that it left. Start it before any thread exists. It shares a table with
 * the runner, so that noting a child costs a store, not a system call.
 */
#ifndef OUTBOX_GUARD_H
#define OUTBOX_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "err.h"

struct guard;
struct guard *guard_start(size_t slots, struct err *err);
void guard_note(struct guard *guard, size_t slot,
	pid_t group); /* 0: none; slot < slots */
/* Finds a slot from `first` on in which nothing is noted. */
bool guard_find_slot(const struct guard *guard, size_t first, size_t *slot);
void guard_stop(struct guard *guard); /* orderly end: the guard exits without killing */

#endif
