#include "stream.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "excerpt.h"
#include "log.h"
#include "outcome.h"

#define FIRST_LIMIT 8            /* jobs that a new process is given */
#define QUICK_US INT64_C(250000) /* answers within this: it may have more at once */
#define SLOW_US INT64_C(1000000) /* answers after this: less */
#define PAUSE_MIN_MS INT64_C(100)
#define PAUSE_MAX_MS INT64_C(30000)
#define LOGGED_STDERR_BYTES 1024
#define DOWN_MS INT64_C(1000) /* pauses from here on: jobs do not wait */

/* ---- the limit of a process ---------------------------------------------------------- */

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static size_t window_of(const struct stream *stream)
{
	return (size_t)stream->handler->window;
}

/* What it is given without having answered anything. */
static size_t first_limit(const struct stream *stream)
{
	size_t told = (size_t)stream->handler->concurrency, seats = stream->seats_count;

	return least(told > 0 ? (told + seats - 1) / seats : FIRST_LIMIT, window_of(stream));
}

static void adapt_limit(struct stream_seat *seat, int64_t duration_us)
{
	const struct stream *stream = seat->stream;
	size_t first = first_limit(stream);

	if (seat->limit < window_of(stream) &&
		(seat->limit < first || duration_us < QUICK_US))
		seat->limit++;
	else if (seat->limit > first && duration_us > SLOW_US)
		seat->limit--;
}

/* ---- how attempts end ---------------------------------------------------------------- */

static void end(struct stream *stream, struct job *job, struct report_answered *how)
{
	how->handler = stream->handler;
	how->started_at_us = lease_db_now_us(stream->options->lease, job->started_us);
	how->max_response_bytes = stream->options->max_response_bytes;
	how->max_error_bytes = stream->options->residents.max_error_bytes;
	stream->given--;
	stream->options->on_end(stream->options->ctx, job, how);
}

static const char *code_of(const struct outcome_document *document)
{
	if (document->outcome == OUTCOME_OK)
		return "";
	return document->code != NULL ? document->code : outcome_name(document->outcome);
}

static void on_answer(struct resident *resident, struct job *job,
	const struct answer *answer, const struct err *err)
{
	struct stream_seat *seat = resident->ctx;
	struct report_answered how = {
		.duration_us = resident->read_us - job->started_us,
		.exit_status = -1,
	};

	if (err->class == ERR_NONE) {
		how.outcome = answer->document.outcome;
		how.code = code_of(&answer->document);
		how.answer = answer;
	} else {
		how.outcome = OUTCOME_RETRY;
		how.code = "bad_outcome";
		how.error = err->text;
	}
	seat->pause_ms = 0;
	pace_note_end(&seat->stream->pace);
	adapt_limit(seat, how.duration_us);
	end(seat->stream, job, &how);
}

static void describe_exit(const struct resident *resident, char *text, size_t size)
{
	if (resident->signal_number == 0)
		snprintf(text, size, "the handler exited with status %d", resident->exit_status);
	else
		snprintf(text, size, "the handler%s was ended by signal %d",
			resident->stop == RESIDENT_MUTE ? " closed its stdin or stdout and" : "",
			resident->signal_number);
}

/* How the attempt of a job ends with the process. */
static void judge(const struct stream *stream, const struct resident *resident,
	const struct job *job, struct report_answered *how)
{
	enum resident_stop stop = resident->stop;

	how->outcome = OUTCOME_RELEASE;
	how->code = stream->closed;
	if (!resident_has_seen(resident, job))
		return;
	/* Who told the runner to stop may have told all others of its control group, too. (Mute:
	 * that its outputs have ended was seen before that it has.) */
	if (stream->closed != NULL && resident->signal_number == SIGTERM &&
		(stop == RESIDENT_NOT_STOPPED || stop == RESIDENT_DISMISSED ||
			stop == RESIDENT_MUTE))
		stop = RESIDENT_INTERRUPTED;
	switch (stop) {
	case RESIDENT_LEASE_LOST:
		how->code = "lease_lost";
		return;
	case RESIDENT_INTERRUPTED:
		how->code = "interrupted";
		return;
	case RESIDENT_TIMEOUT:
		how->code = "stream_restarted";
		if (job != resident->late)
			return;
		how->outcome = OUTCOME_RETRY;
		how->code = "timeout";
		break;
	case RESIDENT_NOT_STOPPED:
	case RESIDENT_DISMISSED:
	case RESIDENT_MUTE:
		how->outcome = OUTCOME_LOST;
		how->code = "handler_lost";
		break;
	}
	how->tail = &resident->error;
}

static void end_given(struct stream *stream, struct resident *resident, struct job *job)
{
	char text[128];
	struct report_answered how = {
		.duration_us = clock_us() - job->started_us,
		.exit_status = resident->exit_status,
		.signal_number = resident->signal_number,
		.error = text,
	};

	job_list_remove(&resident->given, job);
	judge(stream, resident, job, &how);
	describe_exit(resident, text, sizeof(text));
	if (how.outcome == OUTCOME_RELEASE)
		how.error = NULL;
	else if (resident->stop == RESIDENT_TIMEOUT)
		snprintf(text, sizeof(text), "no answer within %" PRId64 " ms",
			stream->handler->timeout_ms);
	end(stream, job, &how);
}

