#include "loop_timers.h"

#include <stdlib.h>

#include "buf.h"

static void place(struct loop_timers *timers, size_t index, struct loop_timer *timer)
{
	timers->items[index] = timer;
	timer->heap_index = index;
}

static void sift_up(struct loop_timers *timers, size_t index, struct loop_timer *timer)
{
	while (index > 0) {
		size_t parent = (index - 1) / 2;
		if (timers->items[parent]->at_us <= timer->at_us)
			break;
		place(timers, index, timers->items[parent]);
		index = parent;
	}
	place(timers, index, timer);
}

static void sift_down(struct loop_timers *timers, size_t index, struct loop_timer *timer)
{
	for (;;) {
		size_t child = 2 * index + 1;
		if (child >= timers->count)
			break;
		if (child + 1 < timers->count &&
			timers->items[child + 1]->at_us < timers->items[child]->at_us)
			child++;
		if (timer->at_us <= timers->items[child]->at_us)
			break;
		place(timers, index, timers->items[child]);
		index = child;
	}
	place(timers, index, timer);
}

void loop_timers_add(struct loop_timers *timers, struct loop_timer *timer)
{
	if (timers->count == timers->size) {
		timers->size = timers->size ? 2 * timers->size : 16;
		timers->items = mem_realloc(timers->items, timers->size,
			sizeof(struct loop_timer *));
	}
	sift_up(timers, timers->count++, timer);
}

void loop_timers_remove(struct loop_timers *timers, struct loop_timer *timer)
{
	size_t hole = timer->heap_index;
	struct loop_timer *last = timers->items[--timers->count];

	if (last == timer)
		return;
	sift_down(timers, hole, last);
	sift_up(timers, last->heap_index, last);
}

struct loop_timer *loop_timers_first(const struct loop_timers *timers)
{
	return timers->count > 0 ? timers->items[0] : NULL;
}

void loop_timers_release(struct loop_timers *timers)
{
	free(timers->items);
	*timers = (struct loop_timers){0};
}
