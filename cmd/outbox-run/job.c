#include "job.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists --------------------------------------------------------------------------- */

void job_list_append(struct job_list *list, struct job *job)
{
	job->next = NULL;
	job->previous = list->last;
	if (list->last != NULL)
		list->last->next = job;
	else
		list->first = job;
	list->last = job;
	list->count++;
}

void job_list_remove(struct job_list *list, struct job *job)
{
	if (job->previous != NULL)
		job->previous->next = job->next;
	else
		list->first = job->next;
	if (job->next != NULL)
		job->next->previous = job->previous;
	else
		list->last = job->previous;
	job->next = job->previous = NULL;
	list->count--;
}

void job_list_prepend_all(struct job_list *list, struct job_list *other)
{
	if (other->last == NULL)
		return;
	other->last->next = list->first;
	if (list->first != NULL)
		list->first->previous = other->last;
	else
		list->last = other->last;
	list->first = other->first;
	list->count += other->count;
	*other = (struct job_list){0};
}

/* ---- the table ----------------------------------------------------------------------- */

void jobs_init(struct jobs *jobs, size_t expected)
{
	size_t size = 64;

	while (size < expected)
		size *= 2;
	*jobs = (struct jobs){.mask = size - 1};
	jobs->buckets = mem_alloc(size, sizeof(*jobs->buckets));
}

/* All attempts of a job share a bucket. */
static struct job **bucket_of(const struct jobs *jobs, int64_t id)
{
	/* Ids are times and sequence numbers: a multiplication spreads them (Fibonacci hashing,
	 * Knuth 6.4). */
	uint64_t hash = (uint64_t)id * UINT64_C(0x9e3779b97f4a7c15);

	return &jobs->buckets[(hash >> 32) & jobs->mask];
}

struct job *jobs_find(const struct jobs *jobs, int64_t id, int64_t attempt)
{
	struct job *job = *bucket_of(jobs, id);

	while (job != NULL && (job->id != id || job->attempt != attempt))
		job = job->next_in_bucket;
	return job;
}

struct job *jobs_find_given(const struct jobs *jobs, int64_t id,
	const struct resident *resident)
{
	struct job *job = *bucket_of(jobs, id);

	while (job != NULL && (job->id != id || job->resident != resident))
		job = job->next_in_bucket;
	return job;
}

void job_drop_frame(struct job *job)
{
	free(job->bytes);
	job->bytes = NULL;
	memset(&job->frame, 0, sizeof(job->frame));
}

void job_free(struct job *job)
{
	job_drop_frame(job);
	buf_release(&job->result);
	free(job);
}

struct job *job_new(const void *frame, size_t length)
{
	struct job *job = mem_alloc(1, sizeof(*job));

	buf_init(&job->result, FRAME_MAX_BYTES);
	job->bytes = mem_realloc(NULL, length, 1);
	memcpy(job->bytes, frame, length);
	if (frame_get_job(job->bytes, length, &job->frame, NULL) != 0) {
		job_free(job);
		return NULL;
	}
	job->id = job->frame.job_id;
	job->attempt = job->frame.attempt;
	job->claim_id = job->frame.claim_id;
	job->claim_index = job->frame.claim_index;
	return job;
}

bool job_has_ended(const struct job *job)
{
	return job->result.len > 0;
}

bool job_is_same_claim(const struct job *job, const struct job *other)
{
	return job->claim_id == other->claim_id && job->claim_index == other->claim_index;
}

void job_move_to_claim_of(struct job *job, const struct job *other)
{
	job->claim_id = other->claim_id;
	job->claim_index = other->claim_index;
	job->frame.claim_size = other->frame.claim_size;
}

void jobs_add(struct jobs *jobs, struct job *job)
{
	struct job **bucket = bucket_of(jobs, job->id);

	job->next_in_bucket = *bucket;
	*bucket = job;
	jobs->count++;
}

void jobs_forget(struct jobs *jobs, struct job *job)
{
	struct job **link = bucket_of(jobs, job->id);

	while (*link != job)
		link = &(*link)->next_in_bucket;
	*link = job->next_in_bucket;
	jobs->count--;
	job_free(job);
}

void jobs_release(struct jobs *jobs)
{
	for (size_t i = 0; jobs->buckets != NULL && i <= jobs->mask; i++) {
		while (jobs->buckets[i] != NULL) {
			struct job *job = jobs->buckets[i];
			jobs->buckets[i] = job->next_in_bucket;
			job_free(job);
		}
	}
	free(jobs->buckets);
	*jobs = (struct jobs){0};
}

/* ---- claims -------------------------------------------------------------------------- */

static int compare_claims(const void *a, const void *b)
{
	const struct frame_hello_claim *x = a, *y = b;

	if (x->claim_id != y->claim_id)
		return x->claim_id < y->claim_id ? -1 : 1;
	return (x->received < y->received) - (x->received > y->received);
}

size_t jobs_list_claims(const struct jobs *jobs, struct frame_hello_claim **claims)
{
	struct frame_hello_claim *list = mem_alloc(jobs->count + 1, sizeof(*list));
	size_t held = 0, distinct = 0;

	for (size_t i = 0; i <= jobs->mask; i++)
		for (struct job *job = jobs->buckets[i]; job != NULL; job = job->next_in_bucket)
			list[held++] = (struct frame_hello_claim){job->claim_id, job->claim_index};
	qsort(list, held, sizeof(*list), compare_claims);
	/* The highest index of a claim comes first. */
	for (size_t i = 0; i < held; i++)
		if (i == 0 || list[i].claim_id != list[i - 1].claim_id)
			list[distinct++] = list[i];
	*claims = list;
	return distinct;
}
