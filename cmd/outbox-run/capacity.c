#include "capacity.h"

#include "clock.h"

static size_t at_most(size_t limit, size_t used)
{
	return limit > used ? limit - used : 0;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* How many jobs for the slots are best had at once. A runner whose last start failed asks for
 * one, to try. */
static size_t window(const struct runner *runner)
{
	return runner->slots.pause_ms > 0 ? 1 : slots_window(&runner->slots);
}

/* Ahead in the same measure: the jobs of a kind of few are not to fill the queue. */
static size_t kind_window(const struct runner *runner, const struct kind *kind)
{
	size_t limit = (size_t)kind->handler->concurrency;

	if (kind_is_stream(kind))
		return stream_window(kind->stream);
	if (limit == 0)
		return window(runner);
	return limit * slots_window(&runner->slots) / runner->options.slots;
}

/* There will be room for the results of so many more. */
static size_t room(const struct runner *runner)
{
	return at_most(results_room(runner->results),
		slots_held(&runner->slots) + streams_held(&runner->streams));
}

static bool may_take(const struct runner *runner)
{
	return !runner->draining && lease_is_valid(&runner->lease, clock_us());
}

size_t capacity_of_slots(const struct runner *runner)
{
	if (slots_are_paused(&runner->slots) || !may_take(runner))
		return 0;
	return least(at_most(window(runner), slots_held(&runner->slots)), room(runner));
}

size_t capacity_of_kind(const struct runner *runner, const struct kind *kind, size_t free)
{
	if (kind_is_absent(kind))
		return 0;
	if (kind_is_stream(kind))
		return may_take(runner) ? least(stream_capacity(kind->stream), room(runner)) : 0;
	return least(at_most(kind_window(runner, kind), kind_held(kind)), free);
}

size_t capacity_step_of_slots(const struct runner *runner)
{
	return (window(runner) + 1) / 2;
}

size_t capacity_step_of_kind(const struct runner *runner, const struct kind *kind)
{
	return (kind_window(runner, kind) + 1) / 2;
}

bool capacity_is_used_up(const struct runner *runner)
{
	return runner->draining || runner->slots.queue.count >= runner->options.slots ||
		streams_are_full(&runner->streams) || room(runner) == 0;
}
