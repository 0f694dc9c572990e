/*
 * The stream kinds of a runner: what concerns all of them. Each has a window of its own,
 * apart from the slots. A handler that was replaced answers what it was given and leaves.
 */
#ifndef OUTBOX_RUN_STREAMS_H
#define OUTBOX_RUN_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kinds.h"
#include "results.h"
#include "stream.h"

#define STREAMS_MAX_PROCESSES 4096 /* slots of the guard behind the runner's */

struct streams {
	struct stream_options options;
	struct kinds *kinds; /* whose `stream` is set here */
	struct results *results;
	struct stream *first; /* of the kinds in place, and retired ones */
};

/* The number of processes of all stream handlers. */
size_t streams_processes(const struct handlers *handlers);

/* The options' on_end and ctx are the streams' own. */
void streams_init(struct streams *streams, const struct stream_options *options,
	struct kinds *kinds, struct results *results);
void streams_release(struct streams *streams); /* kills what still runs */

/* For the kinds that are in place now. */
void streams_open(struct streams *streams);
/* Before they are replaced: what waits is appended to the list, and handlers without jobs are
 * dismissed, now or once they are idle. */
void streams_retire(struct streams *streams, struct job_list *waiting);
/* Whether a handler of these is at work. */
bool streams_use(const struct streams *streams, const struct handlers *handlers);

/* Once a turn: starts handlers and gives them what waits. */
void streams_turn(struct streams *streams);

size_t streams_held(const struct streams *streams); /* jobs, given and waiting */
bool streams_are_full(const struct streams *streams);

/* The job that has waited longest, NULL: none waits. */
struct job *streams_oldest(const struct streams *streams);

/* Hands back all that waits. */
void streams_hand_back(struct streams *streams, const char *code, int64_t after_ms);

/* The runner takes no more: as streams_retire, with nothing waiting. */
void streams_close(struct streams *streams);
bool streams_have_processes(const struct streams *streams);
void streams_stop(struct streams *streams, enum resident_stop why); /* TERM, later KILL */
void streams_kill(struct streams *streams, enum resident_stop why);

#endif
