#include "give.h"

#include <stdlib.h>

#include "log.h"
#include "members.h"

#define MESSAGE_BYTES \
	((size_t)8 << 20) /* of job frames; a message is sent when past it */

static void on_released(void *ctx, PGresult *result, const struct err *err)
{
	(void)ctx;
	/* the runner's next hello, or the sweeper, gives them back */
	if (result == NULL)
		log_error(LOG_WARNING, "release_failed", err);
}

void give_back(struct claimer *claimer, const PGresult *result)
{
	size_t rows = (size_t)PQntuples(result), count = 0;
	int64_t *ids = mem_alloc(rows + 1, sizeof(*ids));

	for (int row = 0; row < (int)rows; row++) {
		int64_t id = db_get_int8(result, row, 0);

		if (count == 0 || ids[count - 1] != id)
			ids[count++] = id;
	}
	log_event(LOG_INFO, "jobs_released", LOG_INT("jobs", rows));
	send_release(claimer->db, ids, count, on_released, NULL);
	free(ids);
}

static int send_message(struct claimer *claimer, struct runner *runner,
	struct buf *frames)
{
	struct err err = ERR_INIT;

	if (frames->len == 0)
		return 0;
	if (link_send(claimer->jobs, &runner->address, frames, &err) < 0) {
		log_event(LOG_WARNING, "send_failed", LOG_TEXT("worker", runner->worker),
			LOG_TEXT("error", err.text));
		return -1;
	}
	buf_clear(frames);
	return 0;
}

static void on_refused(void *ctx, PGresult *result, const struct err *err)
{
	(void)ctx;
	if (result == NULL)
		log_error(LOG_ERROR, "refusal_failed", err);
}

/* Enqueue lets no such job in; somebody has written to the table. */
static void refuse_job(struct claimer *claimer, struct runner *runner,
	const struct frame_job *job)
{
	log_event(LOG_ERROR, "job_too_large", LOG_INT("job", job->job_id),
		LOG_STR("kind", job->kind), LOG_INT("bytes", job->payload.n));
	send_refusal(claimer->db, job, runner->worker, "too_large",
		"the job does not fit into a frame of 16 MiB", on_refused, NULL);
}

/*
 * A message is sent whole or not at all. When a later one of several cannot be sent, the
 * runner has the first part: a new greeting finds out, and the rest is given back.
 */
void give_jobs(struct claimer *claimer, struct runner *runner, const PGresult *result)
{
	struct buf frames;
	bool any_sent = false;
	int failed = 0;

	buf_init(&frames, MESSAGE_BYTES + FRAME_MAX_BYTES);
	for (int row = 0; row < PQntuples(result) && !failed; row++) {
		struct frame_job job = get_job(result, row, str_of(claimer->found_by));
		int64_t kind = runner_find_kind(runner, job.kind);

		job.epoch = runner->epoch;
		job.seq = runner->sent_seq + 1;
		if (frame_put_job(&frames, &job) < 0) {
			refuse_job(claimer, runner, &job);
			continue;
		}
		runner_note_sent(runner, kind < 0 ? 0 : (size_t)kind);
		if (frames.len >= MESSAGE_BYTES) {
			failed = send_message(claimer, runner, &frames);
			any_sent = any_sent || !failed;
		}
	}
	if (!failed)
		failed = send_message(claimer, runner, &frames);
	buf_release(&frames);
	if (failed && any_sent) {
		members_greet(claimer, &runner->address);
	} else if (failed) {
		runner->gone = true; /* until it connects again */
		give_back(claimer, result);
	}
}
