#include "policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

void policy_init(struct policy *policy)
{
	*policy = (struct policy){
		.max_attempts = POLICY_UNSET,
		.backoff_ms = POLICY_UNSET,
		.backoff_max_ms = POLICY_UNSET,
		.max_crashes = POLICY_UNSET,
		.warn_at_streak = POLICY_UNSET,
		.max_bytes = POLICY_UNSET,
		.max_depth = POLICY_UNSET,
		.succeeded_s = POLICY_UNSET,
		.cancelled_s = POLICY_UNSET,
		.dead_s = POLICY_UNSET,
	};
}

void policy_release(struct policy *policy)
{
	for (size_t i = 0; i < policy->commits_count; i++) {
		free(policy->commits[i].name);
		free(policy->commits[i].statement);
	}
	free(policy->commits);
	free(policy->rules);
	free(policy->schema);
	policy_init(policy);
}

struct policy_rule *policy_rule_of(struct policy *policy, const char *code)
{
	for (size_t i = 0; i < policy->rules_count; i++)
		if (strcmp(policy->rules[i].code, code) == 0)
			return &policy->rules[i];
	policy->rules = mem_realloc(policy->rules, policy->rules_count + 1,
		sizeof(*policy->rules));
	struct policy_rule *rule = &policy->rules[policy->rules_count++];
	*rule = (struct policy_rule){
		.max_attempts = POLICY_UNSET,
		.max_delay_ms = POLICY_UNSET,
		.streak = POLICY_UNSET,
	};
	snprintf(rule->code, sizeof(rule->code), "%s", code);
	return rule;
}

void policy_add_commit(struct policy *policy, const char *name, const char *statement)
{
	policy->commits = mem_realloc(policy->commits, policy->commits_count + 1,
		sizeof(*policy->commits));
	policy->commits[policy->commits_count++] = (struct policy_commit){
		.name = mem_strdup(name),
		.statement = mem_strdup(statement),
	};
}

/* ---- as JSON ------------------------------------------------------------------------- */

static void put_number(struct json_object *object, const char *key, int64_t value)
{
	if (value != POLICY_UNSET)
		json_int(object, key, value);
}

static void put_period(struct json_object *object, const char *key, int64_t value)
{
	if (value == POLICY_NEVER)
		json_raw(object, key, STR("null"));
	else
		put_number(object, key, value);
}

/* A member of `object` that is an object with what `put` writes. */
static void put_part(struct json_object *object, const char *key,
	const struct policy *policy,
	void put(struct json_object *part, const struct policy *policy))
{
	struct json_object part;
	struct buf text;

	buf_init(&text, object->out->max);
	json_begin(&part, &text);
	put(&part, policy);
	if (json_end(&part) != 0)
		object->failed = true;
	json_raw(object, key, (struct str){text.data, text.len});
	buf_release(&text);
}

static void put_rule(struct json_object *codes, const struct policy_rule *rule)
{
	struct json_object object;
	struct buf text;

	buf_init(&text, codes->out->max);
	json_begin(&object, &text);
	put_number(&object, "max_attempts", rule->max_attempts);
	put_number(&object, "max_delay_ms", rule->max_delay_ms);
	put_number(&object, "streak", rule->streak);
	if (rule->on_exhaustion != NULL)
		json_str(&object, "on_exhaustion", str_of(rule->on_exhaustion));
	if (json_end(&object) != 0)
		codes->failed = true;
	json_raw(codes, rule->code, (struct str){text.data, text.len});
	buf_release(&text);
}

static void put_codes(struct json_object *codes, const struct policy *policy)
{
	for (size_t i = 0; i < policy->rules_count; i++)
		put_rule(codes, &policy->rules[i]);
}

static void put_retry(struct json_object *retry, const struct policy *policy)
{
	put_number(retry, "max_attempts", policy->max_attempts);
	put_number(retry, "backoff_ms", policy->backoff_ms);
	put_number(retry, "backoff_max_ms", policy->backoff_max_ms);
	put_number(retry, "max_crashes", policy->max_crashes);
	put_number(retry, "warn_at_streak", policy->warn_at_streak);
	put_part(retry, "codes", policy, put_codes);
}

static void put_commits(struct json_object *commits, const struct policy *policy)
{
	for (size_t i = 0; i < policy->commits_count; i++)
		json_str(commits, policy->commits[i].name, str_of(policy->commits[i].statement));
}

static void put_payload(struct json_object *payload, const struct policy *policy)
{
	if (policy->schema != NULL)
		json_raw(payload, "schema", str_of(policy->schema));
	put_number(payload, "max_bytes", policy->max_bytes);
	put_number(payload, "max_depth", policy->max_depth);
}

static void put_retention(struct json_object *retention, const struct policy *policy)
{
	put_period(retention, "succeeded", policy->succeeded_s);
	put_period(retention, "cancelled", policy->cancelled_s);
	put_period(retention, "dead", policy->dead_s);
}

int policy_put(struct buf *out, const struct policy *policy)
{
	struct json_object object;

	json_begin(&object, out);
	put_part(&object, "retry", policy, put_retry);
	put_part(&object, "commit", policy, put_commits);
	put_part(&object, "payload", policy, put_payload);
	put_part(&object, "retention", policy, put_retention);
	return json_end(&object);
}
