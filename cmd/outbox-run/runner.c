#include "runner.h"

#include "clock.h"
#include "log.h"
#include "unstarted.h"

#define STALE_US INT64_C(1000000) /* a job that came for credit waits at most so long */

static struct loop *loop_of(const struct runner *runner)
{
	return runner->options.attempts.loop;
}

/* ---- jobs that wait: in the queue of the slots, or for their stream ------------------ */

static struct stream *stream_of(const struct runner *runner, const struct job *job)
{
	return runner->kinds.items[job->kind].stream;
}

static void start_waiting(struct runner *runner, struct job *job)
{
	struct stream *stream = stream_of(runner, job);

	if (stream != NULL)
		job_list_append(&stream->waiting, job);
	else
		slots_put(&runner->slots, job);
}

static void stop_waiting(struct runner *runner, struct job *job)
{
	struct stream *stream = stream_of(runner, job);

	if (stream != NULL)
		job_list_remove(&stream->waiting, job);
	else
		slots_remove(&runner->slots, job);
}

static void hand_back_all(struct runner *runner, const char *code, int64_t after_ms)
{
	slots_hand_back(&runner->slots, code, after_ms);
	streams_hand_back(&runner->streams, code, after_ms);
}

static struct job *oldest_waiting(const struct runner *runner)
{
	struct job *job = runner->slots.queue.first;
	struct job *other = streams_oldest(&runner->streams);

	return other != NULL && (job == NULL || other->arrived_us < job->arrived_us) ? other
																				 : job;
}

