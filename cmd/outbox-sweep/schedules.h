/*
 * Schedules: fires what is due, and sleeps until the next tick.
 *
 * It has a connection of its own, because the functions that schedules may name are as slow
 * as their authors made them, and nothing else of the sweeper must wait for them. Between
 * ticks a notification says that a schedule was set; once a minute it looks in case one was
 * lost. Behind a pooler, which has no notifications, it looks once an interval.
 */
#ifndef OUTBOX_SWEEP_SCHEDULES_H
#define OUTBOX_SWEEP_SCHEDULES_H

#include <stdbool.h>

#include "db.h"
#include "link.h"
#include "loop.h"

struct schedules {
	struct loop *loop;
	struct link *events; /* or NULL */
	int64_t interval_ms; /* between two looks behind a pooler */
	/* A round is over: nothing is due, or what is due has to wait. */
	void (*on_done)(void *ctx);
	void *ctx;

	struct db *db;
	struct loop_timer timer; /* starts the next round */
	bool running;            /* a round has begun */
	bool again;              /* another one was asked for meanwhile */
	bool stuck;              /* the last firing of this round moved nothing on */
	bool stopping;
};

/* Connects, and from then on fires whatever is due. The members above the blank line are
 * the caller's to fill, the others zero. */
int schedules_open(struct schedules *schedules, struct err *err);
void schedules_close(struct schedules *schedules);

/* Looks now. An idle connection finds out by it that its server has become read-only. */
void schedules_look(struct schedules *schedules);

/* Fires nothing more. Returns whether nothing is running, else on_done will be called. */
bool schedules_stop(struct schedules *schedules);

#endif
