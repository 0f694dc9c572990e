#include "slots.h"

#include <signal.h>
#include <stdlib.h>

#include "clock.h"
#include "log.h"
#include "report.h"
#include "unstarted.h"

#define QUICK_US INT64_C(50000)  /* below this average attempts are quick */
#define SLOW_US INT64_C(1000000) /* what the average is taken for when they were not */
#define PAUSE_MIN_MS 1000
#define PAUSE_MAX_MS 30000
#define AVERAGE_WEIGHT 8 /* the newest duration counts for one in so many */

static struct loop *loop_of(const struct slots *slots)
{
	return slots->options.attempts.loop;
}

static struct kind *kind_of(const struct slots *slots, const struct job *job)
{
	return &slots->options.kinds->items[job->kind];
}

/* ---- what waits ---------------------------------------------------------------------- */

void slots_put(struct slots *slots, struct job *job)
{
	job_list_append(&slots->queue, job);
	kind_of(slots, job)->queued++;
}

void slots_remove(struct slots *slots, struct job *job)
{
	job_list_remove(&slots->queue, job);
	kind_of(slots, job)->queued--;
}

void slots_hand_back(struct slots *slots, const char *code, int64_t after_ms)
{
	while (slots->queue.first != NULL) {
		struct job *job = slots->queue.first;
		slots_remove(slots, job);
		unstarted_hand_back(slots->options.results, job, code, after_ms);
	}
}

/* ---- starting ------------------------------------------------------------------------ */

bool slots_are_paused(const struct slots *slots)
{
	return slots->pause_timer.at_us != 0;
}

static void on_pause_end(void *ctx)
{
	(void)ctx; /* the turn that follows tries again */
}

/* The host is out of processes, descriptors or memory. Nothing is charged to any job. */
static void pause_starting(struct slots *slots, const struct err *err)
{
	slots->pause_ms *= 2;
	if (slots->pause_ms < PAUSE_MIN_MS)
		slots->pause_ms = PAUSE_MIN_MS;
	if (slots->pause_ms > PAUSE_MAX_MS)
		slots->pause_ms = PAUSE_MAX_MS;
	log_event(LOG_ERROR, "spawn_failed", LOG_TEXT("error", err->text),
		LOG_INT("pause_ms", slots->pause_ms));
	loop_set_timer(loop_of(slots), &slots->pause_timer, slots->pause_ms * 1000);
	slots_hand_back(slots, "spawn_failed", UNSTARTED_LATER_MS);
}

static void start_failed(struct slots *slots, struct job *job, const struct err *err)
{
	if (err->class == ERR_OS) {
		unstarted_hand_back(slots->options.results, job, "spawn_failed",
			UNSTARTED_LATER_MS);
		pause_starting(slots, err);
		return;
	}
	if (kind_is_lost(kind_of(slots, job), err)) {
		unstarted_hand_back(slots->options.results, job, "no_handler",
			UNSTARTED_LATER_MS);
		return;
	}
	log_event(LOG_WARNING, "exec_failed", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_STR("kind", job->frame.kind),
		LOG_TEXT("error", err->text));
	unstarted_fail(slots->options.results, job, "exec_failed", str_of(err->text));
}

static size_t free_slot(const struct slots *slots)
{
	size_t slot = 0;

	while (slots->attempts[slot] != NULL)
		slot++;
	return slot;
}

static void start(struct slots *slots, struct job *job)
{
	struct kind *kind = kind_of(slots, job);
	int64_t started_at_us = lease_db_now_us(slots->options.lease, clock_us());
	/* Not known where a pipe did not begin with a hello. */
	int64_t deadline_us = started_at_us == 0
		? 0
		: started_at_us + kind->handler->timeout_ms * 1000;
	struct err err = ERR_INIT;
	const struct attempt_start start = {
		.handler = kind->handler,
		.job = job,
		.slot = free_slot(slots),
		.envp = jobdoc_environment_of(&kind->environment, &job->frame, deadline_us),
		.started_at_us = started_at_us,
		.deadline_us = deadline_us,
	};

	slots_remove(slots, job);
	struct attempt *attempt = attempt_new(&slots->options.attempts, &start, &err);
	if (attempt == NULL) {
		start_failed(slots, job, &err);
		return;
	}
	slots->pause_ms = 0;
	slots->attempts[start.slot] = attempt;
	slots->running++;
	kind->running++;
	log_event(LOG_DEBUG, "handler_started", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_TEXT("kind", kind->handler->kind),
		LOG_INT("handler_pid", attempt->child.pid));
}

static bool kind_has_room(const struct kind *kind)
{
	int64_t limit = kind->handler->concurrency;

	return limit == 0 || (int64_t)kind->running < limit;
}