/* Asking ahead was wrong: whatever occupies the slots is not quick. */
static void on_stale(void *ctx)
{
	struct runner *runner = ctx;
	int64_t before_us = clock_us() - STALE_US;
	struct job *job;

	while ((job = oldest_waiting(runner)) != NULL && job->arrived_us <= before_us) {
		if (stream_of(runner, job) == NULL)
			slots_note_slow(&runner->slots);
		stop_waiting(runner, job);
		unstarted_hand_back(runner->results, job, "handed_back", -1);
	}
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

static void on_look(void *ctx)
{
	(void)ctx; /* the turn that follows looks */
}

static void look_for_programs(struct runner *runner)
{
	int64_t wait_us = kinds_look(&runner->kinds);

	if (wait_us >= 0 && runner->look_timer.at_us == 0)
		loop_set_timer(loop_of(runner), &runner->look_timer, wait_us);
}

void runner_turn(struct runner *runner)
{
	look_for_programs(runner);
	slots_turn(&runner->slots);
	streams_turn(&runner->streams);
	watch_waiting(runner);
}

/* ---- jobs that arrive ---------------------------------------------------------------- */

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

/* Enqueued before the kind had its schema of today. */
static void refuse_payload(struct runner *runner, struct job *job)
{
	log_event(LOG_WARNING, "invalid_payload", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_STR("kind", job->frame.kind));
	unstarted_fail(runner->results, job, "invalid_payload", job->frame.issues);
}

void runner_accept(struct runner *runner, const void *frame, size_t length)
{
	struct job *job = take_in(runner, frame, length);

	if (job == NULL)
		return;
	job->arrived_us = clock_us();
	lease_note_db_time(&runner->lease, job->frame.claimed_at_us, job->arrived_us);
	if (!kinds_place(&runner->kinds, job)) {
		unstarted_hand_back(runner->results, job, "no_handler", UNSTARTED_LATER_MS);
	} else if (!lease_is_valid(&runner->lease, job->arrived_us)) {
		unstarted_hand_back(runner->results, job, "claim_late", UNSTARTED_LATER_MS);
	} else if (job->frame.issues.s != NULL) {
		refuse_payload(runner, job);
	} else if (runner->draining) {
		unstarted_hand_back(runner->results, job, "drained", -1);
	} else {
		start_waiting(runner, job);
	}
}

void runner_cancel(struct runner *runner, const struct frame_cancel *cancel)
{
	struct job *job = jobs_find(runner->jobs, cancel->job_id, cancel->attempt);

	if (job == NULL || slots_cancel(&runner->slots, job, cancel->reason))
		return;
	if (job->resident != NULL) {
		resident_cancel(job->resident, job);
	} else if (!job_has_ended(job)) {
		stop_waiting(runner, job);
		unstarted_cancel(runner->results, job, cancel->reason);
	}
}

/* ---- the lease ----------------------------------------------------------------------- */

void runner_lose_lease(struct runner *runner)
{
	lease_give_up(&runner->lease);
	loop_stop_timer(loop_of(runner), &runner->lease_timer);
	log_event(LOG_WARNING, "lease_lost", LOG_INT("killed", runner->slots.running),
		LOG_INT("streamed", streams_held(&runner->streams)),
		LOG_INT("handed_back", runner->slots.queue.count));
	slots_kill(&runner->slots, ATTEMPT_LEASE_LOST);
	streams_kill(&runner->streams, RESIDENT_LEASE_LOST);
	hand_back_all(runner, "claim_late", UNSTARTED_LATER_MS);
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

/* ---- other handlers ------------------------------------------------------------------ */

static void place_anew(struct runner *runner, struct job_list *waiting)
{
	struct job *job;

	while ((job = waiting->first) != NULL) {
		job_list_remove(waiting, job);
		if (kinds_place(&runner->kinds, job))
			start_waiting(runner, job);
		else
			unstarted_hand_back(runner->results, job, "no_handler", UNSTARTED_LATER_MS);
	}
}

void runner_reload(struct runner *runner, const struct handlers *handlers)
{
	struct job_list waiting = runner->slots.queue;

	runner->slots.queue = (struct job_list){0};
	streams_retire(&runner->streams, &waiting);
	kinds_release(&runner->kinds);
	kinds_init(&runner->kinds, handlers, runner->options.pass_env);
	slots_recount(&runner->slots);
	streams_open(&runner->streams);
	place_anew(runner, &waiting);
}

bool runner_uses(const struct runner *runner, const struct handlers *handlers)
{
	return slots_use(&runner->slots, handlers) || streams_use(&runner->streams, handlers);
}

/* ---- the end ------------------------------------------------------------------------- */

static void on_grace_end(void *ctx)
{
	struct runner *runner = ctx;

	slots_stop(&runner->slots, ATTEMPT_INTERRUPTED);
	streams_stop(&runner->streams, RESIDENT_INTERRUPTED);
}

void runner_drain(struct runner *runner)
{
	if (runner->draining)
		return;
	runner->draining = runner->slots.draining = true;
	log_event(LOG_INFO, "draining", LOG_INT("running", runner->slots.running),
		LOG_INT("streamed", streams_held(&runner->streams)),
		LOG_INT("handed_back", runner->slots.queue.count));
	hand_back_all(runner, "drained", -1);
	streams_close(&runner->streams);
	loop_set_timer(loop_of(runner), &runner->grace_timer,
		runner->options.grace_ms * 1000);
}

void runner_leave(struct runner *runner)
{
	runner_drain(runner);
	slots_kill(&runner->slots, ATTEMPT_INTERRUPTED);
	streams_kill(&runner->streams, RESIDENT_INTERRUPTED);
}

bool runner_is_idle(const struct runner *runner)
{
	return slots_held(&runner->slots) == 0 && streams_held(&runner->streams) == 0;
}

bool runner_dismiss(struct runner *runner)
{
	streams_close(&runner->streams);
	return !streams_have_processes(&runner->streams);
}

/* ---- parts --------------------------------------------------------------------------- */

static void init_slots(struct runner *runner)
{
	const struct slots_options options = {
		.count = runner->options.slots,
		.asks_ahead = runner->options.by_credit,
		.attempts = runner->options.attempts,
		.kinds = &runner->kinds,
		.results = runner->results,
		.lease = &runner->lease,
	};

	slots_init(&runner->slots, &options);
}

static void init_streams(struct runner *runner)
{
	const struct attempt_options *attempts = &runner->options.attempts;
	const struct stream_options options = {
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
	};

	streams_init(&runner->streams, &options, &runner->kinds, runner->results);
}

void runner_init(struct runner *runner, const struct runner_options *options,
	const struct handlers *handlers, struct jobs *jobs, struct results *results)
{
	*runner = (struct runner){
		.options = *options,
		.jobs = jobs,
		.results = results,
		.lease_timer = {.fn = on_lease_end, .ctx = runner},
		.stale_timer = {.fn = on_stale, .ctx = runner},
		.grace_timer = {.fn = on_grace_end, .ctx = runner},
		.look_timer = {.fn = on_look},
	};
	kinds_init(&runner->kinds, handlers, options->pass_env);
	init_slots(runner);
	init_streams(runner);
	streams_open(&runner->streams);
}

void runner_release(struct runner *runner)
{
	loop_stop_timer(loop_of(runner), &runner->lease_timer);
	loop_stop_timer(loop_of(runner), &runner->stale_timer);
	loop_stop_timer(loop_of(runner), &runner->grace_timer);
	loop_stop_timer(loop_of(runner), &runner->look_timer);
	slots_release(&runner->slots);
	streams_release(&runner->streams);
	kinds_release(&runner->kinds);
}
