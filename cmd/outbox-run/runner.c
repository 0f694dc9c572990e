#include "runner.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "streams.h"

#define SHORT_ATTEMPT_US \
	INT64_C(50000) /* below this average jobs are asked for ahead of time */
#define STALE_US INT64_C(1000000) /* a job waits here at most so long */
#define PAUSE_MIN_MS 1000
#define PAUSE_MAX_MS 30000
#define AVERAGE_WEIGHT 8 /* the newest duration counts for one in so many */

static struct loop *loop_of(const struct runner *runner)
{
	return runner->options.attempts.loop;
}

static const struct handler *handler_of(const struct runner *runner,
	const struct job *job)
{
	return &runner->handlers->items[job->kind];
}

/* ---- jobs that are not started ------------------------------------------------------- */

void runner_report(struct runner *runner, struct job *job,
	const struct report_unstarted *report)
{
	report_unstarted(job, str_of(runner->worker), report);
	results_add(runner->results, job);
}

void runner_hand_back(struct runner *runner, struct job *job, const char *code,
	int64_t after_ms)
{
	const struct report_unstarted unstarted = {.outcome = OUTCOME_RELEASE,
		.code = code,
		.after_ms = after_ms};

	log_event(LOG_INFO, "job_handed_back", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_STR("kind", job->frame.kind),
		LOG_TEXT("code", code));
	runner_report(runner, job, &unstarted);
}

/* Where jobs of the kind wait. */
static struct job_list *queue_of(struct runner *runner, const struct job *job)
{
	struct stream *stream = runner->kinds[job->kind].stream;

	return stream != NULL ? &stream->waiting : &runner->queue;
}

static void queue_append(struct runner *runner, struct job *job)
{
	job_list_append(queue_of(runner, job), job);
	runner->kinds[job->kind].queued += runner->kinds[job->kind].stream == NULL;
}

static void queue_remove(struct runner *runner, struct job *job)
{
	job_list_remove(queue_of(runner, job), job);
	runner->kinds[job->kind].queued -= runner->kinds[job->kind].stream == NULL;
}

/* Those that wait for a slot. */
static void hand_back_queue(struct runner *runner, const char *code, int64_t after_ms)
{
	while (runner->queue.first != NULL) {
		struct job *job = runner->queue.first;
		queue_remove(runner, job);
		runner_hand_back(runner, job, code, after_ms);
	}
}

static void hand_back_all(struct runner *runner, const char *code, int64_t after_ms)
{
	hand_back_queue(runner, code, after_ms);
	streams_hand_back(runner, code, after_ms);
}

static struct job *oldest_waiting(const struct runner *runner)
{
	struct job *job = runner->queue.first, *other = streams_oldest(runner);

	return other != NULL && (job == NULL || other->arrived_us < job->arrived_us) ? other
																				 : job;
}

/* Prefetching was wrong: whatever occupies the slots is not short. */
static void on_stale(void *ctx)
{
	struct runner *runner = ctx;
	int64_t before_us = clock_us() - STALE_US;
	struct job *job;

	while ((job = oldest_waiting(runner)) != NULL && job->arrived_us <= before_us) {
		if (job == runner->queue.first)
			runner->average_us = STALE_US;
		queue_remove(runner, job);
		runner_hand_back(runner, job, "handed_back", -1);
	}
}

/* Enqueued before the kind had its schema of today. */
static void refuse_payload(struct runner *runner, struct job *job)
{
	const struct report_unstarted refused = {
		.outcome = OUTCOME_RETRY,
		.code = "invalid_payload",
		.error = job->frame.issues,
		.after_ms = -1,
	};

	log_event(LOG_WARNING, "invalid_payload", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_STR("kind", job->frame.kind));
	runner_report(runner, job, &refused);
}

/* NULL: there is none of its kind, or not of the version that it asks for. */
static const struct handler *find_handler(const struct runner *runner,
	const struct job *job)
{
	const struct handler *handler = handlers_find(runner->handlers, job->frame.kind);

	return handler != NULL && handler->version >= job->frame.version ? handler : NULL;
}

static size_t kind_index(const struct runner *runner, const struct handler *handler)
{
	return handler != NULL ? (size_t)(handler - runner->handlers->items)
						   : runner->handlers->count;
}

/*
 * NULL: it does not decode, or the attempt is held already. Held by another claim means that
 * the database has lost that claim in a crash and has made this one: nothing will be accepted
 * for the old one. What still runs goes on for the new claim; what has ended runs again.
 */
