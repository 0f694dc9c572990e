/*
 * The jobs link to a claimer: greeting, beats, credit, and the jobs and cancels that come.
 *
 * Credit is an absolute number, like a TCP window. It is sent when it shrinks at once, and
 * when it grows as soon as the runner would else run dry or half its slots' worth is free:
 * a claim for one job costs the database as much as one for many.
 */
#ifndef OUTBOX_RUN_CLAIMER_H
#define OUTBOX_RUN_CLAIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "link.h"
#include "loop.h"
#include "runner.h"

struct claimer {
	struct loop *loop;
	struct runner *runner;
	const char *id; /* our incarnation */
	const char *lane;
	struct link *link;
	int64_t epoch;    /* of the newest greeting; 0: none yet */
	bool accepted;    /* our hello of this epoch is in the database */
	int64_t hello_us; /* when it was sent */
	int64_t last_seq; /* of the jobs of this epoch */
	int64_t lease_ms;
	int64_t beats; /* sent so far */
	struct loop_timer beat_timer;
	/* What the claimer may still send, as it knows from the last credit. */
	size_t granted;
	size_t *granted_kinds; /* one a handler */
};

/* The struct's loop, runner, id and lane are set by the caller, all else zero. endpoint: as
 * program_open_jobs_link. */
int claimer_open(struct claimer *claimer, const char *endpoint, struct err *err);
void claimer_close(struct claimer *claimer);

/* Once a turn: sends credit if it should be known. */
void claimer_turn(struct claimer *claimer);

/* The runner has other handlers: asks for a new greeting, in answer to which they are told. */
void claimer_reload(struct claimer *claimer);

/* Says at once that the runner drains, or, at the end, that nothing is left here. */
void claimer_say(struct claimer *claimer, enum frame_beat_state state);

#endif
