#include "members.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "log.h"
#include "version.h"

/* Of many runners: what goes on for long is said now and then. */
static void log_failure(const char *event, const struct err *err)
{
	static struct log_limit limit;

	if (log_allow(&limit, 5000) >= 0)
		log_error(LOG_WARNING, event, err);
}

static void send_to(struct claimer *claimer, struct runner *runner,
	const struct buf *frames)
{
	struct err err = ERR_INIT;

	if (link_send(claimer->jobs, &runner->address, frames, &err) == 0)
		return;
	log_event(LOG_DEBUG, "send_failed", LOG_TEXT("worker", runner->worker),
		LOG_TEXT("error", err.text));
	if (err.class == ERR_UNAVAILABLE)
		runner->gone = true;
}

/* ---- greeting */

void members_greet(struct claimer *claimer, const struct link_peer *address)
{
	struct runner *runner = runners_find(&claimer->runners, address);
	struct buf frames;

	if (runner == NULL)
		runner = runners_add(&claimer->runners, address);
	runner_regreet(runner, (int64_t)random_below(INT64_MAX) + 1);
	struct frame_hello hello = {
		.role = STR("claim"),
		.id = str_of(claimer->options.id),
		.epoch = runner->epoch,
		.lease_ms = claimer->options.lease_ms,
		.program_version = STR(OUTBOX_VERSION),
		.lane = str_of(claimer->options.lane),
	};
	buf_init(&frames, FRAME_MAX_BYTES);
	frame_put_hello(&frames, &hello);
	send_to(claimer, runner, &frames);
	buf_release(&frames);
}

static void send_beat(struct claimer *claimer, struct runner *runner, int64_t count,
	enum frame_beat_state state, int64_t db_now_us)
{
	struct frame_beat beat = {
		.id = str_of(runner->worker),
		.count = count,
		.state = state,
		.db_now_us = db_now_us,
	};
	struct buf frames;

	buf_init(&frames, FRAME_MAX_BYTES);
	frame_put_beat(&frames, &beat);
	send_to(claimer, runner, &frames);
	buf_release(&frames);
}

/* Beats of several runners are recorded together: the first waits a little for others. */
static void record_beats_soon(struct claimer *claimer)
{
	int64_t wait_ms = claimer->options.lease_ms / 20;

	if (claimer->beat_timer.at_us == 0)
		loop_set_timer(claimer->loop, &claimer->beat_timer,
			(wait_ms < 500 ? wait_ms : 500) * 1000);
}

static bool any_beat_is_new(const struct claimer *claimer)
{
	for (const struct runner *r = claimer->runners.first; r != NULL; r = r->next)
		if (r->beat_is_new && r->state == RUNNER_READY && !r->gone)
			return true;
	return false;
}

/* ---- registering */

/* A hello that is being registered; the runner may be greeted anew meanwhile. */
struct registration {
	struct claimer *claimer;
	struct link_peer address;
	int64_t epoch;
};

static void want_kinds(struct claimer *claimer, const struct runner *runner)
{
	for (size_t i = 0; i < runner->kinds_count; i++) {
		size_t wanted = wanted_add(&claimer->wanted, str_of(runner->kinds[i].name));

		/* waiting jobs may have been passed over for want of a runner or a version */
		wanted_mark(&claimer->wanted.kinds[wanted]);
	}
}

static void on_registered(void *ctx, PGresult *result, const struct err *err)
{
	struct registration *registration = ctx;
	struct claimer *claimer = registration->claimer;
	struct runner *runner = runners_find(&claimer->runners, &registration->address);
	bool is_current = runner != NULL && runner->epoch == registration->epoch;

	free(registration);
	if (runner != NULL)
		runner->registering = false;
	if (result == NULL) {
		log_failure("registration_failed", err); /* the tick tries again */
		return;
	}
	if (!is_current) { /* greeted anew meanwhile */
		members_register(claimer);
		return;
	}
	struct hello_answer answer = get_hello_answer(result);
	log_event(LOG_INFO, "runner_joined", LOG_TEXT("worker", runner->worker),
		LOG_INT("kinds", runner->kinds_count), LOG_INT("released", answer.released));
	runner->state = RUNNER_READY;
	buf_release(&runner->hello);
	want_kinds(claimer, runner);
	send_beat(claimer, runner, 0, FRAME_BEAT_ALIVE, answer.db_now_us);
}

/* Decodes into lists that last until the next call. */
static int read_hello(const void *frame, size_t length, struct frame_hello *hello,
	struct err *err)
{
	static struct frame_hello_kind kinds[FRAME_MAX_KINDS];
	static struct frame_hello_claim claims[FRAME_MAX_CLAIMS];

	return frame_get_hello(frame, length, hello, kinds, FRAME_MAX_KINDS, claims,
		FRAME_MAX_CLAIMS, err);
}

