/*
 * A resident handler: one process that is given job after job as lines on its stdin and
 * answers with lines on its stdout, several in flight and in any order.
 *
 * What is put is written at the next flush, as much as the pipe takes. The oldest job without
 * an answer holds the deadline: from when it was put or became the oldest, so that a handler
 * that works one by one has the whole time for each. The exit ends it: answers that it has
 * written count, jobs that it has not read were never its own.
 */
#ifndef OUTBOX_RUN_RESIDENT_H
#define OUTBOX_RUN_RESIDENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "answer.h"
#include "buf.h"
#include "capture.h"
#include "child.h"
#include "err.h"
#include "handlers.h"
#include "job.h"
#include "lines.h"
#include "log.h"
#include "loop.h"

enum resident_stop { /* why it is to end; the first reason counts */
	RESIDENT_NOT_STOPPED,
	RESIDENT_DISMISSED,   /* nothing more comes */
	RESIDENT_MUTE,        /* it has closed its stdin or its stdout */
	RESIDENT_TIMEOUT,     /* `late` has no answer in time */
	RESIDENT_INTERRUPTED, /* the runner is going away */
	RESIDENT_LEASE_LOST,
};

struct resident_options { /* what all of a runner share */
	struct loop *loop;
	struct guard *guard;
	size_t first_slot; /* of the guard: this and later ones are for residents */
	const struct jobs *jobs;
	int64_t max_error_bytes;
};

struct resident {
	const struct resident_options *options;
	const struct handler *handler;
	/* A job has its answer, which is malformed if err is one, and is in no list. */
	void (*on_answer)(struct resident *resident, struct job *job,
		const struct answer *answer, const struct err *err);
	/* It is gone; the jobs that are left in `given` are the caller's now. */
	void (*on_exit)(struct resident *resident);
	void *ctx; /* of the caller */

	struct child child; /* pid 0: none runs */
	pid_t pid;          /* of the one that runs, or of the last one */
	size_t slot;        /* of the guard */
	struct buf in;      /* lines that are not written yet */
	int64_t put_bytes;  /* of all lines since the start */
	int64_t read_bytes; /* after the exit: so many of them it has read */
	struct lines out, error_lines;
	struct capture error;
	struct job_list given; /* and not answered, oldest first */
	int64_t oldest_us;     /* when the first of them became the first */
	int64_t read_us;       /* when its output was read last: the time of its answers */
	bool is_watched;       /* until its stdin takes more */
	bool has_answered;     /* since its start */
	bool wants_cancels;
	enum resident_stop stop;
	enum {
		RESIDENT_OFF,
		RESIDENT_RUNNING,
		RESIDENT_LEAVING, /* TERM comes next */
		RESIDENT_TERMED,  /* KILL comes next */
		RESIDENT_KILLED,
	} step;
	struct job *late;        /* RESIDENT_TIMEOUT */
	int exit_status;         /* -1: by signal */
	int signal_number;       /* 0: by exit */
	struct loop_timer timer; /* for the deadline while running, then for the next step */
	struct log_limit stderr_limit, ignored_limit;
};

/* The struct's options, handler, on_answer, on_exit and ctx are set by the caller, all
 * else zero. */
void resident_init(struct resident *resident);
void resident_release(struct resident *resident); /* kills it; no callback comes */

/* Errors as child_spawn; ERR_OS also when there are too many of them. */
int resident_start(struct resident *resident, char *const *envp, struct err *err);

/* Whether it takes jobs: it runs, is not to end, and reads what it is given. */
bool resident_is_open(const struct resident *resident);

/* Appends the job, which is in no list, to what it has been given. now_us: monotonic;
 * deadline_us: of the database, for the document. */
void resident_put(struct resident *resident, struct job *job, int64_t now_us,
	int64_t deadline_us);
/* Tells it that the job is not wanted any more, if it has asked to be told. */
void resident_cancel(struct resident *resident, const struct job *job);
void resident_flush(struct resident *resident);

/* After the exit: whether it has begun to read the line of a job. */
bool resident_has_seen(const struct resident *resident, const struct job *job);

/* Closes its stdin; TERM after the handler's grace, and after another KILL. */
void resident_dismiss(struct resident *resident);
/* TERM now, and EOF if the runner is going away; KILL after the grace. */
void resident_stop(struct resident *resident, enum resident_stop why);
/* KILL now. */
void resident_kill(struct resident *resident, enum resident_stop why);

#endif
