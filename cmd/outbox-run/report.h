/*
 * How an attempt ended, as the result frame says it.
 */
#ifndef OUTBOX_RUN_REPORT_H
#define OUTBOX_RUN_REPORT_H

#include "attempt.h"
#include "frame.h"
#include "job.h"
#include "outcome.h"

/* For a job that was not started: it is handed back, or cancelled. */
struct report_unstarted {
	enum outcome outcome;
	const char *code;  /* NULL: none */
	struct str error;  /* or absent */
	struct str reason; /* of a cancel */
	int64_t after_ms;  /* -1: as the database sees fit */
};

/* Both encode the frame into job->result. */
void report_unstarted(struct job *job, struct str worker,
	const struct report_unstarted *report);

/* Returns the outcome; code says the word for it and is empty for ok. */
enum outcome report_ended(struct attempt *attempt, struct str worker,
	char code[OUTCOME_MAX_CODE + 1]);

#endif
