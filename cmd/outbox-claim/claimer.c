#include "claimer.h"

#include <stdlib.h>

#include "choose.h"
#include "clock.h"
#include "give.h"
#include "log.h"
#include "members.h"

#define TICK_US INT64_C(5000000)
#define LISTENER_SILENT_US INT64_C(6000000) /* then the tick looks for work itself */
#define SAFETY_US \
	INT64_C(30000000) /* with a listener: a nudge may still have been lost */
#define LONGEST_WAIT_US INT64_C(86400000000) /* a day */
#define COLLEAGUE_US INT64_C(1000000)
#define PAUSE_MIN_MS 5
#define PAUSE_MAX_MS 1000

/* ---- what came of it */

/* The highest version of a kind among the runners; -1: none of them has it. */
static int64_t best_version(const struct claimer *claimer, struct str kind)
{
	int64_t best = -1;

	for (const struct runner *r = claimer->runners.first; r != NULL; r = r->next) {
		int64_t index = runner_find_kind(r, kind);

		if (r->state == RUNNER_READY && index >= 0 && r->kinds[index].version > best)
			best = r->kinds[index].version;
	}
	return best;
}

/*
 * A claim that brought less than asked has exhausted the kinds that were below their limit:
 * for this runner's version, and if no runner has a higher one, for all. A reason to look
 * again that came meanwhile counts.
 */
static void note_exhausted(struct claimer *claimer, struct runner *runner,
	const PGresult *result)
{
	int rows = PQntuples(result);

	if (rows >= claimer->asked)
		return;
	for (size_t i = 0; i < claimer->parts_count; i++) {
		const struct claim_part *part = &claimer->parts[i];
		struct wanted_kind *wanted =
			&claimer->wanted.kinds[wanted_find(&claimer->wanted, part->kind)];
		int64_t kind = runner_find_kind(runner, part->kind);
		int64_t got = 0;

		for (int row = 0; row < rows; row++)
			got += str_equal(db_get_str(result, row, 6), part->kind);
		if (got >= part->limit || wanted->round != part->round)
			continue;
		if (kind >= 0)
			runner->kinds[kind].passed = part->round;
		if (part->version < best_version(claimer, part->kind))
			continue;
		wanted->may_be_due = false;
		wanted->was_nudged = false;
		claimer->next_due_unknown = true;
	}
}

void claimer_back_off(struct claimer *claimer, const char *event, const struct err *err)
{
	static struct log_limit limit;

	if (log_allow(&limit, 5000) >= 0)
		log_error(err_is_temporary(err) ? LOG_WARNING : LOG_ERROR, event, err);
	claimer->backing_off = true;
	loop_set_timer(claimer->loop, &claimer->due_timer, PAUSE_MAX_MS * 1000);
}

/* Where the next claim of a kind and priority may start. */
static void note_claimed_to(struct claimer *claimer, const PGresult *result)
{
	for (int row = 0; row < PQntuples(result); row++) {
		long wanted = wanted_find(&claimer->wanted, db_get_str(result, row, 6));
		int64_t *claimed_to_us =
			&claimer->wanted.kinds[wanted].claimed_to_us[get_priority(result, row) - 1];

		if (*claimed_to_us < get_due_us(result, row))
			*claimed_to_us = get_due_us(result, row);
	}
}

static void on_claimed(void *ctx, PGresult *result, const struct err *err)
{
	struct claimer *claimer = ctx;
	struct runner *runner = claimer->claiming_for;

	claimer->looking = false;
	claimer->claiming_for = NULL;
	if (result == NULL) {
		claimer_back_off(claimer, "claim_failed", err);
		/* it may have been committed: the runner's new hello tells what never arrived */
		if (err->class == ERR_UNAVAILABLE && !runner->gone)
			members_greet(claimer, &runner->address);
	} else {
		scan_end(&claimer->scan, loop_now_us(claimer->loop), PQntuples(result));
		note_exhausted(claimer, runner, result);
		note_claimed_to(claimer, result);
		if (PQntuples(result) > 0)
			claimer->pause_ms = 0;
		if (runner->gone || runner->epoch != claimer->claiming_epoch)
			give_back(claimer, result);
		else
			give_jobs(claimer, runner, result);
	}
}

