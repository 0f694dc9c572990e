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

struct claimer;

struct sleep {
	bool has_lock;
	bool has_colleague; /* another claimer slept with the lock, when last asked */
	bool told_others;   /* that there is more than we have room for, since we slept */
	int64_t nudged_us;
};

/* The connection is new. */
void sleep_reset(struct claimer *claimer);

/* A nudge came. */
void sleep_nudged(struct claimer *claimer);

/* Whether sleeping takes the lock first, which it has not: then starts to. */
bool sleep_try(struct claimer *claimer);

/* There is work, and no runner here has room for it. */
void sleep_tell_others(struct claimer *claimer);

#endif
