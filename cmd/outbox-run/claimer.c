#include "claimer.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "capacity.h"
#include "clock.h"
#include "log.h"
#include "program.h"
#include "version.h"

#define BEATS_A_LEASE 3
#define FRAME_DROPPED_INTERVAL_MS 10000

_Static_assert(HANDLERS_MAX <= FRAME_MAX_KINDS, "a hello names all kinds");

static void send_frame(struct claimer *claimer, struct buf *frame)
{
	struct err err = ERR_INIT;

	/* What is lost is said again: beats and credit come again, a hello is asked for. */
	if (link_send(claimer->link, NULL, frame, &err) != 0)
		log_error(LOG_DEBUG, "send_failed", &err);
	buf_release(frame);
}

/* ---- greeting ------------------------------------------------------------------------ */

static struct frame_hello_kind *list_kinds(const struct handlers *handlers)
{
	struct frame_hello_kind *kinds = mem_alloc(handlers->count + 1, sizeof(*kinds));

	for (size_t i = 0; i < handlers->count; i++) {
		const struct handler *handler = &handlers->items[i];
		kinds[i] = (struct frame_hello_kind){
			.kind = str_of(handler->kind),
			.version = handler->version,
			.lane = str_of(handler->lane),
			.timeout_ms = handler->timeout_ms,
			.manifest = str_of(handler->manifest),
		};
	}
	return kinds;
}

static void send_hello(struct claimer *claimer)
{
	const struct runner *runner = claimer->runner;
	char host[HOST_NAME_MAX + 1] = "";
	struct frame_hello_claim *claims;
	size_t claims_count = jobs_list_claims(runner->jobs, &claims);
	struct frame_hello_kind *kinds = list_kinds(runner->kinds.handlers);
	struct buf frame;

	gethostname(host, sizeof(host) - 1);
	const struct frame_hello hello = {
		.role = STR("run"),
		.id = str_of(claimer->id),
		.epoch = claimer->epoch,
		.host = str_of(host),
		.pid = getpid(),
		.program_version = STR(OUTBOX_VERSION),
		.lane = str_of(claimer->lane),
		.slots = (int64_t)runner->options.slots,
		.kinds = kinds,
		.kinds_count = runner->kinds.handlers->count,
		.claims = claims,
		.claims_count = claims_count,
	};
	buf_init(&frame, FRAME_MAX_BYTES);
	frame_put_hello(&frame, &hello);
	claimer->hello_us = clock_us();
	send_frame(claimer, &frame);
	free(claims);
	free(kinds);
}

static void on_greeting(struct claimer *claimer, const struct frame_hello *hello)
{
	log_event(LOG_INFO, "claimer_greeted", LOG_STR("claimer", hello->id),
		LOG_INT("lease_ms", hello->lease_ms));
	claimer->epoch = hello->epoch;
	claimer->accepted = false;
	claimer->last_seq = 0;
	claimer->lease_ms = hello->lease_ms;
	claimer->granted = 0;
	loop_stop_timer(claimer->loop, &claimer->beat_timer);
	send_hello(claimer);
}

/* ---- beats --------------------------------------------------------------------------- */

static void send_beat(struct claimer *claimer, enum frame_beat_state state)
{
	const struct frame_beat beat = {.id = str_of(claimer->id),
		.count = ++claimer->beats,
		.state = state};
	struct buf frame;

	buf_init(&frame, FRAME_MAX_BYTES);
	frame_put_beat(&frame, &beat);
	lease_note_beat(&claimer->runner->lease, beat.count, clock_us());
	send_frame(claimer, &frame);
}

static void send_credit(struct claimer *claimer);

static void on_beat_timer(void *ctx)
{
	struct claimer *claimer = ctx;

	loop_set_timer(claimer->loop, &claimer->beat_timer,
		claimer->lease_ms * 1000 / BEATS_A_LEASE);
	send_beat(claimer,
		claimer->runner->draining ? FRAME_BEAT_DRAINING : FRAME_BEAT_ALIVE);
	send_credit(claimer);
}