static void register_runner(struct claimer *claimer, struct runner *runner)
{
	struct registration *registration = mem_alloc(1, sizeof(*registration));
	struct frame_hello hello;
	struct err err = ERR_INIT;

	*registration = (struct registration){.claimer = claimer,
		.address = runner->address,
		.epoch = runner->epoch};
	/* it was read before: this cannot fail */
	read_hello(runner->hello.data, runner->hello.len, &hello, &err);
	runner->registering = true;
	send_hello(claimer->db, &hello, claimer->options.lane, claimer->options.lease_ms,
		on_registered, registration);
}

static void take_hello(struct claimer *claimer, struct runner *runner, const void *frame,
	size_t length, struct err *err)
{
	struct frame_hello hello;

	if (read_hello(frame, length, &hello, err) != 0)
		return;
	if (runner->state != RUNNER_GREETED && hello.epoch == runner->epoch) {
		/* it has other handlers: what it was sent meanwhile belongs to the old greeting */
		members_greet(claimer, &runner->address);
	} else if (runner_answer(runner, &hello, frame, length, claimer->options.lane)) {
		members_register(claimer);
	}
}

void members_register(struct claimer *claimer)
{
	if (!db_is_up(claimer->db))
		return;
	if (any_beat_is_new(claimer)) /* since the database went away */
		record_beats_soon(claimer);
	for (struct runner *r = claimer->runners.first; r != NULL; r = r->next)
		if (r->state == RUNNER_ANSWERED && !r->registering && !r->gone)
			register_runner(claimer, r);
}

/* ---- beats */

struct beat_sent { /* by a runner, and being recorded */
	struct link_peer address;
	int64_t epoch;
	int64_t count;
};

static struct runner *runner_of_beat(struct claimer *claimer,
	const struct beat_sent *beat)
{
	struct runner *runner = runners_find(&claimer->runners, &beat->address);

	return runner != NULL && runner->epoch == beat->epoch ? runner : NULL;
}

static bool names_worker(const PGresult *result, struct str worker)
{
	for (int row = 0; row < PQntuples(result); row++)
		if (str_equal(db_get_str(result, row, 0), worker))
			return true;
	return false;
}

/* A worker that the database does not know was taken for dead: it starts over. */
static void answer_beats(struct claimer *claimer, const PGresult *result)
{
	const struct beat_sent *beats = (const struct beat_sent *)claimer->beats_sent.data;
	size_t count = claimer->beats_sent.len / sizeof(*beats);

	for (size_t i = 0; i < count; i++) {
		struct runner *runner = runner_of_beat(claimer, &beats[i]);

		if (runner == NULL)
			continue;
		if (names_worker(result, str_of(runner->worker))) {
			send_beat(claimer, runner, beats[i].count, FRAME_BEAT_ALIVE,
				db_get_int8(result, 0, 1));
			continue;
		}
		log_event(LOG_WARNING, "worker_unknown", LOG_TEXT("worker", runner->worker));
		send_beat(claimer, runner, beats[i].count, FRAME_BEAT_UNKNOWN, 0);
		members_greet(claimer, &beats[i].address);
	}
}

static void on_beaten(void *ctx, PGresult *result, const struct err *err)
{
	struct claimer *claimer = ctx;

	claimer->beating = false;
	if (result == NULL)
		log_failure("beat_failed", err); /* the next beat tries again */
	else
		answer_beats(claimer, result);
	buf_clear(&claimer->beats_sent);
	if (any_beat_is_new(claimer))
		record_beats_soon(claimer);
	/* the notification of a cancel may have been lost */
	members_want_cancels(claimer);
}

static void record_beats(void *ctx)
{
	struct claimer *claimer = ctx;
	struct str workers[64];
	size_t count = 0;

	if (claimer->beating || !db_is_up(claimer->db))
		return;
	for (struct runner *r = claimer->runners.first; r != NULL && count < 64;
		 r = r->next) {
		struct beat_sent sent = {.address = r->address,
			.epoch = r->epoch,
			.count = r->beat};

		if (!r->beat_is_new || r->state != RUNNER_READY || r->gone)
			continue;
		r->beat_is_new = false;
		workers[count++] = str_of(r->worker);
		buf_put(&claimer->beats_sent, &sent, sizeof(sent));
	}
	if (count == 0)
		return;
	claimer->beating = true;
	send_beats(claimer->db, workers, count, on_beaten, claimer);
}

static void on_bye(void *ctx, PGresult *result, const struct err *err)
{
	(void)ctx;
	if (result == NULL) /* the sweeper finds its beat standing still */
		log_failure("bye_failed", err);
}

