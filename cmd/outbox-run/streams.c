#include "streams.h"

#include <stdlib.h>

#include "clock.h"
#include "log.h"

size_t streams_processes(const struct handlers *handlers)
{
	size_t count = 0;

	for (size_t i = 0; i < handlers->count; i++)
		if (handlers->items[i].mode == HANDLER_STREAM)
			count += (size_t)handlers->items[i].processes;
	return count;
}

static void on_end(void *ctx, struct job *job, const struct report_answered *how)
{
	struct runner *runner = ctx;

	log_event(LOG_DEBUG, "job_answered", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_STR("kind", job->frame.kind),
		LOG_TEXT("outcome", outcome_name(how->outcome)), LOG_TEXT("code", how->code),
		LOG_INT("ms", how->duration_us / 1000));
	report_answered(job, str_of(runner->worker), how);
	results_add(runner->results, job);
}

void streams_init(struct runner *runner)
{
	const struct attempt_options *attempts = &runner->options.attempts;

	runner->stream_options = (struct stream_options){
		.residents =
			{
				.loop = attempts->loop,
				.guard = attempts->guard,
				.first_slot = runner->options.slots,
				.jobs = runner->jobs,
				.max_error_bytes = attempts->max_error_bytes,
			},
		.lease = &runner->lease,
		.max_response_bytes = attempts->max_response_bytes,
		.window = runner->options.window,
		.on_end = on_end,
		.ctx = runner,
	};
}

static struct job *take_waiting(struct stream *stream)
{
	struct job *job = stream->waiting.first;

	if (job != NULL)
		job_list_remove(&stream->waiting, job);
	return job;
}

void streams_open(struct runner *runner)
{
	for (size_t i = 0; i < runner->handlers->count; i++) {
		const struct handler *handler = &runner->handlers->items[i];
		struct runner_kind *kind = &runner->kinds[i];
		if (handler->mode != HANDLER_STREAM)
			continue;
		kind->stream = stream_new(&runner->stream_options, handler,
			jobdoc_environment_of_stream(&kind->environment, handler->kind));
		kind->stream->next = runner->streams;
		runner->streams = kind->stream;
	}
}

void streams_release(struct runner *runner)
{
	struct stream *next;

	for (struct stream *stream = runner->streams; stream != NULL; stream = next) {
		next = stream->next;
		stream_free(stream);
	}
	runner->streams = NULL;
}

void streams_retire(struct runner *runner)
{
	for (struct stream *stream = runner->streams; stream != NULL; stream = stream->next) {
		struct job *job;
		while ((job = take_waiting(stream)) != NULL)
			job_list_append(&runner->queue, job);
		stream->retired = true;
		stream_close(stream, "handed_back");
	}
}

bool streams_use(const struct runner *runner, const struct handlers *handlers)
{
	for (struct stream *stream = runner->streams; stream != NULL; stream = stream->next)
		if (stream->handler >= handlers->items &&
			stream->handler < handlers->items + handlers->count)
			return true;
	return false;
}

/* ---- what waits ---------------------------------------------------------------------- */

static void hand_back(struct runner *runner, struct stream *stream, const char *code,
	int64_t after_ms)
{
	struct job *job;

	while ((job = take_waiting(stream)) != NULL)
		runner_hand_back(runner, job, code, after_ms);
}

void streams_hand_back(struct runner *runner, const char *code, int64_t after_ms)
{
	for (struct stream *stream = runner->streams; stream != NULL; stream = stream->next)
		hand_back(runner, stream, code, after_ms);
}

bool streams_are_full(const struct runner *runner)
{
	for (struct stream *stream = runner->streams; stream != NULL; stream = stream->next)
		if (stream->waiting.count > stream_window(stream))
			return true;
	return false;
}

struct job *streams_oldest(const struct runner *runner)
{
	struct job *oldest = NULL;

	for (struct stream *stream = runner->streams; stream != NULL; stream = stream->next) {
		struct job *job = stream->waiting.first;
		if (job != NULL && (oldest == NULL || job->arrived_us < oldest->arrived_us))
			oldest = job;
	}
	return oldest;
}

/* ---- turning ------------------------------------------------------------------------- */

/* As where a handler is started for each job: what the host is short of is not charged, what
 * is wrong with the handler is. */
static void start_failed(struct runner *runner, struct stream *stream,
	const struct err *err)
{
	bool is_shortage = err->class == ERR_OS;
	const struct report_unstarted failed = {
		.outcome = OUTCOME_RETRY,
		.code = "exec_failed",
		.error = str_of(err->text),
		.after_ms = -1,
	};
	struct job *job;

	log_event(is_shortage ? LOG_ERROR : LOG_WARNING,
		is_shortage ? "spawn_failed" : "exec_failed",
		LOG_TEXT("kind", stream->handler->kind), LOG_TEXT("error", err->text));
	if (stream_has_processes(stream))
		return;
	if (is_shortage)
		hand_back(runner, stream, "spawn_failed", RUNNER_LATER_MS);
	while ((job = take_waiting(stream)) != NULL)
		runner_report(runner, job, &failed);
}

void streams_turn(struct runner *runner)
{
	/* What handlers that were killed with the lease have not seen. */
	if (!lease_is_valid(&runner->lease, clock_us()))
		streams_hand_back(runner, "claim_late", RUNNER_LATER_MS);
	for (struct stream **link = &runner->streams; *link != NULL;) {
		struct stream *stream = *link;
		struct err err = ERR_INIT;
		if (stream_turn(stream, &err) != 0)
			start_failed(runner, stream, &err);
		if (stream_is_down(stream))
			hand_back(runner, stream, "stream_down", RUNNER_LATER_MS);
		if (stream->retired && !stream_has_processes(stream)) {
			*link = stream->next;
			stream_free(stream);
		} else {
			link = &stream->next;
		}
	}
}

size_t streams_held(const struct runner *runner)
{
	size_t held = 0;

	for (struct stream *stream = runner->streams; stream != NULL; stream = stream->next)
		held += stream_held(stream);
	return held;
}

/* ---- the end ------------------------------------------------------------------------- */

void streams_close(struct runner *runner)
{
	for (struct stream *stream = runner->streams; stream != NULL; stream = stream->next)
		stream_close(stream, "drained");
}

bool streams_have_processes(const struct runner *runner)
{
	for (struct stream *stream = runner->streams; stream != NULL; stream = stream->next)
		if (stream_has_processes(stream))
			return true;
	return false;
}

void streams_stop(struct runner *runner, enum resident_stop why)
{
	for (struct stream *stream = runner->streams; stream != NULL; stream = stream->next)
		stream_stop(stream, why);
}

void streams_kill(struct runner *runner, enum resident_stop why)
{
	for (struct stream *stream = runner->streams; stream != NULL; stream = stream->next)
		stream_kill(stream, why);
}
