/*
 * Jobs whose attempt ends before it was started: they go back, or are over for a reason that
 * needs no handler. Each call makes the result and adds it to those that the settler gets; the
 * job is in no list.
 */
#ifndef OUTBOX_RUN_UNSTARTED_H
#define OUTBOX_RUN_UNSTARTED_H

#include <stdint.h>

#include "buf.h"
#include "job.h"
#include "results.h"

#define UNSTARTED_LATER_MS 5000 /* until a job that could not be taken is due again */

/* Nothing is charged. after_ms: until it is due again; -1: as the database sees fit. */
void unstarted_hand_back(struct results *results, struct job *job, const char *code,
	int64_t after_ms);

void unstarted_cancel(struct results *results, struct job *job, struct str reason);

/* A failure that is charged, and retried as its code's policy says. */
void unstarted_fail(struct results *results, struct job *job, const char *code,
	struct str error);

#endif
