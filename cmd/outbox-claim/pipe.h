/*
 * outbox-claim --once --jobs -: claims once, writes the jobs to stdout and ends.
 */
#ifndef CLAIM_PIPE_H
#define CLAIM_PIPE_H

#include "db.h"
#include "link.h"
#include "loop.h"

struct pipe_options {
	const char
		*worker; /* the worker that this process registers for whoever reads the pipe */
	const char *lane;
	int64_t lease_ms;
	int64_t limit;            /* most jobs */
	const char *const *kinds; /* only these; none: every kind of the lane that is owed */
	size_t kinds_count;
};

struct pipe {
	struct pipe_options options;
	struct loop *loop;
	struct db *db;
	struct link *out;
	struct buf frames;
	bool is_started;
	bool is_done; /* all is handed to the output */
};

/* Runs once, when the database is there; stops the loop at the end. */
void pipe_run(struct pipe *pipe);

/* Ends when all is written. Called every turn. */
void pipe_turn(struct pipe *pipe);

#endif