/* ---- the exit of a process ----------------------------------------------------------- */

/* Jobs that it has not seen go back to where they came from, for the next process. */
static void take_back_unseen(struct stream *stream, struct resident *resident)
{
	struct job_list unseen = {0};
	int64_t now_us = clock_us();

	for (struct job *next, *job = resident->given.first; job != NULL; job = next) {
		next = job->next;
		job->resident = NULL;
		job->arrived_us = now_us; /* as if it came just now */
		if (resident_has_seen(resident, job))
			continue;
		job_list_remove(&resident->given, job);
		job_list_append(&unseen, job);
		stream->given--;
	}
	job_list_prepend_all(&stream->waiting, &unseen);
}

static void pause_seat(struct stream_seat *seat)
{
	seat->pause_ms *= 2;
	if (seat->pause_ms < PAUSE_MIN_MS)
		seat->pause_ms = PAUSE_MIN_MS;
	if (seat->pause_ms > PAUSE_MAX_MS)
		seat->pause_ms = PAUSE_MAX_MS;
	loop_set_timer(seat->stream->options->residents.loop, &seat->pause,
		seat->pause_ms * 1000);
}

static void log_exit(const struct stream_seat *seat, bool is_crash, size_t ended)
{
	const struct resident *resident = &seat->resident;
	const struct excerpt excerpt = excerpt_of_tail(LOGGED_STDERR_BYTES);
	struct buf tail;

	buf_init(&tail, LOGGED_STDERR_BYTES);
	if (is_crash)
		excerpt_put_capture(&tail, &resident->error, &excerpt, resident->handler);
	log_event(is_crash ? LOG_WARNING : LOG_INFO, "stream_exited",
		LOG_TEXT("kind", resident->handler->kind), LOG_INT("handler_pid", resident->pid),
		LOG_INT("exit", resident->exit_status),
		LOG_INT("signal", resident->signal_number), LOG_INT("jobs_ended", ended),
		LOG_INT("jobs_waiting", seat->stream->waiting.count),
		LOG_STR("stderr", tail.len > 0 ? ((struct str){tail.data, tail.len}) : STR_NULL),
		LOG_INT("pause_ms", seat->pause.at_us == 0 ? 0 : seat->pause_ms));
	buf_release(&tail);
}

/* To leave with status 0 and no job is a handler's right. */
static void on_exit_of_resident(struct resident *resident)
{
	struct stream_seat *seat = resident->ctx;
	struct stream *stream = seat->stream;

	if (stream->closed == NULL)
		take_back_unseen(stream, resident);
	size_t ended = resident->given.count;
	bool is_told = resident->stop == RESIDENT_DISMISSED ||
		resident->stop == RESIDENT_INTERRUPTED || resident->stop == RESIDENT_LEASE_LOST;
	bool is_crash = !is_told && (ended > 0 || resident->exit_status != 0);

	seat->has_crashed = is_crash;
	if (is_crash || (!is_told && !resident->has_answered))
		pause_seat(seat);
	while (resident->given.first != NULL)
		end_given(stream, resident, resident->given.first);
	log_exit(seat, is_crash, ended);
}

/* ---- turning ------------------------------------------------------------------------- */

static bool is_pausing(const struct stream_seat *seat)
{
	return seat->pause.at_us != 0;
}

static void on_pause_end(void *ctx)
{
	(void)ctx; /* the turn that follows starts it */
}

static size_t room_of(const struct stream_seat *seat)
{
	size_t given = seat->resident.given.count;

	if (!resident_is_open(&seat->resident) || seat->limit <= given)
		return 0;
	return seat->limit - given;
}

/* The process that can take most, or NULL. */
static struct stream_seat *freest(const struct stream *stream)
{
	struct stream_seat *best = NULL;
	size_t most = 0;

	for (size_t i = 0; i < stream->seats_count; i++) {
		struct stream_seat *seat = &stream->seats[i];
		if (room_of(seat) > most) {
			best = seat;
			most = room_of(seat);
		}
	}
	return best;
}

static size_t concurrency(const struct stream *stream)
{
	int64_t limit = stream->handler->concurrency;

	return limit > 0 ? (size_t)limit : SIZE_MAX;
}

static int start(struct stream_seat *seat, struct err *err)
{
	const struct stream *stream = seat->stream;

	if (resident_start(&seat->resident, stream->envp, err) != 0) {
		pause_seat(seat);
		return -1;
	}
	seat->limit = seat->has_crashed ? 1 : first_limit(stream);
	log_event(LOG_DEBUG, "stream_started", LOG_TEXT("kind", stream->handler->kind),
		LOG_INT("handler_pid", seat->resident.pid));
	return 0;
}

