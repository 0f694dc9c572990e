/*
 * The jobs that a runner holds: from the arrival of the frame until the settler has
 * acknowledged the result. One table finds them by (job id, attempt); a job is in one list,
 * that of its state.
 */
#ifndef OUTBOX_RUN_JOB_H
#define OUTBOX_RUN_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "frame.h"

struct resident;

struct job {
	int64_t id;
	int64_t attempt;
	int64_t claim_id;
	int64_t claim_index;
	int64_t arrived_us;        /* monotonic */
	int64_t started_us;        /* monotonic: when a resident handler was given it */
	int64_t line_start;        /* where its line begins in what that handler was given */
	struct resident *resident; /* that handler, until it has answered; or NULL */
	size_t kind;               /* index into the runner's kinds */
	struct frame_job frame;    /* views into bytes; void once the job has ended */
	char *bytes;
	struct buf result; /* the encoded result frame, once it has ended */
	bool sent;         /* the result has been sent, on the present connection */
	struct job *next, *previous;
	struct job *next_in_bucket;
};

struct job_list {
	struct job *first, *last;
	size_t count;
};

void job_list_append(struct job_list *list, struct job *job);
void job_list_remove(struct job_list *list, struct job *job);
/* Puts all of `other` in front of the list; `other` is empty afterwards. */
void job_list_prepend_all(struct job_list *list, struct job_list *other);

/* Copies the frame; in no table and no list. NULL when it does not decode. */
struct job *job_new(const void *frame, size_t length);
void job_free(struct job *job);

/* Whether its result is there, and only that is wanted. */
bool job_has_ended(const struct job *job);

/* The place counts, too: a crash can also take back the numbering of claims. */
bool job_is_same_claim(const struct job *job, const struct job *other);

/* From now on the job belongs to the claim by which `other` came. */
void job_move_to_claim_of(struct job *job, const struct job *other);

struct jobs {
	struct job **buckets;
	size_t mask;
	size_t count;
};

void jobs_init(struct jobs *jobs, size_t expected);
void jobs_release(struct jobs *jobs); /* and all that it holds */

struct job *jobs_find(const struct jobs *jobs, int64_t id, int64_t attempt);

/* The attempt of a job that this handler has been given. */
struct job *jobs_find_given(const struct jobs *jobs, int64_t id,
	const struct resident *resident);

/* The attempt must not be held already. */
void jobs_add(struct jobs *jobs, struct job *job);

/* Frees the frame: only the result is wanted from now on. */
void job_drop_frame(struct job *job);

/* Takes a job, which is in no list, out of the table and frees it. */
void jobs_forget(struct jobs *jobs, struct job *job);

/*
 * The claims that held jobs come from and how many jobs of each arrived. Frames of a claim
 * arrive from the front, and what is no longer held is settled, so the highest index says
 * it. Returns the number of claims; the array is the caller's to free.
 */
size_t jobs_list_claims(const struct jobs *jobs, struct frame_hello_claim **claims);

#endif
