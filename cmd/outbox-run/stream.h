/*
 * The stream handlers of one kind: its resident processes, the jobs that wait for them, and
 * how many more may come.
 *
 * A process is started at once and again when it has died, after a pause that doubles from
 * 100 ms to 30 s as long as it answers nothing. It is given few jobs at first, after a crash
 * one, and more with each answer, up to the handler's window: so a job that kills it takes
 * few others along, and a slow one hoards little. A kind with a `concurrency` is given so
 * many from the start, for then somebody has said that they can be worked on at once.
 */
#ifndef OUTBOX_RUN_STREAM_H
#define OUTBOX_RUN_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "handlers.h"
#include "job.h"
#include "lease.h"
#include "loop.h"
#include "pace.h"
#include "report.h"
#include "resident.h"

struct stream_options { /* what all kinds of a runner share */
	struct resident_options residents;
	const struct lease *lease;
	int64_t max_response_bytes;
	size_t window; /* most jobs of one kind at once, given and waiting */
	/* The attempt of a job, which is in no list, has ended. */
	void (*on_end)(void *ctx, struct job *job, const struct report_answered *how);
	void *ctx;
};

struct stream_seat { /* the place of one process */
	struct stream *stream;
	struct resident resident;
	size_t limit; /* most jobs at once */
	bool has_crashed;
	int64_t pause_ms; /* the last one before a start; 0: all is well */
	struct loop_timer pause;
};

struct stream {
	const struct stream_options *options;
	const struct handler *handler;
	char *const *envp;       /* until it is closed */
	struct job_list waiting; /* the runner may take jobs from here */
	struct stream_seat *seats;
	size_t seats_count;
	size_t given;       /* jobs that processes have */
	const char *closed; /* not NULL: no more is given; the code of what is not seen */
	bool retired;       /* its kind has another stream now, or none */
	struct stream *next;
	struct pace pace; /* of its answers */
};

/* Kills what runs; jobs are not touched. */
void stream_free(struct stream *stream);
struct stream *stream_new(const struct stream_options *options,
	const struct handler *handler, char *const *envp);

/* Once a turn: starts processes and gives them what waits. -1: one could not be started,
 * errors as child_spawn; the others go on. */
int stream_turn(struct stream *stream, struct err *err);

/* No process runs, none has answered of late, and the next start is not near. */
bool stream_is_down(const struct stream *stream);

size_t stream_held(const struct stream *stream);     /* jobs, given and waiting */
size_t stream_capacity(const struct stream *stream); /* so many more may come */
size_t stream_window(
	const struct stream *stream); /* so many at present, if it held none */

/* No more is given or started; a process without jobs is dismissed, now or once idle. What it
 * has not seen is released with this code. Nothing waits any more. */
void stream_close(struct stream *stream, const char *code);
bool stream_has_processes(const struct stream *stream);
void stream_stop(struct stream *stream, enum resident_stop why);
void stream_kill(struct stream *stream, enum resident_stop why);

#endif