void slots_turn(struct slots *slots)
{
	struct job *next;

	pace_turn(&slots->pace);
	for (struct job *job = slots->queue.first; job != NULL; job = next) {
		if (slots_are_paused(slots) || slots->running == slots->options.count)
			break;
		next = job->next;
		if (!kind_has_room(kind_of(slots, job)))
			continue;
		start(slots, job);
		if (slots_are_paused(slots)) /* and the queue has been handed back */
			break;
	}
}

/* ---- ending -------------------------------------------------------------------------- */

static void note_duration(struct slots *slots, const struct attempt *attempt)
{
	int64_t duration_us = attempt->duration_us;

	if (attempt->stop != ATTEMPT_NOT_STOPPED) /* would have taken longer */
		return;
	if (slots->average_us == 0)
		slots->average_us = duration_us + 1;
	slots->average_us += (duration_us - slots->average_us) / AVERAGE_WEIGHT;
}

size_t slots_window(const struct slots *slots)
{
	size_t count = slots->options.count, ahead = slots->pace.ahead;

	if (!slots->options.asks_ahead || slots->average_us == 0 ||
		slots->average_us >= QUICK_US)
		return count;
	return count + (ahead > count ? ahead : count);
}

void slots_note_slow(struct slots *slots)
{
	slots->average_us = SLOW_US;
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

/* Who tells this process to stop may tell all others of its control group, too. */
static void blame_drain(const struct slots *slots, struct attempt *attempt)
{
	if (slots->draining && attempt->stop == ATTEMPT_NOT_STOPPED &&
		attempt->signal_number == SIGTERM)
		attempt->stop = ATTEMPT_INTERRUPTED;
}

static void on_attempt_end(void *ctx, struct attempt *attempt)
{
	struct slots *slots = ctx;
	struct job *job = attempt->job;
	char code[OUTCOME_MAX_CODE + 1];

	blame_drain(slots, attempt);
	enum outcome outcome = report_ended(attempt, str_of(slots->options.results->worker),
		code);
	log_exit(attempt, outcome, code);
	note_duration(slots, attempt);
	pace_note_end(&slots->pace);
	slots->attempts[attempt->slot] = NULL;
	slots->running--;
	kind_of(slots, job)->running--;
	attempt_free(attempt);
	results_add(slots->options.results, job);
}

static void cancel_attempt(struct attempt *attempt, struct str reason)
{
	if (attempt->stop != ATTEMPT_NOT_STOPPED)
		return;
	if (reason.s != NULL)
		attempt->cancel_reason = mem_strndup(reason.s, reason.n);
	attempt_stop(attempt, ATTEMPT_CANCELLED);
}

bool slots_cancel(struct slots *slots, const struct job *job, struct str reason)
{
	for (size_t i = 0; i < slots->options.count; i++) {
		if (slots->attempts[i] == NULL || slots->attempts[i]->job != job)
			continue;
		cancel_attempt(slots->attempts[i], reason);
		return true;
	}
	return false;
}

void slots_stop(struct slots *slots, enum attempt_stop why)
{
	for (size_t i = 0; i < slots->options.count; i++)
		if (slots->attempts[i] != NULL)
			attempt_stop(slots->attempts[i], why);
}

void slots_kill(struct slots *slots, enum attempt_stop why)
{
	for (size_t i = 0; i < slots->options.count; i++)
		if (slots->attempts[i] != NULL)
			attempt_kill(slots->attempts[i], why);
}

/* ---- all of them --------------------------------------------------------------------- */

size_t slots_held(const struct slots *slots)
{
	return slots->running + slots->queue.count;
}

void slots_recount(struct slots *slots)
{
	for (size_t i = 0; i < slots->options.count; i++) {
		struct attempt *attempt = slots->attempts[i];
		if (attempt == NULL)
			continue;
		attempt->job->kind = kinds_index(slots->options.kinds,
			str_of(attempt->handler->kind));
		kind_of(slots, attempt->job)->running++;
	}
}

bool slots_use(const struct slots *slots, const struct handlers *handlers)
{
	for (size_t i = 0; i < slots->options.count; i++) {
		const struct attempt *attempt = slots->attempts[i];
		if (attempt != NULL && attempt->handler >= handlers->items &&
			attempt->handler < handlers->items + handlers->count)
			return true;
	}
	return false;
}

void slots_init(struct slots *slots, const struct slots_options *options)
{
	*slots = (struct slots){
		.options = *options,
		.attempts = mem_alloc(options->count, sizeof(struct attempt *)),
		.pause_timer = {.fn = on_pause_end},
	};
	pace_init(&slots->pace);
	slots->options.attempts.on_end = on_attempt_end;
	slots->options.attempts.ctx = slots;
}

void slots_release(struct slots *slots)
{
	loop_stop_timer(loop_of(slots), &slots->pause_timer);
	for (size_t i = 0; i < slots->options.count; i++)
		if (slots->attempts[i] != NULL)
			attempt_free(slots->attempts[i]);
	free(slots->attempts);
}