/* Beats of several runners are recorded together: the first waits a little for others. */
static void take_beat(struct claimer *claimer, struct runner *runner,
	const struct frame_beat *beat)
{
	if (beat->state == FRAME_BEAT_GONE) {
		log_event(LOG_INFO, "runner_left", LOG_TEXT("worker", runner->worker));
		if (runner->state == RUNNER_READY)
			send_bye(claimer->db, str_of(runner->worker), on_bye, NULL);
		runner->gone = true; /* and forgotten at the end of the turn */
		return;
	}
	runner->draining = beat->state == FRAME_BEAT_DRAINING;
	runner->beat = beat->count;
	runner->beat_is_new = true;
	record_beats_soon(claimer);
}

/* ---- cancels */

static void pass_cancels_on(struct claimer *claimer, const PGresult *result)
{
	struct buf frames;

	buf_init(&frames, FRAME_MAX_BYTES);
	for (int row = 0; row < PQntuples(result); row++) {
		struct str worker;
		struct frame_cancel cancel = get_cancel(result, row, &worker);
		struct runner *runner = runners_find_worker(&claimer->runners, worker);

		if (runner == NULL || runner->state != RUNNER_READY)
			continue;
		cancel.epoch = runner->epoch;
		buf_clear(&frames);
		frame_put_cancel(&frames, &cancel);
		send_to(claimer, runner, &frames);
	}
	buf_release(&frames);
}

static void on_cancels(void *ctx, PGresult *result, const struct err *err)
{
	struct claimer *claimer = ctx;

	claimer->asking_cancels = false;
	if (result == NULL)
		log_failure("cancels_failed", err); /* the next beat asks again */
	else
		pass_cancels_on(claimer, result);
	if (claimer->cancels_wanted)
		members_want_cancels(claimer);
}

void members_want_cancels(struct claimer *claimer)
{
	size_t count = 0, capacity = 0;
	struct str *workers;

	if (claimer->asking_cancels || !db_is_up(claimer->db)) {
		claimer->cancels_wanted = claimer->asking_cancels;
		return;
	}
	claimer->cancels_wanted = false;
	for (struct runner *r = claimer->runners.first; r != NULL; r = r->next)
		capacity++;
	workers = mem_alloc(capacity + 1, sizeof(*workers));
	for (struct runner *r = claimer->runners.first; r != NULL; r = r->next)
		if (r->state == RUNNER_READY)
			workers[count++] = str_of(r->worker);
	if (count > 0) {
		claimer->asking_cancels = true;
		send_cancels(claimer->db, workers, count, on_cancels, claimer);
	}
	free(workers);
}

/* ---- frames */

static void take_credit(struct claimer *claimer, struct runner *runner, const void *frame,
	size_t length, struct err *err)
{
	static struct frame_credit_kind kinds[FRAME_MAX_KINDS];
	struct frame_credit credit;

	(void)claimer; /* the turn that follows claims */
	if (frame_get_credit(frame, length, &credit, kinds, FRAME_MAX_KINDS, err) == 0)
		runner_take_credit(runner, &credit);
}

void members_take_frame(struct claimer *claimer, const struct link_peer *address,
	const void *frame, size_t length, int64_t type)
{
	static struct log_limit limit;
	struct runner *runner = runners_find(&claimer->runners, address);
	struct frame_beat beat;
	struct err err = ERR_INIT;

	if (runner == NULL) {
		/* it takes us for our predecessor */
		members_greet(claimer, address);
		return;
	}
	runner->gone = false;
	runner->heard_us = loop_now_us(claimer->loop);
	if (type == FRAME_HELLO)
		take_hello(claimer, runner, frame, length, &err);
	else if (type == FRAME_CREDIT)
		take_credit(claimer, runner, frame, length, &err);
	else if (type == FRAME_BEAT && frame_get_beat(frame, length, &beat, &err) == 0)
		take_beat(claimer, runner, &beat);
	else if (err.class == ERR_NONE)
		err_set(&err, ERR_PROTOCOL, "unexpected frame of type %lld", (long long)type);
	if (err.class != ERR_NONE && log_allow(&limit, 1000) >= 0)
		log_error(LOG_WARNING, "bad_frame", &err);
}

bool members_need_us(struct claimer *claimer)
{
	bool needed = false;
	struct buf frames;

	buf_init(&frames, FRAME_MAX_BYTES);
	for (struct runner *r = claimer->runners.first; r != NULL; r = r->next) {
		struct frame_cancel nothing = {.epoch = r->epoch};

		if (!r->draining || r->gone)
			continue;
		/* a frame without effect, to see whether it can be sent */
		buf_clear(&frames);
		frame_put_cancel(&frames, &nothing);
		send_to(claimer, r, &frames);
		needed = needed || !r->gone;
	}
	buf_release(&frames);
	return needed;
}

void members_init(struct claimer *claimer)
{
	buf_init(&claimer->beats_sent, (size_t)1 << 20);
	claimer->beat_timer = (struct loop_timer){.fn = record_beats, .ctx = claimer};
}