static struct job *take_in(struct runner *runner, const void *frame, size_t length)
{
	struct job *job = job_new(frame, length);
	struct job *held = job == NULL ? NULL
								   : jobs_find(runner->jobs, job->id, job->attempt);

	if (held != NULL && !job_is_same_claim(held, job) && job_has_ended(held)) {
		results_forget(runner->results, held);
		held = NULL;
	}
	if (held != NULL) {
		job_move_to_claim_of(held, job);
		job_free(job);
		return NULL;
	}
	if (job != NULL)
		jobs_add(runner->jobs, job);
	return job;
}

void runner_accept(struct runner *runner, const void *frame, size_t length)
{
	struct job *job = take_in(runner, frame, length);

	if (job == NULL)
		return;
	job->arrived_us = clock_us();
	lease_note_db_time(&runner->lease, job->frame.claimed_at_us, job->arrived_us);
	const struct handler *handler = find_handler(runner, job);
	if (handler == NULL) {
		runner_hand_back(runner, job, "no_handler", RUNNER_LATER_MS);
		return;
	}
	job->kind = kind_index(runner, handler);
	if (!lease_is_valid(&runner->lease, job->arrived_us)) {
		runner_hand_back(runner, job, "claim_late", RUNNER_LATER_MS);
	} else if (job->frame.issues.s != NULL) {
		refuse_payload(runner, job);
	} else if (runner->draining) {
		runner_hand_back(runner, job, "drained", -1);
	} else {
		queue_append(runner, job);
	}
}

/* ---- starting ------------------------------------------------------------------------ */

static bool is_paused(const struct runner *runner)
{
	return runner->pause_timer.at_us != 0;
}

static void on_pause_end(void *ctx)
{
	(void)ctx; /* the turn that follows tries again */
}

/* The host is out of processes, descriptors or memory. Nothing is charged to any job. */
static void pause_starting(struct runner *runner, const struct err *err)
{
	runner->pause_ms *= 2;
	if (runner->pause_ms < PAUSE_MIN_MS)
		runner->pause_ms = PAUSE_MIN_MS;
	if (runner->pause_ms > PAUSE_MAX_MS)
		runner->pause_ms = PAUSE_MAX_MS;
	log_event(LOG_ERROR, "spawn_failed", LOG_TEXT("error", err->text),
		LOG_INT("pause_ms", runner->pause_ms));
	loop_set_timer(loop_of(runner), &runner->pause_timer, runner->pause_ms * 1000);
	hand_back_queue(runner, "spawn_failed", RUNNER_LATER_MS);
}

static void start_failed(struct runner *runner, struct job *job, const struct err *err)
{
	if (err->class == ERR_OS) {
		runner_hand_back(runner, job, "spawn_failed", RUNNER_LATER_MS);
		pause_starting(runner, err);
		return;
	}
	const struct report_unstarted failed = {
		.outcome = OUTCOME_RETRY,
		.code = "exec_failed",
		.error = str_of(err->text),
		.after_ms = -1,
	};
	log_event(LOG_WARNING, "exec_failed", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_STR("kind", job->frame.kind),
		LOG_TEXT("error", err->text));
	runner_report(runner, job, &failed);
}

static size_t free_slot(const struct runner *runner)
{
	size_t slot = 0;

	while (runner->slots[slot] != NULL)
		slot++;
	return slot;
}

static void start(struct runner *runner, struct job *job)
{
	const struct handler *handler = handler_of(runner, job);
	struct runner_kind *kind = &runner->kinds[job->kind];
	int64_t started_at_us = lease_db_now_us(&runner->lease, clock_us());
	/* Not known where a pipe did not begin with a hello. */
	int64_t deadline_us = started_at_us == 0 ? 0
											 : started_at_us + handler->timeout_ms * 1000;
	struct err err = ERR_INIT;
	const struct attempt_start start = {
		.handler = handler,
		.job = job,
		.slot = free_slot(runner),
		.envp = jobdoc_environment_of(&kind->environment, &job->frame, deadline_us),
		.started_at_us = started_at_us,
		.deadline_us = deadline_us,
	};

	queue_remove(runner, job);
	struct attempt *attempt = attempt_new(&runner->options.attempts, &start, &err);
	if (attempt == NULL) {
		start_failed(runner, job, &err);
		return;
	}
	runner->pause_ms = 0;
	runner->slots[start.slot] = attempt;
	runner->running++;
	kind->running++;
	log_event(LOG_DEBUG, "handler_started", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_TEXT("kind", handler->kind),
		LOG_INT("handler_pid", attempt->child.pid));
}