static void on_accepted(struct claimer *claimer)
{
	struct lease *lease = &claimer->runner->lease;

	claimer->accepted = true;
	lease_set_length(lease, claimer->lease_ms);
	lease_begin(lease, claimer->hello_us);
	loop_set_timer(claimer->loop, &claimer->beat_timer,
		claimer->lease_ms * 1000 / BEATS_A_LEASE);
	log_event(LOG_INFO, "registered", LOG_TEXT("worker", claimer->id));
}

static void on_beat(struct claimer *claimer, const struct frame_beat *beat)
{
	struct runner *runner = claimer->runner;

	if (claimer->epoch == 0) /* nobody has greeted: not an answer to anything */
		return;
	if (beat->state == FRAME_BEAT_UNKNOWN) {
		/* Declared dead: its jobs may be running elsewhere already. */
		runner_lose_lease(runner);
		send_hello(claimer);
		return;
	}
	if (beat->count == 0)
		on_accepted(claimer);
	else if (!lease_confirm_beat(&runner->lease, beat->count))
		return;
	lease_set_clock(&runner->lease, beat->db_now_us, clock_us());
	runner_lease_changed(runner);
}

/* ---- credit -------------------------------------------------------------------------- */

static void send_credit(struct claimer *claimer)
{
	const struct runner *runner = claimer->runner;
	size_t count = runner->kinds.handlers->count;
	struct frame_credit_kind *kinds = mem_alloc(count + 1, sizeof(*kinds));
	struct buf frame;

	claimer->granted = capacity_of_slots(runner);
	for (size_t i = 0; i < count; i++) {
		const struct kind *kind = &runner->kinds.items[i];
		claimer->granted_kinds[i] = capacity_of_kind(runner, kind, claimer->granted);
		kinds[i].kind = str_of(kind->handler->kind);
		kinds[i].count = (int64_t)claimer->granted_kinds[i];
		kinds[i].held = (int64_t)kind_held(kind);
		kinds[i].apart = kind_is_stream(kind);
	}
	const struct frame_credit credit = {
		.epoch = claimer->epoch,
		.last_seq = claimer->last_seq,
		.total = (int64_t)claimer->granted,
		.kinds = kinds,
		.kinds_count = count,
	};
	buf_init(&frame, FRAME_MAX_BYTES);
	frame_put_credit(&frame, &credit);
	send_frame(claimer, &frame);
	free(kinds);
}

static bool is_worth_saying(size_t known, size_t now, size_t waiting, size_t step)
{
	if (now <= known)
		return now < known;
	bool runs_dry = known == 0 && waiting == 0;
	return runs_dry || now - known >= step;
}

static bool is_kind_worth_saying(const struct claimer *claimer, size_t index, size_t free)
{
	const struct runner *runner = claimer->runner;
	const struct kind *kind = &runner->kinds.items[index];
	size_t known = claimer->granted_kinds[index];

	if (!kind_is_stream(kind) && known > claimer->granted)
		known = claimer->granted; /* the total bounds it */
	return is_worth_saying(known, capacity_of_kind(runner, kind, free),
		kind_waiting(kind), capacity_step_of_kind(runner, kind));
}

void claimer_turn(struct claimer *claimer)
{
	const struct runner *runner = claimer->runner;
	size_t free = capacity_of_slots(runner);
	bool say = is_worth_saying(claimer->granted, free, runner->slots.queue.count,
		capacity_step_of_slots(runner));

	if (!claimer->accepted)
		return;
	for (size_t i = 0; i < runner->kinds.handlers->count && !say; i++)
		say = is_kind_worth_saying(claimer, i, free);
	if (say)
		send_credit(claimer);
}

/* ---- what comes ---------------------------------------------------------------------- */

static void take(size_t *granted)
{
	if (*granted > 0)
		(*granted)--;
}

static void on_job(struct claimer *claimer, const struct frame_job *job,
	const void *frame, size_t length)
{
	const struct kinds *kinds = &claimer->runner->kinds;
	size_t index = kinds_index(kinds, job->kind);
	const struct kind *kind = &kinds->items[index];

	if (job->seq <= claimer->last_seq)
		return; /* a copy */
	claimer->last_seq = job->seq;
	if (!kind_is_stream(kind))
		take(&claimer->granted);
	if (kind->handler != NULL)
		take(&claimer->granted_kinds[index]);
	runner_accept(claimer->runner, frame, length);
}