/* As many as there is work for. */
static int start_what_is_needed(struct stream *stream, struct err *err)
{
	size_t wanted = least(stream->waiting.count, concurrency(stream) - stream->given);
	size_t room = 0;
	int result = 0;

	for (size_t i = 0; i < stream->seats_count; i++)
		room += room_of(&stream->seats[i]);
	for (size_t i = 0; i < stream->seats_count && room < wanted; i++) {
		struct stream_seat *seat = &stream->seats[i];
		if (seat->resident.step != RESIDENT_OFF || is_pausing(seat))
			continue;
		if (start(seat, result == 0 ? err : NULL) != 0)
			result = -1;
		room += room_of(seat);
	}
	return result;
}

static void give(struct stream *stream)
{
	int64_t timeout_us = stream->handler->timeout_ms * 1000;
	int64_t now_us = clock_us();
	int64_t db_now_us = lease_db_now_us(stream->options->lease, now_us);
	int64_t deadline_us = db_now_us == 0 ? 0 : db_now_us + timeout_us;
	struct stream_seat *seat;

	while (stream->waiting.first != NULL && stream->given < concurrency(stream) &&
		(seat = freest(stream)) != NULL) {
		struct job *job = stream->waiting.first;
		job_list_remove(&stream->waiting, job);
		stream->given++;
		resident_put(&seat->resident, job, now_us, deadline_us);
	}
}

static void dismiss_idle(struct stream *stream)
{
	for (size_t i = 0; i < stream->seats_count; i++)
		if (stream->seats[i].resident.given.count == 0)
			resident_dismiss(&stream->seats[i].resident);
}

int stream_turn(struct stream *stream, struct err *err)
{
	int result = 0;

	pace_turn(&stream->pace);
	if (stream->closed != NULL) {
		dismiss_idle(stream);
	} else {
		result = start_what_is_needed(stream, err);
		give(stream);
	}
	for (size_t i = 0; i < stream->seats_count; i++)
		resident_flush(&stream->seats[i].resident);
	return result;
}

/* ---- how much more ------------------------------------------------------------------- */

bool stream_is_down(const struct stream *stream)
{
	for (size_t i = 0; i < stream->seats_count; i++)
		if (!is_pausing(&stream->seats[i]) || stream->seats[i].pause_ms < DOWN_MS)
			return false;
	return true;
}

size_t stream_held(const struct stream *stream)
{
	return stream->given + stream->waiting.count;
}

/* A process that will be started when a job comes counts. */
size_t stream_window(const struct stream *stream)
{
	size_t limit = 0;

	for (size_t i = 0; i < stream->seats_count; i++) {
		const struct stream_seat *seat = &stream->seats[i];
		if (seat->resident.step == RESIDENT_RUNNING)
			limit += seat->limit;
		else if (seat->resident.step == RESIDENT_OFF && !is_pausing(seat))
			limit += seat->has_crashed ? 1 : first_limit(stream);
	}
	limit = least(limit, concurrency(stream));
	return limit == 0 ? 0 : least(limit + stream->pace.ahead, stream->options->window);
}

size_t stream_capacity(const struct stream *stream)
{
	size_t window = stream->closed != NULL ? 0 : stream_window(stream);
	size_t held = stream_held(stream);

	return window > held ? window - held : 0;
}

/* ---- the end ------------------------------------------------------------------------- */

void stream_close(struct stream *stream, const char *code)
{
	stream->closed = code;
	stream->envp = NULL;
	dismiss_idle(stream);
}

bool stream_has_processes(const struct stream *stream)
{
	for (size_t i = 0; i < stream->seats_count; i++)
		if (stream->seats[i].resident.step != RESIDENT_OFF)
			return true;
	return false;
}

void stream_stop(struct stream *stream, enum resident_stop why)
{
	for (size_t i = 0; i < stream->seats_count; i++)
		resident_stop(&stream->seats[i].resident, why);
}

void stream_kill(struct stream *stream, enum resident_stop why)
{
	for (size_t i = 0; i < stream->seats_count; i++)
		resident_kill(&stream->seats[i].resident, why);
}

struct stream *stream_new(const struct stream_options *options,
	const struct handler *handler, char *const *envp)
{
	struct stream *stream = mem_alloc(1, sizeof(*stream));

	*stream = (struct stream){
		.options = options,
		.handler = handler,
		.envp = envp,
		.seats_count = (size_t)handler->processes,
	};
	pace_init(&stream->pace);
	stream->seats = mem_alloc(stream->seats_count, sizeof(*stream->seats));
	for (size_t i = 0; i < stream->seats_count; i++) {
		struct stream_seat *seat = &stream->seats[i];
		seat->stream = stream;
		seat->pause.fn = on_pause_end;
		seat->resident.options = &options->residents;
		seat->resident.handler = handler;
		seat->resident.on_answer = on_answer;
		seat->resident.on_exit = on_exit_of_resident;
		seat->resident.ctx = seat;
		resident_init(&seat->resident);
	}
	return stream;
}

void stream_free(struct stream *stream)
{
	for (size_t i = 0; i < stream->seats_count; i++) {
		loop_stop_timer(stream->options->residents.loop, &stream->seats[i].pause);
		resident_release(&stream->seats[i].resident);
	}
	free(stream->seats);
	free(stream);
}
