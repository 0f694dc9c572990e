#include "streams.h"

#include <stdlib.h>

#include "clock.h"
#include "log.h"
#include "report.h"
#include "unstarted.h"

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
	struct streams *streams = ctx;

	log_event(LOG_DEBUG, "job_answered", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_STR("kind", job->frame.kind),
		LOG_TEXT("outcome", outcome_name(how->outcome)), LOG_TEXT("code", how->code),
		LOG_INT("ms", how->duration_us / 1000));
	report_answered(job, str_of(streams->results->worker), how);
	results_add(streams->results, job);
}

void streams_init(struct streams *streams, const struct stream_options *options,
	struct kinds *kinds, struct results *results)
{
	*streams = (struct streams){
		.options = *options,
		.kinds = kinds,
		.results = results,
	};
	streams->options.on_end = on_end;
	streams->options.ctx = streams;
}

static struct job *take_waiting(struct stream *stream)
{
	struct job *job = stream->waiting.first;

	if (job != NULL)
		job_list_remove(&stream->waiting, job);
	return job;
}

void streams_open(struct streams *streams)
{
	for (size_t i = 0; i < streams->kinds->handlers->count; i++) {
		struct kind *kind = &streams->kinds->items[i];
		if (kind->handler->mode != HANDLER_STREAM)
			continue;
		kind->stream = stream_new(&streams->options, kind->handler,
			jobdoc_environment_of_stream(&kind->environment, kind->handler->kind));
		kind->stream->next = streams->first;
		streams->first = kind->stream;
	}
}

void streams_release(struct streams *streams)
{
	struct stream *next;

	for (struct stream *stream = streams->first; stream != NULL; stream = next) {
		next = stream->next;
		stream_free(stream);
	}
	streams->first = NULL;
}

void streams_retire(struct streams *streams, struct job_list *waiting)
{
	for (struct stream *stream = streams->first; stream != NULL; stream = stream->next) {
		struct job *job;
		while ((job = take_waiting(stream)) != NULL)
			job_list_append(waiting, job);
		stream->retired = true;
		stream_close(stream, "handed_back");
	}
}

bool streams_use(const struct streams *streams, const struct handlers *handlers)
{
	for (struct stream *stream = streams->first; stream != NULL; stream = stream->next)
		if (stream->handler >= handlers->items &&
			stream->handler < handlers->items + handlers->count)
			return true;
	return false;
}

/* ---- what waits ---------------------------------------------------------------------- */

static void hand_back(struct streams *streams, struct stream *stream, const char *code,
	int64_t after_ms)
{
	struct job *job;

	while ((job = take_waiting(stream)) != NULL)
		unstarted_hand_back(streams->results, job, code, after_ms);
}

void streams_hand_back(struct streams *streams, const char *code, int64_t after_ms)
{
	for (struct stream *stream = streams->first; stream != NULL; stream = stream->next)
		hand_back(streams, stream, code, after_ms);
}

bool streams_are_full(const struct streams *streams)
{
	for (struct stream *stream = streams->first; stream != NULL; stream = stream->next)
		if (stream->waiting.count > stream_window(stream))
			return true;
	return false;
}

struct job *streams_oldest(const struct streams *streams)
{
	struct job *oldest = NULL;

	for (struct stream *stream = streams->first; stream != NULL; stream = stream->next) {
		struct job *job = stream->waiting.first;
		if (job != NULL && (oldest == NULL || job->arrived_us < oldest->arrived_us))
			oldest = job;
	}
	return oldest;
}

/* ---- turning ------------------------------------------------------------------------- */

static bool is_program_lost(struct streams *streams, const struct stream *stream,
	const struct err *err)
{
	size_t index = kinds_index(streams->kinds, str_of(stream->handler->kind));
	struct kind *kind = &streams->kinds->items[index];

	/* one that has been replaced has a kind no more */
	return kind->stream == stream && kind_is_lost(kind, err);
}

/* As where a handler is started for each job: what the host is short of is not charged, what
 * is wrong with the handler is. */
static void start_failed(struct streams *streams, struct stream *stream,
	const struct err *err)
{
	bool is_shortage = err->class == ERR_OS;
	bool is_lost = !is_shortage && is_program_lost(streams, stream, err);
	struct job *job;

	if (!is_lost)
		log_event(is_shortage ? LOG_ERROR : LOG_WARNING,
			is_shortage ? "spawn_failed" : "exec_failed",
			LOG_TEXT("kind", stream->handler->kind), LOG_TEXT("error", err->text));
	if (stream_has_processes(stream))
		return;
	if (is_shortage || is_lost)
		hand_back(streams, stream, is_lost ? "no_handler" : "spawn_failed",
			UNSTARTED_LATER_MS);
	while ((job = take_waiting(stream)) != NULL)
		unstarted_fail(streams->results, job, "exec_failed", str_of(err->text));
}

void streams_turn(struct streams *streams)
{
	/* What handlers that were killed with the lease have not seen. */
	if (!lease_is_valid(streams->options.lease, clock_us()))
		streams_hand_back(streams, "claim_late", UNSTARTED_LATER_MS);
	for (struct stream **link = &streams->first; *link != NULL;) {
		struct stream *stream = *link;
		struct err err = ERR_INIT;
		if (stream_turn(stream, &err) != 0)
			start_failed(streams, stream, &err);
		if (stream_is_down(stream))
			hand_back(streams, stream, "stream_down", UNSTARTED_LATER_MS);
		if (stream->retired && !stream_has_processes(stream)) {
			*link = stream->next;
			stream_free(stream);
		} else {
			link = &stream->next;
		}
	}
}

size_t streams_held(const struct streams *streams)
{
	size_t held = 0;

	for (struct stream *stream = streams->first; stream != NULL; stream = stream->next)
		held += stream_held(stream);
	return held;
}

/* ---- the end ------------------------------------------------------------------------- */

void streams_close(struct streams *streams)
{
	for (struct stream *stream = streams->first; stream != NULL; stream = stream->next)
		stream_close(stream, "drained");
}

bool streams_have_processes(const struct streams *streams)
{
	for (struct stream *stream = streams->first; stream != NULL; stream = stream->next)
		if (stream_has_processes(stream))
			return true;
	return false;
}

void streams_stop(struct streams *streams, enum resident_stop why)
{
	for (struct stream *stream = streams->first; stream != NULL; stream = stream->next)
		stream_stop(stream, why);
}

void streams_kill(struct streams *streams, enum resident_stop why)
{
	for (struct stream *stream = streams->first; stream != NULL; stream = stream->next)
		stream_kill(stream, why);
}