static void start_at_positions(struct claimer *claimer, bool at_positions)
{
	for (size_t i = 0; i < claimer->parts_count; i++) {
		struct claim_part *part = &claimer->parts[i];
		long wanted = wanted_find(&claimer->wanted, part->kind);

		part->after_us = at_positions ? claimer->wanted.kinds[wanted].claimed_to_us
									  : NULL;
	}
}

static bool start_claim(struct claimer *claimer)
{
	struct runner *runner = choose_runner(claimer);

	if (runner == NULL)
		return false;
	claimer->looking = true;
	claimer->claiming_for = runner;
	claimer->claiming_epoch = runner->epoch;
	runner->served = ++claimer->claims;
	start_at_positions(claimer, !scan_begin(&claimer->scan, loop_now_us(claimer->loop)));
	send_claim(claimer->db, str_of(runner->worker), claimer->options.lane, claimer->parts,
		claimer->parts_count, claimer->asked, claimer->found_by, on_claimed, claimer);
	return true;
}

/* ---- when to look again */

static void on_due(void *ctx)
{
	struct claimer *claimer = ctx;

	claimer->backing_off = false;
	wanted_mark_all(&claimer->wanted);
}

void claimer_pause(struct claimer *claimer, int64_t most_ms)
{
	int64_t left_us = claimer->due_timer.at_us - loop_now_us(claimer->loop);

	if (claimer->due_timer.at_us != 0 && left_us <= most_ms * 1000)
		return;
	claimer->pause_ms = claimer->pause_ms == 0 ? PAUSE_MIN_MS : claimer->pause_ms * 2;
	if (claimer->pause_ms > most_ms)
		claimer->pause_ms = most_ms;
	loop_set_timer(claimer->loop, &claimer->due_timer, claimer->pause_ms * 1000);
}

/* How long to wait for what is due then, or null: for nothing. */
static int64_t wait_of(const struct claimer *claimer, const PGresult *next_due)
{
	int64_t wait_us = LONGEST_WAIT_US;
	int64_t head_wait_us = scan_wait_us(&claimer->scan, loop_now_us(claimer->loop));

	if (!PQgetisnull(next_due, 0, 0) && db_get_int8(next_due, 0, 0) < wait_us)
		wait_us = db_get_int8(next_due, 0, 0);
	/* a colleague sleeps with the lock, and may be taken away */
	if (claimer->sleep.has_colleague && wait_us > COLLEAGUE_US)
		wait_us = COLLEAGUE_US;
	if (wait_us > 0 && head_wait_us < wait_us)
		wait_us = head_wait_us > 0 ? head_wait_us : 1000;
	return wait_us;
}

static void on_next_due(void *ctx, PGresult *result, const struct err *err)
{
	struct claimer *claimer = ctx;

	claimer->looking = false;
	if (result == NULL) {
		claimer->next_due_unknown = true;
		claimer_back_off(claimer, "next_due_failed", err);
		return;
	}
	int64_t wait_us = wait_of(claimer, result);
	if (wait_us > 0)
		loop_set_timer(claimer->loop, &claimer->due_timer, wait_us);
	else /* due, and not to be had: another claimer has locked it, or it has just come */
		claimer_pause(claimer, PAUSE_MAX_MS);
}

void claimer_ask_next_due(struct claimer *claimer)
{
	claimer->parts_count = 0;
	for (size_t i = 0; i < claimer->wanted.count; i++) {
		const struct wanted_kind *kind = &claimer->wanted.kinds[i];
		int64_t version = best_version(claimer, str_of(kind->name));

		if (version >= 0 && !kind->may_be_due)
			choose_part(claimer, kind, 0, version);
	}
	claimer->next_due_unknown = false;
	if (claimer->parts_count == 0)
		return;
	claimer->looking = true;
	start_at_positions(claimer, claimer->scan.is_costly);
	send_next_due(claimer->db, claimer->options.lane, claimer->parts,
		claimer->parts_count, on_next_due, claimer);
}

