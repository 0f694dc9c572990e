/* For tests that turn the loop: until something has happened, or for a while. */
#ifndef OUTBOX_TESTS_TURNING_H
#define OUTBOX_TESTS_TURNING_H

#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "loop.h"

#define TURNING_DEADLINE_US INT64_C(30000000) /* generous, for valgrind */

struct turning {
	struct loop *loop;
	bool (*is_done)(void *ctx); /* NULL: never, only the deadline */
	void *ctx;
	int64_t deadline_us;
	bool done;
	struct loop_timer timer;
};

static inline void turning_look(void *ctx)
{
	struct turning *turning = ctx;

	turning->done = turning->is_done && turning->is_done(turning->ctx);
	if (turning->done || clock_us() >= turning->deadline_us)
		loop_stop(turning->loop);
	else
		loop_set_timer(turning->loop, &turning->timer, 500);
}

static inline bool turn(struct loop *loop, bool (*is_done)(void *ctx), void *ctx,
	int64_t at_most_us)
{
	struct turning turning = {
		.loop = loop,
		.is_done = is_done,
		.ctx = ctx,
		.deadline_us = clock_us() + at_most_us,
		.timer = {.fn = turning_look, .ctx = &turning},
	};
	loop_set_timer(loop, &turning.timer, 0);
	assert_int_equal(loop_run(loop, NULL), 0);
	loop_stop_timer(loop, &turning.timer);
	return turning.done;
}

#define turn_until(loop, is_done, ctx) \
	assert_true(turn((loop), (is_done), (ctx), TURNING_DEADLINE_US))
#define turn_for_ms(loop, ms) ((void)turn((loop), NULL, NULL, INT64_C(1000) * (ms)))

#endif
