/*
 * How an attempt ended, as the result frame says it.
 */
#ifndef OUTBOX_RUN_REPORT_H
#define OUTBOX_RUN_REPORT_H

#include "answer.h"
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

/* For one that a resident handler was given. */
struct report_answered {
	const struct handler *handler;
	enum outcome outcome;
	const char *code;            /* empty for ok */
	const char *error;           /* what the runner has to say; NULL: nothing */
	const struct capture *tail;  /* stderr, which follows the error; NULL: none */
	const struct answer *answer; /* NULL: there is none */
	int64_t started_at_us;       /* database clock; 0: not known */
	int64_t duration_us;
	int exit_status;   /* -1: none, or by signal */
	int signal_number; /* 0: none */
	int64_t max_response_bytes;
	int64_t max_error_bytes;
};

/* All encode the frame into job->result. */
void report_unstarted(struct job *job, struct str worker,
	const struct report_unstarted *report);

void report_answered(struct job *job, struct str worker,
	const struct report_answered *report);

/* Returns the outcome; code says the word for it and is empty for ok. */
enum outcome report_ended(struct attempt *attempt, struct str worker,
	char code[OUTCOME_MAX_CODE + 1]);

#endif
