/*
 * The kinds that a runner takes: one a handler, in the handlers' order, and one more for
 * kinds that are gone while their last attempts run.
 */
#ifndef OUTBOX_RUN_KINDS_H
#define OUTBOX_RUN_KINDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "handlers.h"
#include "job.h"
#include "jobdoc.h"
#include "opt.h"
#include "stream.h"

struct kind {
	const struct handler *handler; /* NULL: of the kinds that are gone */
	struct jobdoc_environment environment;
	struct stream *stream; /* NULL: it gets a process for each attempt */
	size_t running;        /* such processes, and jobs that wait for one */
	size_t queued;
	int64_t absent_us; /* when its program was last missed; 0: it is there */
};

struct kinds {
	const struct handlers *handlers;
	struct kind *items; /* handlers->count + 1 */
};

/* Without streams at first. The handlers must outlive the kinds. */
void kinds_init(struct kinds *kinds, const struct handlers *handlers,
	const struct opt_list *pass_env);
void kinds_release(struct kinds *kinds);

/* The index of a kind's name; handlers->count when it is gone. */
size_t kinds_index(const struct kinds *kinds, struct str name);

/* Sets job->kind. False: there is no handler of its kind, or not of the version that it asks
 * for. */
bool kinds_place(const struct kinds *kinds, struct job *job);

/* After a start that failed: whether the program is gone, or is being written, as in a deploy.
 * Then the kind is absent until kinds_look finds it again. */
bool kind_is_lost(struct kind *kind, const struct err *err);
bool kind_is_absent(const struct kind *kind);
/* Returns after how many us to look for what is absent again; -1: nothing is. */
int64_t kinds_look(struct kinds *kinds);

bool kind_is_stream(const struct kind *kind);
size_t kind_held(const struct kind *kind);    /* jobs that run and wait */
size_t kind_waiting(const struct kind *kind); /* jobs that wait */

#endif
