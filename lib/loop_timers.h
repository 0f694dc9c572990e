/*
 * The armed timers of a loop, the earliest first: a binary heap by at_us. Private to the loop.
 */
#ifndef OUTBOX_LOOP_TIMERS_H
#define OUTBOX_LOOP_TIMERS_H

#include <stddef.h>

#include "loop.h"

struct loop_timers {
	struct loop_timer **items;
	size_t count;
	size_t size;
};

/* The timer's at_us is set, and it is not in yet. */
void loop_timers_add(struct loop_timers *timers, struct loop_timer *timer);
/* It is in. */
void loop_timers_remove(struct loop_timers *timers, struct loop_timer *timer);
struct loop_timer *loop_timers_first(const struct loop_timers *timers); /* or NULL */
void loop_timers_release(struct loop_timers *timers);

#endif
