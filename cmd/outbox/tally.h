/*
 * What became of each job that was acted on: shown at once, and counted by status.
 */
#ifndef OUTBOX_TALLY_H
#define OUTBOX_TALLY_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

struct tally {
	int64_t jobs;
	bool refused; /* any of them */
	struct {
		char status[16];
		int64_t jobs;
	} counts[16]; /* in the order of their first; there are fewer statuses than that */
};

/* Shows a batch, as JSON or as lines "ID STATUS", with columns job_id, status, blocking_id
 * in front, and counts it. */
void tally_batch(struct tally *tally, const PGresult *result);

/* For people, when it was not one job: the counts, on stderr. */
void tally_summary(const struct tally *tally);

#endif