static bool kind_has_room(const struct runner *runner, const struct job *job)
{
	int64_t limit = handler_of(runner, job)->concurrency;

	return limit == 0 || (int64_t)runner->kinds[job->kind].running < limit;
}

static void watch_waiting(struct runner *runner)
{
	const struct job *job = runner->options.by_credit ? oldest_waiting(runner) : NULL;

	if (job == NULL)
		loop_stop_timer(loop_of(runner), &runner->stale_timer);
	else
		loop_set_timer(loop_of(runner), &runner->stale_timer,
			job->arrived_us + STALE_US - clock_us());
}

void runner_turn(struct runner *runner)
{
	struct job *next;

	for (struct job *job = runner->queue.first; job != NULL; job = next) {
		if (is_paused(runner) || runner->running == runner->options.slots)
			break;
		next = job->next;
		if (!kind_has_room(runner, job))
			continue;
		start(runner, job);
		if (is_paused(runner)) /* and the queue has been handed back */
			break;
	}
	streams_turn(runner);
	watch_waiting(runner);
}

/* ---- ending -------------------------------------------------------------------------- */

static void note_duration(struct runner *runner, const struct attempt *attempt)
{
	int64_t duration_us = attempt->duration_us;

	if (attempt->stop != ATTEMPT_NOT_STOPPED) /* would have taken longer */
		return;
	if (runner->average_us == 0)
		runner->average_us = duration_us + 1;
	runner->average_us += (duration_us - runner->average_us) / AVERAGE_WEIGHT;
}

static void log_exit(const struct attempt *attempt, enum outcome outcome,
	const char *code)
{
	log_event(outcome == OUTCOME_OK ? LOG_DEBUG : LOG_INFO, "handler_exited",
		LOG_INT("job", attempt->job->id), LOG_INT("attempt", attempt->job->attempt),
		LOG_TEXT("kind", attempt->handler->kind),
		LOG_TEXT("outcome", outcome_name(outcome)),
		LOG_TEXT("code", code[0] != '\0' ? code : NULL),
		LOG_INT("exit", attempt->exit_status), LOG_INT("signal", attempt->signal_number),
		LOG_INT("ms", attempt->duration_us / 1000));
}

static void on_attempt_end(void *ctx, struct attempt *attempt)
{
	struct runner *runner = ctx;
	struct job *job = attempt->job;
	char code[OUTCOME_MAX_CODE + 1];

	enum outcome outcome = report_ended(attempt, str_of(runner->worker), code);
	log_exit(attempt, outcome, code);
	note_duration(runner, attempt);
	runner->slots[attempt->slot] = NULL;
	runner->running--;
	runner->kinds[job->kind].running--;
	attempt_free(attempt);
	results_add(runner->results, job);
}

static struct attempt *find_attempt(const struct runner *runner, const struct job *job)
{
	for (size_t i = 0; i < runner->options.slots; i++)
		if (runner->slots[i] != NULL && runner->slots[i]->job == job)
			return runner->slots[i];
	return NULL;
}

static void cancel_attempt(struct attempt *attempt, struct str reason)
{
	if (attempt->stop != ATTEMPT_NOT_STOPPED)
		return;
	if (reason.s != NULL)
		attempt->cancel_reason = mem_strndup(reason.s, reason.n);
	attempt_stop(attempt, ATTEMPT_CANCELLED);
}

static void cancel_waiting(struct runner *runner, struct job *job, struct str reason)
{
	const struct report_unstarted cancelled = {.outcome = OUTCOME_CANCEL,
		.code = "cancelled",
		.reason = reason,
		.after_ms = -1};

	queue_remove(runner, job);
	log_event(LOG_INFO, "job_cancelled", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_STR("kind", job->frame.kind));
	runner_report(runner, job, &cancelled);
}

void runner_cancel(struct runner *runner, const struct frame_cancel *cancel)
{
	struct job *job = jobs_find(runner->jobs, cancel->job_id, cancel->attempt);
	struct attempt *attempt = job == NULL ? NULL : find_attempt(runner, job);

	if (attempt != NULL)
		cancel_attempt(attempt, cancel->reason);
	else if (job != NULL && job->resident != NULL)
		resident_cancel(job->resident, job);
	else if (job != NULL && job->result.len == 0) /* it has not ended: it waits */
		cancel_waiting(runner, job, cancel->reason);
}

