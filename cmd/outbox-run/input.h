/*
 * Jobs from stdin: a stream of frames that begins with the hello of the worker for whom the
 * jobs were claimed. No credit, no beats: the lease is the hello's, and reading stops while
 * the slots are taken.
 */
#ifndef OUTBOX_RUN_INPUT_H
#define OUTBOX_RUN_INPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "link.h"
#include "loop.h"
#include "runner.h"

struct input {
	struct loop *loop;
	struct runner *runner;
	struct link *link;
	int64_t lease_ms; /* when the hello does not say */
	bool ended;       /* or broken: the program has failed then */
};

/* The struct's loop, runner and lease_ms are set by the caller, all else zero. */
int input_open(struct input *input, struct err *err);
void input_close(struct input *input);

/* Once a turn: reads or not. */
void input_turn(struct input *input);

#endif
