#include "sleep.h"

#include <stdlib.h>

#include "claimer.h"
#include "clock.h"
#include "log.h"

#define OFTEN_US INT64_C(20000) /* two nudges within this: woken again and again */

/*
 * While a producer that was told "awake" has not committed: how often to try for the lock, and,
 * for the jobs of other such producers, how often at least to look for work.
 */
#define WAIT_MIN_US INT64_C(1000)
#define WAIT_MAX_US INT64_C(10000)
#define LOOK_MS 40

static void on_quiet(void *ctx, PGresult *result, const struct err *err)
{
	(void)ctx;
	if (result == NULL)
		log_error(LOG_WARNING, "sleep_failed", err);
}

void sleep_stop(struct claimer *claimer)
{
	loop_stop_timer(claimer->loop, &claimer->sleep.wait_timer);
}

void sleep_reset(struct claimer *claimer)
{
	sleep_stop(claimer);
	claimer->sleep = (struct sleep){.has_lock = false};
	if (db_is_pooled(claimer->db))
		send_lane_is_pooled(claimer->db, claimer->options.lane, on_quiet, NULL);
}

void sleep_nudged(struct claimer *claimer)
{
	struct sleep *sleep = &claimer->sleep;
	int64_t now_us = clock_us();
	bool often = now_us - sleep->nudged_us < OFTEN_US;

	sleep->nudged_us = now_us;
	if (often && sleep->has_lock)
		sleep->is_ending = true;
}

void sleep_turn(struct claimer *claimer)
{
	struct sleep *sleep = &claimer->sleep;

	if (!sleep->is_ending || !db_is_up(claimer->db))
		return;
	sleep->is_ending = sleep->has_lock = false;
	send_sleep_end(claimer->db, claimer->options.lane, on_quiet, NULL);
	/* Nobody says anything from now on, whatever the nudges were for: look for all there is,
	 * and fall asleep when nothing is found. */
	wanted_mark_all(&claimer->wanted);
}

static void on_wait_over(void *ctx)
{
	struct claimer *claimer = ctx;

	claimer->sleep.is_waiting = false;
}

static void wait_for_producer(struct claimer *claimer)
{
	struct sleep *sleep = &claimer->sleep;

	sleep->wait_us = sleep->wait_us == 0 ? WAIT_MIN_US : sleep->wait_us * 2;
	if (sleep->wait_us > WAIT_MAX_US)
		sleep->wait_us = WAIT_MAX_US;
	sleep->is_waiting = true;
	sleep->wait_timer.fn = on_wait_over;
	sleep->wait_timer.ctx = claimer;
	loop_set_timer(claimer->loop, &sleep->wait_timer, sleep->wait_us);
	claimer_pause(claimer, LOOK_MS);
}

static void on_answer(void *ctx, PGresult *result, const struct err *err)
{
	struct claimer *claimer = ctx;
	struct str answer = result == NULL ? STR_NULL : db_get_str(result, 0, 0);

	claimer->looking = false;
	if (result == NULL) {
		claimer_back_off(claimer, "sleep_failed", err);
		return;
	}
	claimer->sleep.has_colleague = str_equal(answer, STR("colleague"));
	if (str_equal(answer, STR("busy"))) {
		wait_for_producer(claimer);
		return;
	}
	claimer->sleep.wait_us = 0;
	if (str_equal(answer, STR("asleep"))) {
		claimer->sleep.has_lock = true;
		claimer->sleep.told_others = false;
		wanted_mark_all(&claimer->wanted); /* once more, now that nobody is silent */
	} else {
		claimer_ask_next_due(claimer);
	}
}

bool sleep_try(struct claimer *claimer)
{
	if (claimer->sleep.has_lock || db_is_pooled(claimer->db) ||
		!claimer_hears_listener(claimer))
		return false;
	if (claimer->sleep.is_waiting)
		return true;
	claimer->looking = true;
	send_sleep_begin(claimer->db, claimer->options.lane, on_answer, claimer);
	return true;
}

void sleep_tell_others(struct claimer *claimer)
{
	struct str *kinds;
	size_t count = 0;

	if (!claimer->sleep.has_colleague || claimer->sleep.told_others)
		return;
	kinds = mem_alloc(claimer->wanted.count + 1, sizeof(*kinds));
	for (size_t i = 0; i < claimer->wanted.count; i++)
		if (claimer->wanted.kinds[i].may_be_due)
			kinds[count++] = str_of(claimer->wanted.kinds[i].name);
	if (count > 0) {
		claimer->sleep.told_others = true;
		send_nudge_others(claimer->db, kinds, count, on_quiet, NULL);
	}
	free(kinds);
}
