/*
 * The claimer: gives its runners jobs, as many as they have room for and no more, and keeps
 * them registered.
 *
 * It looks for work when something says that there may be some: a nudge, the clock (the next
 * due time, known from the last look), new room at a runner, and a tick. One claim runs at a
 * time. A kind is looked for until a claim brings less than was asked; then next_due says
 * when to look again.
 */
#ifndef CLAIM_CLAIMER_H
#define CLAIM_CLAIMER_H

#include "db.h"
#include "link.h"
#include "loop.h"
#include "runners.h"
#include "scan.h"
#include "sleep.h"
#include "statements.h"
#include "wanted.h"

struct reserve { /* room that is kept for a kind, over all runners */
	char *kind;
	int64_t count;
};

struct claimer_options {
	const char *id; /* incarnation */
	const char *lane;
	int64_t lease_ms;
	int64_t batch; /* most jobs a claim */
	const struct reserve *reserves;
	size_t reserves_count;
};

struct claimer {
	struct claimer_options options;
	struct loop *loop;
	struct db *db;
	struct link *jobs;
	struct runners runners;
	struct wanted wanted;

	/* the claim or the look at next_due that is under way */
	bool looking;
	struct runner *claiming_for;
	int64_t claiming_epoch;
	const char *found_by;
	struct claim_part *parts; /* what was asked */
	size_t parts_count;
	size_t parts_capacity;
	int64_t asked; /* most jobs */
	bool apart;    /* of kinds that have room of their own */

	bool next_due_unknown; /* a kind was exhausted since next_due was asked */
	uint64_t claims;       /* so far; see runner.served */
	int64_t pause_ms;      /* jobs are due and locked by others: the last pause */
	int64_t listener_heard_us;
	int64_t looked_everywhere_us;
	bool backing_off; /* after an error: nothing is looked for */
	bool draining;

	struct sleep sleep;
	struct scan scan;

	/* see members.h */
	bool beating;          /* a beat statement is under way */
	struct buf beats_sent; /* of struct beat_sent, for that statement */
	bool cancels_wanted;
	bool asking_cancels;

	struct loop_timer due_timer; /* the next due time, or a pause */
	struct loop_timer tick_timer;
	struct loop_timer beat_timer; /* collects the beats of several runners */
};

void claimer_init(struct claimer *claimer, const struct claimer_options *options);
void claimer_release(struct claimer *claimer);
void claimer_start(struct claimer *claimer); /* the tick; loop, db and jobs are set */

/* From the listener. */
void claimer_nudge(struct claimer *claimer, struct str kind); /* absent: everything */
void claimer_hear_listener(struct claimer *claimer);

/* The database is there (again). */
void claimer_db_up(struct claimer *claimer);

/* ---- for the claimer's other modules */

bool claimer_hears_listener(const struct claimer *claimer);
void claimer_ask_next_due(struct claimer *claimer);
/* Look again after a pause, which doubles from one to the next, up to most_ms, until something
 * is found. One that has begun is not put off. */
void claimer_pause(struct claimer *claimer, int64_t most_ms);
/* The server refused, for a while or for good: nothing is looked for until it may be better. */
void claimer_back_off(struct claimer *claimer, const char *event, const struct err *err);

/* Once a turn: starts what can be started. */
void claimer_turn(struct claimer *claimer);

/* No new claims from now on. */
void claimer_drain(struct claimer *claimer);

#endif