static void stop_all(struct runner *runner,
	void stop(struct attempt *attempt, enum attempt_stop why), enum attempt_stop why)
{
	for (size_t i = 0; i < runner->options.slots; i++)
		if (runner->slots[i] != NULL)
			stop(runner->slots[i], why);
}

/* ---- the lease ----------------------------------------------------------------------- */

void runner_lose_lease(struct runner *runner)
{
	lease_give_up(&runner->lease);
	loop_stop_timer(loop_of(runner), &runner->lease_timer);
	log_event(LOG_WARNING, "lease_lost", LOG_INT("killed", runner->running),
		LOG_INT("streamed", streams_held(runner)),
		LOG_INT("handed_back", runner->queue.count));
	stop_all(runner, attempt_kill, ATTEMPT_LEASE_LOST);
	streams_kill(runner, RESIDENT_LEASE_LOST);
	hand_back_all(runner, "claim_late", RUNNER_LATER_MS);
}

static void on_lease_end(void *ctx)
{
	runner_lose_lease(ctx);
}

void runner_lease_changed(struct runner *runner)
{
	int64_t end_us = lease_end_us(&runner->lease);

	if (end_us != 0)
		loop_set_timer(loop_of(runner), &runner->lease_timer, end_us - clock_us());
}

/* ---- how much more ------------------------------------------------------------------- */

static bool is_prefetching(const struct runner *runner)
{
	return runner->options.by_credit && runner->average_us > 0 &&
		runner->average_us < SHORT_ATTEMPT_US;
}

/* A runner whose last start failed asks for one job, to try. */
static size_t window(const struct runner *runner)
{
	if (runner->pause_ms > 0)
		return 1;
	return runner->options.slots * (is_prefetching(runner) ? 2 : 1);
}

