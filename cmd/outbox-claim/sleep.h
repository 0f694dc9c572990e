/*
 * The sleep handshake (sql/functions/nudge.sql): while this claimer sleeps with the lane's
 * lock, producers notify; while it is awake, they say nothing.
 *
 * A claimer that is woken now and then keeps the lock: the notification is the fastest way
 * to hear. One that is woken again and again gives it up and looks by itself.
 */
#ifndef CLAIM_SLEEP_H
#define CLAIM_SLEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "loop.h"

struct claimer;

struct sleep {
	bool has_lock;
	bool is_ending;     /* the lock is to be given up */
	bool has_colleague; /* another claimer slept with the lock, when last asked */
	bool told_others;   /* that there is more than we have room for, since we slept */
	int64_t nudged_us;
	bool is_waiting; /* until the next try to take the lock */
	int64_t wait_us; /* the last such wait */
	struct loop_timer wait_timer;
};

/* The connection is new. */
void sleep_reset(struct claimer *claimer);

/* A nudge came. */
void sleep_nudged(struct claimer *claimer);

/* Once a turn, when the claim that a nudge asks for is on its way. */
void sleep_turn(struct claimer *claimer);

/* Whether sleeping takes the lock first, which it has not: then starts to, now or soon. */
bool sleep_try(struct claimer *claimer);

/* No more tries. */
void sleep_stop(struct claimer *claimer);

/* There is work, and no runner here has room for it. */
void sleep_tell_others(struct claimer *claimer);

#endif
