/*
 * The stream kinds of a runner: what concerns all of them. Each has a window of its own,
 * apart from the runner's slots. A handler that was replaced answers what it was given and
 * leaves.
 */
#ifndef OUTBOX_RUN_STREAMS_H
#define OUTBOX_RUN_STREAMS_H

#include "runner.h"

#define STREAMS_MAX_PROCESSES 4096 /* slots of the guard behind the runner's */

/* The number of processes of all stream handlers. */
size_t streams_processes(const struct handlers *handlers);

void streams_init(struct runner *runner);
void streams_release(struct runner *runner); /* kills what still runs */

/* For the kinds that are in place now; their environments are initialised. */
void streams_open(struct runner *runner);
/* Before they are replaced: what waits goes to the queue, and handlers without jobs are
 * dismissed, now or once they are idle. */
void streams_retire(struct runner *runner);
/* Whether a handler of these is at work. */
bool streams_use(const struct runner *runner, const struct handlers *handlers);

/* Once a turn: starts handlers and gives them what waits. */
void streams_turn(struct runner *runner);

size_t streams_held(const struct runner *runner); /* jobs, given and waiting */
bool streams_are_full(const struct runner *runner);

/* The job that has waited longest, NULL: none waits. */
struct job *streams_oldest(const struct runner *runner);

/* Hands back all that waits. */
void streams_hand_back(struct runner *runner, const char *code, int64_t after_ms);

/* The runner takes no more: as streams_retire, with nothing waiting. */
void streams_close(struct runner *runner);
bool streams_have_processes(const struct runner *runner);
void streams_stop(struct runner *runner, enum resident_stop why); /* TERM, later KILL */
void streams_kill(struct runner *runner, enum resident_stop why);

#endif
