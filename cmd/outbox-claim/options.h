/*
 * The command line of outbox-claim.
 */
#ifndef CLAIM_OPTIONS_H
#define CLAIM_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "claimer.h"
#include "err.h"
#include "opt.h"

#define OPTIONS_MAX_RESERVES 100

struct claim_options {
	const char *jobs;   /* endpoint; NULL: the runtime directory's */
	const char *nudges; /* endpoint; NULL: the runtime directory's */
	const char *lane;
	int64_t lease_ms;
	int64_t batch; /* most jobs a claim */
	int64_t grace_ms;
	struct reserve reserves[OPTIONS_MAX_RESERVES];
	size_t reserves_count;
	bool once;             /* into a pipe, with … */
	int64_t limit;         /* … so many jobs at the most … */
	struct opt_list kinds; /* … of these kinds; none: of all */
};

extern struct claim_options claim_options;
extern const struct opt_program claim_program;

/* After parsing: checks them together, and fills in what depends on others. */
int claim_options_complete(struct err *err);
void claim_options_release(void);

#endif
