/*
 * What a manifest says that the database decides by: budgets, commit statements, the schema
 * of payloads, retention. It travels to outbox.kind as one JSON object; what is not said is
 * not in it, and the database has the defaults (see outbox.kind_announce).
 */
#ifndef OUTBOX_POLICY_H
#define OUTBOX_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "outcome.h"

#define POLICY_UNSET INT64_C(-1)
#define POLICY_NEVER INT64_C(-2) /* retention only */

struct policy_rule { /* for attempts that fail with this code */
	char code[OUTCOME_MAX_CODE + 1];
	int64_t max_attempts;
	int64_t max_delay_ms;
	int64_t streak;
	const char *on_exhaustion; /* "dead", "cancel"; NULL: not said */
};

struct policy_commit {
	char *name, *statement;
};

struct policy {
	int64_t max_attempts, backoff_ms, backoff_max_ms, max_crashes, warn_at_streak;
	struct policy_rule *rules;
	size_t rules_count;
	struct policy_commit *commits;
	size_t commits_count;
	char *schema; /* JSON, or NULL */
	int64_t max_bytes, max_depth;
	int64_t succeeded_s, cancelled_s, dead_s; /* retention */
};

void policy_init(struct policy *policy); /* nothing is set */
void policy_release(struct policy *policy);

/* The rule of a code, made when it is not there; until the next call. */
struct policy_rule *policy_rule_of(struct policy *policy, const char *code);

void policy_add_commit(struct policy *policy, const char *name, const char *statement);

/* Appends the JSON object. -1 when it does not fit. */
int policy_put(struct buf *out, const struct policy *policy);

#endif