static size_t at_most(size_t limit, size_t used)
{
	return limit > used ? limit - used : 0;
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* There will be room for the results of so many more. */
static size_t room(const struct runner *runner)
{
	return at_most(results_room(runner->results),
		runner->running + runner->queue.count + streams_held(runner));
}

static bool may_take(const struct runner *runner)
{
	return !runner->draining && lease_is_valid(&runner->lease, clock_us());
}

size_t runner_capacity(const struct runner *runner)
{
	if (is_paused(runner) || !may_take(runner))
		return 0;
	return least(at_most(window(runner), runner->running + runner->queue.count),
		room(runner));
}

size_t runner_kind_capacity(const struct runner *runner, size_t kind, size_t free)
{
	const struct runner_kind *own = &runner->kinds[kind];
	size_t limit = (size_t)runner->handlers->items[kind].concurrency;

	if (own->stream != NULL)
		return may_take(runner) ? least(stream_capacity(own->stream), room(runner)) : 0;
	if (limit == 0)
		return free;
	return least(at_most(limit * (is_prefetching(runner) ? 2 : 1),
					 own->running + own->queued),
		free);
}

bool runner_kind_is_stream(const struct runner *runner, size_t kind)
{
	return runner->kinds[kind].stream != NULL;
}

size_t runner_kind_waiting(const struct runner *runner, size_t kind)
{
	const struct runner_kind *own = &runner->kinds[kind];

	return own->stream != NULL ? own->stream->waiting.count : own->queued;
}

size_t runner_kind_held(const struct runner *runner, size_t kind)
{
	const struct runner_kind *own = &runner->kinds[kind];

	return own->stream != NULL ? stream_held(own->stream) : own->running + own->queued;
}

size_t runner_kind_step(const struct runner *runner, size_t kind)
{
	const struct stream *stream = runner->kinds[kind].stream;

	return ((stream != NULL ? stream_window(stream) : runner->options.slots) + 1) / 2;
}

bool runner_is_full(const struct runner *runner)
{
	return runner->draining || runner->queue.count >= runner->options.slots ||
		streams_are_full(runner) || room(runner) == 0;
}

/* ---- other handlers ------------------------------------------------------------------ */

static void alloc_kinds(struct runner *runner)
{
	const struct handlers *handlers = runner->handlers;

	runner->kinds = mem_alloc(handlers->count + 1, sizeof(*runner->kinds));
	for (size_t i = 0; i < handlers->count; i++)
		jobdoc_environment_init(&runner->kinds[i].environment, &handlers->items[i],
			runner->options.pass_env);
}

static void free_kinds(struct runner *runner)
{
	for (size_t i = 0; i < runner->handlers->count; i++)
		jobdoc_environment_release(&runner->kinds[i].environment);
	free(runner->kinds);
}

/* By the handlers of now. */
static void queue_anew(struct runner *runner)
{
	struct job_list waiting = runner->queue;

	runner->queue = (struct job_list){0};
	while (waiting.first != NULL) {
		struct job *job = waiting.first;
		const struct handler *handler = find_handler(runner, job);
		job_list_remove(&waiting, job);
		job->kind = kind_index(runner, handler);
		if (handler != NULL)
			queue_append(runner, job);
		else
			runner_hand_back(runner, job, "no_handler", RUNNER_LATER_MS);
	}
}

void runner_reload(struct runner *runner, const struct handlers *handlers)
{
	streams_retire(runner);
	free_kinds(runner);
	runner->handlers = handlers;
	alloc_kinds(runner);
	streams_open(runner);
	for (size_t i = 0; i < runner->options.slots; i++) {
		struct attempt *attempt = runner->slots[i];
		if (attempt == NULL)
			continue;
		attempt->job->kind = kind_index(runner,
			handlers_find(handlers, str_of(attempt->handler->kind)));
		runner->kinds[attempt->job->kind].running++;
	}
	queue_anew(runner);
}

bool runner_uses(const struct runner *runner, const struct handlers *handlers)
{
	for (size_t i = 0; i < runner->options.slots; i++) {
		const struct attempt *attempt = runner->slots[i];
		if (attempt != NULL && attempt->handler >= handlers->items &&
			attempt->handler < handlers->items + handlers->count)
			return true;
	}
	return streams_use(runner, handlers);
}

/* ---- the end ------------------------------------------------------------------------- */

static void on_grace_end(void *ctx)
{
	struct runner *runner = ctx;

	stop_all(runner, attempt_stop, ATTEMPT_INTERRUPTED);
	streams_stop(runner, RESIDENT_INTERRUPTED);
}

void runner_drain(struct runner *runner)
{
	if (runner->draining)
		return;
	runner->draining = true;
	log_event(LOG_INFO, "draining", LOG_INT("running", runner->running),
		LOG_INT("streamed", streams_held(runner)),
		LOG_INT("handed_back", runner->queue.count));
	hand_back_all(runner, "drained", -1);
	streams_close(runner);
	loop_set_timer(loop_of(runner), &runner->grace_timer,
		runner->options.grace_ms * 1000);
}

void runner_leave(struct runner *runner)
{
	runner_drain(runner);
	stop_all(runner, attempt_kill, ATTEMPT_INTERRUPTED);
	streams_kill(runner, RESIDENT_INTERRUPTED);
}

bool runner_is_idle(const struct runner *runner)
{
	return runner->running == 0 && runner->queue.count == 0 && streams_held(runner) == 0;
}

bool runner_dismiss(struct runner *runner)
{
	streams_close(runner);
	return !streams_have_processes(runner);
}

void runner_set_worker(struct runner *runner, struct str worker)
{
	free(runner->worker);
	runner->worker = mem_strndup(worker.s, worker.n);
}

static struct loop_timer timer(void (*fn)(void *ctx), void *ctx)
{
	return (struct loop_timer){.fn = fn, .ctx = ctx};
}

void runner_init(struct runner *runner, const struct runner_options *options,
	const struct handlers *handlers, struct jobs *jobs, struct results *results,
	const char *worker)
{
	*runner = (struct runner){
		.options = *options,
		.handlers = handlers,
		.jobs = jobs,
		.results = results,
		.worker = mem_strdup(worker),
		.lease_timer = timer(on_lease_end, runner),
		.stale_timer = timer(on_stale, runner),
		.grace_timer = timer(on_grace_end, runner),
		.pause_timer = timer(on_pause_end, runner),
	};
	runner->options.attempts.on_end = on_attempt_end;
	runner->options.attempts.ctx = runner;
	runner->slots = mem_alloc(options->slots, sizeof(struct attempt *));
	alloc_kinds(runner);
	streams_init(runner);
	streams_open(runner);
}

void runner_release(struct runner *runner)
{
	struct loop_timer *timers[] = {&runner->lease_timer, &runner->stale_timer,
		&runner->grace_timer, &runner->pause_timer};

	for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
		loop_stop_timer(loop_of(runner), timers[i]);
	for (size_t i = 0; i < runner->options.slots; i++)
		if (runner->slots[i] != NULL)
			attempt_free(runner->slots[i]);
	streams_release(runner);
	free_kinds(runner);
	free(runner->slots);
	free(runner->worker);
}
