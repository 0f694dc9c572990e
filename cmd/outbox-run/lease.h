/*
 * The runner's lease: how long it may believe that its jobs are its own, on the monotonic
 * clock, and what the database's clock says.
 *
 * The lease counts from the moment at which the newest confirmed beat (or the accepted
 * hello) was sent, so that the time an answer takes shortens it and never lengthens it. It
 * is given up at 90 %, which leaves time to kill handlers before the database side may
 * declare this worker dead.
 */
#ifndef OUTBOX_RUN_LEASE_H
#define OUTBOX_RUN_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#define LEASE_MAX_MS (INT64_C(30) * 24 * 3600 * 1000)
#define LEASE_BEATS 16 /* unconfirmed beats that are remembered; three go into a lease */

struct lease {
	int64_t length_us;
	int64_t from_us; /* 0: none */
	struct {
		int64_t count;
		int64_t sent_us;
	} beats[LEASE_BEATS];
	int64_t db_now_us; /* database clock, Unix microseconds … */
	int64_t db_at_us;  /* … when the monotonic clock said this */
};

void lease_set_length(struct lease *lease, int64_t length_ms); /* at most LEASE_MAX_MS */

/* A beat is on its way. */
void lease_note_beat(struct lease *lease, int64_t count, int64_t sent_us);

/* The beat `count` is recorded. False when it is not one of those remembered. */
bool lease_confirm_beat(struct lease *lease, int64_t count);

/* The lease begins with a hello that was sent then. */
void lease_begin(struct lease *lease, int64_t sent_us);
void lease_give_up(struct lease *lease);

bool lease_is_valid(const struct lease *lease, int64_t now_us);
int64_t lease_end_us(
	const struct lease *lease); /* when it is given up; 0: there is none */

/* An absurd time, with which one could not reckon, is not taken. */
void lease_set_clock(struct lease *lease, int64_t db_now_us, int64_t now_us);
/* The database's clock has said this, or more, by now: what was known of it is corrected when
 * it is behind, as after somebody has moved that clock. */
void lease_note_db_time(struct lease *lease, int64_t db_us, int64_t now_us);
int64_t lease_db_now_us(const struct lease *lease, int64_t now_us); /* 0: not known yet */

#endif
