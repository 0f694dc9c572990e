/*
 * A pipeline of child processes, for as long as a command needs it: outbox-settle,
 * outbox-sweep, outbox-listen, and for each lane an outbox-run and an outbox-claim, from the
 * folder that this program is in, connected by sockets in a private folder.
 *
 * They take the caller's environment and log warnings to stderr. The sweeper deletes nothing.
 * Should the caller be killed, they stop by themselves.
 */
#ifndef OUTBOX_PIPELINE_H
#define OUTBOX_PIPELINE_H

#include <stddef.h>

#include "err.h"

struct pipeline;

struct pipeline_options {
	const char *conninfo; /* NULL: as libpq has it */
	const char *handlers;
	const char *const *lanes;
	size_t lanes_count;
};

/* Returns when all of them are ready. NULL on failure, also when a signal comes first: then
 * nothing is left of it. */
struct pipeline *pipeline_start(const struct pipeline_options *options, struct err *err);

/* -1 when one of them has ended. */
int pipeline_check(const struct pipeline *pipeline, struct err *err);

/* Stops the programs, those that give work after those that have it, and removes the folder.
 * What takes longer than a few seconds is killed. NULL is allowed. */
void pipeline_stop(struct pipeline *pipeline);

#endif