/* Else it was meant for an earlier connection. */
static bool is_current(const struct claimer *claimer, int64_t epoch)
{
	return epoch != 0 && epoch == claimer->epoch;
}

static int dispatch(struct claimer *claimer, const void *frame, size_t length,
	int64_t type, struct err *err)
{
	union {
		struct frame_job job;
		struct frame_beat beat;
		struct frame_cancel cancel;
		struct frame_hello hello;
	} got;

	switch (type) {
	case FRAME_JOB:
		if (frame_get_job(frame, length, &got.job, err) != 0)
			return -1;
		if (is_current(claimer, got.job.epoch))
			on_job(claimer, &got.job, frame, length);
		return 0;
	case FRAME_BEAT:
		if (frame_get_beat(frame, length, &got.beat, err) != 0)
			return -1;
		on_beat(claimer, &got.beat);
		return 0;
	case FRAME_CANCEL:
		if (frame_get_cancel(frame, length, &got.cancel, err) != 0)
			return -1;
		if (is_current(claimer, got.cancel.epoch))
			runner_cancel(claimer->runner, &got.cancel);
		return 0;
	case FRAME_HELLO:
		if (frame_get_hello(frame, length, &got.hello, NULL, 0, NULL, 0, err) != 0)
			return -1;
		if (got.hello.epoch <= 0 || got.hello.lease_ms <= 0 ||
			got.hello.lease_ms > LEASE_MAX_MS)
			return err_set(err, ERR_PROTOCOL,
				"a greeting without a good epoch and lease");
		on_greeting(claimer, &got.hello);
		return 0;
	default:
		return err_set(err, ERR_PROTOCOL, "a frame of type %lld is not for a runner",
			(long long)type);
	}
}

static void on_frame(void *ctx, const struct link_peer *peer, const void *frame,
	size_t length, int64_t version, int64_t type)
{
	static struct log_limit limit;
	struct err err = ERR_INIT;

	(void)peer;
	if (version != FRAME_VERSION)
		err_set(&err, ERR_PROTOCOL, "a frame of version %lld", (long long)version);
	else if (dispatch(ctx, frame, length, type, &err) == 0)
		return;
	if (log_allow(&limit, FRAME_DROPPED_INTERVAL_MS) >= 0)
		log_error(LOG_WARNING, "frame_dropped", &err);
}

/* ---- opening and closing ------------------------------------------------------------- */

static void alloc_granted_kinds(struct claimer *claimer)
{
	free(claimer->granted_kinds);
	claimer->granted_kinds = mem_alloc(claimer->runner->kinds.handlers->count + 1,
		sizeof(size_t));
}

int claimer_open(struct claimer *claimer, const char *endpoint, struct err *err)
{
	const struct link_options options = {
		.pattern = LINK_DEALER,
		.routing_id = claimer->id,
		.on_frame = on_frame,
		.ctx = claimer,
	};

	claimer->beat_timer.fn = on_beat_timer;
	claimer->beat_timer.ctx = claimer;
	alloc_granted_kinds(claimer);
	claimer->link = program_open_jobs_link(claimer->loop, &options, endpoint,
		claimer->lane, err);
	return claimer->link == NULL ? -1 : 0;
}

void claimer_close(struct claimer *claimer)
{
	loop_stop_timer(claimer->loop, &claimer->beat_timer);
	link_free(claimer->link);
	claimer->link = NULL;
	free(claimer->granted_kinds);
	claimer->granted_kinds = NULL;
}

/* A second hello of one epoch is what makes the claimer greet anew: jobs of the old greeting
 * may be on their way, and it has to know which of them arrived. */
void claimer_reload(struct claimer *claimer)
{
	alloc_granted_kinds(claimer);
	claimer->granted = 0;
	if (claimer->epoch == 0)
		return;
	claimer->accepted = false;
	send_hello(claimer);
}

void claimer_say(struct claimer *claimer, enum frame_beat_state state)
{
	if (claimer->epoch != 0)
		send_beat(claimer, state);
}
