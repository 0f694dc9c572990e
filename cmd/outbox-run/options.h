/*
 * The command line of outbox-run.
 */
#ifndef OUTBOX_RUN_OPTIONS_H
#define OUTBOX_RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "opt.h"

struct run_options {
	const char *handlers; /* folder */
	const char *lane;
	const char *jobs;    /* endpoint; NULL: the runtime directory's */
	const char *results; /* endpoint; NULL: the runtime directory's */
	int64_t slots;
	int64_t window;
	int64_t grace_ms;
	int64_t lease_ms;
	int64_t max_response; /* bytes */
	int64_t max_error;    /* bytes */
	int64_t max_unsettled;
	struct opt_list pass_env;
	bool check; /* the handlers, and nothing else */
};

extern struct run_options run_options;
extern const struct opt_program run_program;

/* Fills in what is not a constant: after parsing. */
void run_options_complete(void);

#endif