void claimer_turn(struct claimer *claimer)
{
	runners_prune(&claimer->runners, claimer->claiming_for);
	bool may_look = !claimer->looking && !claimer->backing_off && !claimer->draining &&
		db_is_up(claimer->db);
	bool is_claiming = may_look && start_claim(claimer);
	sleep_turn(claimer);
	if (!may_look || is_claiming)
		return;
	sleep_tell_others(claimer);
	if (claimer->next_due_unknown && !sleep_try(claimer))
		claimer_ask_next_due(claimer);
}

/* ---- hints */

void claimer_nudge(struct claimer *claimer, struct str kind)
{
	long wanted;

	sleep_nudged(claimer);
	if (kind.s == NULL) {
		wanted_mark_all(&claimer->wanted);
		return;
	}
	wanted = wanted_find(&claimer->wanted, kind);
	if (wanted >= 0) {
		wanted_mark(&claimer->wanted.kinds[wanted]);
		claimer->wanted.kinds[wanted].was_nudged = true;
	}
}

bool claimer_hears_listener(const struct claimer *claimer)
{
	return claimer->listener_heard_us != 0 &&
		clock_us() - claimer->listener_heard_us < LISTENER_SILENT_US;
}

void claimer_hear_listener(struct claimer *claimer)
{
	bool is_back = !claimer_hears_listener(claimer);

	claimer->listener_heard_us = clock_us();
	if (is_back) /* look once more, and then fall asleep with the lock */
		wanted_mark_all(&claimer->wanted);
}

static void on_kinds_without_runner(void *ctx, PGresult *result, const struct err *err)
{
	struct claimer *claimer = ctx;

	if (result == NULL) {
		log_error(LOG_WARNING, "kinds_without_runner_failed", err);
		return;
	}
	for (int row = 0; row < PQntuples(result); row++)
		log_event(LOG_WARNING, "no_runner", LOG_STR("kind", db_get_str(result, row, 0)),
			LOG_TEXT("lane", claimer->options.lane));
}

static void on_tick(void *ctx)
{
	struct claimer *claimer = ctx;
	int64_t now_us = clock_us();

	loop_set_timer(claimer->loop, &claimer->tick_timer, TICK_US);
	members_register(claimer);
	if (claimer_hears_listener(claimer) &&
		now_us - claimer->looked_everywhere_us < SAFETY_US)
		return;
	wanted_mark_all(&claimer->wanted);
	if (now_us - claimer->looked_everywhere_us < SAFETY_US)
		return;
	claimer->looked_everywhere_us = now_us;
	if (db_is_up(claimer->db) && !claimer->draining)
		send_kinds_without_runner(claimer->db, claimer->options.lane,
			on_kinds_without_runner, claimer);
}

/* ---- life */

void claimer_db_up(struct claimer *claimer)
{
	sleep_reset(claimer);
	wanted_mark_all(&claimer->wanted);
	members_register(claimer);
}

void claimer_init(struct claimer *claimer, const struct claimer_options *options)
{
	*claimer = (struct claimer){.options = *options};
	claimer->due_timer = (struct loop_timer){.fn = on_due, .ctx = claimer};
	claimer->tick_timer = (struct loop_timer){.fn = on_tick, .ctx = claimer};
	members_init(claimer);
}

void claimer_start(struct claimer *claimer)
{
	loop_set_timer(claimer->loop, &claimer->tick_timer, TICK_US);
}

void claimer_release(struct claimer *claimer)
{
	if (claimer->loop != NULL) {
		sleep_stop(claimer);
		loop_stop_timer(claimer->loop, &claimer->due_timer);
		loop_stop_timer(claimer->loop, &claimer->tick_timer);
		loop_stop_timer(claimer->loop, &claimer->beat_timer);
	}
	runners_release(&claimer->runners);
	wanted_release(&claimer->wanted);
	free(claimer->parts);
}

void claimer_drain(struct claimer *claimer)
{
	claimer->draining = true;
}
