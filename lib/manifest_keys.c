#include "manifest_keys.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "manifest_command.h"
#include "manifest_schema.h"
#include "text.h"
#include "units.h"

#define SECOND_MS INT64_C(1000)
#define DAY_MS (24 * 3600 * SECOND_MS)
#define MAX_PAYLOAD_BYTES (INT64_C(8) << 20) /* a job must fit into a frame */

/* ---- numbers ------------------------------------------------------------------------- */

static int set_integer(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	(void)manifest;
	return units_parse_integer(value, key->min, key->max, field, err);
}

static int set_size(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	int64_t bytes;

	(void)manifest;
	if (units_parse_size(value, &bytes, err) != 0)
		return -1;
	if (bytes < key->min || bytes > key->max)
		return err_set(err, ERR_CONFIG, "%s is not between %lld and %lld bytes", value,
			(long long)key->min, (long long)key->max);
	*(int64_t *)field = bytes;
	return 0;
}

static int set_duration(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	int64_t duration_ms;

	(void)manifest;
	if (units_parse_duration_ms(value, &duration_ms, err) != 0)
		return -1;
	if (duration_ms < key->min || duration_ms > key->max)
		return err_set(err, ERR_CONFIG, "%s is not between %lld ms and %lld days", value,
			(long long)key->min, (long long)(key->max / DAY_MS));
	*(int64_t *)field = duration_ms;
	return 0;
}

/* As set_duration, kept in seconds. */
static int set_seconds(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	int64_t duration_ms = 0;

	if (set_duration(manifest, key, &duration_ms, value, err) != 0)
		return -1;
	if (duration_ms % SECOND_MS != 0)
		return err_set(err, ERR_CONFIG, "%s is finer than a second", value);
	*(int64_t *)field = duration_ms / SECOND_MS;
	return 0;
}

static int set_period(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	if (strcmp(value, "never") != 0)
		return set_seconds(manifest, key, field, value, err);
	*(int64_t *)field = POLICY_NEVER;
	return 0;
}

/* ---- [handler] ----------------------------------------------------------------------- */

static int set_name(char **field, const char *value, const char *what, struct err *err)
{
	if (!text_is_kind(value, strlen(value)))
		return err_set(err, ERR_CONFIG,
			"\"%s\" is not a %s: 1 to 100 of a-z, 0-9, \".\", \"_\", \"-\", the first a "
			"letter or digit",
			value, what);
	free(*field);
	*field = mem_strdup(value);
	return 0;
}

static int set_kind(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	(void)manifest;
	(void)key;
	return set_name(field, value, "kind", err);
}

static int set_lane(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	(void)manifest;
	(void)key;
	return set_name(field, value, "lane", err);
}

static int set_mode(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	(void)manifest;
	(void)key;
	if (strcmp(value, "exec") != 0 && strcmp(value, "stream") != 0)
		return err_set(err, ERR_CONFIG, "\"%s\" is neither exec nor stream", value);
	*(enum handler_mode *)field = value[0] == 'e' ? HANDLER_EXEC : HANDLER_STREAM;
	return 0;
}

static int set_user(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	struct handler *handler = field;

	(void)key;
	errno = 0;
	const struct passwd *user = getpwnam(value);
	if (user == NULL && errno != 0)
		return err_set_errno(err, ERR_CONFIG, errno, "could not look up the user \"%s\"",
			value);
	if (user == NULL)
		return err_set(err, ERR_CONFIG, "there is no user \"%s\"", value);
	handler->set_user = true;
	handler->uid = user->pw_uid;
	handler->gid = user->pw_gid;
	manifest->user = mem_strdup(user->pw_name);
	manifest->home = mem_strdup(user->pw_dir);
	return 0;
}

static int set_command(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	(void)key;
	return manifest_set_command(field, manifest->folder, value, err);
}

#define IN_HANDLER(member) offsetof(struct handler, member)

static const struct manifest_key handler_keys[] = {
	{"kind", set_kind, IN_HANDLER(kind), 0, 0},
	{"command", set_command, 0, 0, 0},
	{"mode", set_mode, IN_HANDLER(mode), 0, 0},
	{"lane", set_lane, IN_HANDLER(lane), 0, 0},
	{"timeout", set_duration, IN_HANDLER(timeout_ms), 1, 30 * DAY_MS},
	{"grace", set_duration, IN_HANDLER(grace_ms), 0, DAY_MS},
	{"concurrency", set_integer, IN_HANDLER(concurrency), 1, 100000},
	{"version", set_integer, IN_HANDLER(version), 0, INT32_MAX},
	{"user", set_user, 0, 0, 0},
	{"memory", set_size, IN_HANDLER(limits.memory_bytes), 1 << 20, INT64_MAX},
	{"cpu", set_seconds, IN_HANDLER(limits.cpu_s), SECOND_MS, 30 * DAY_MS},
	{"files", set_integer, IN_HANDLER(limits.files), 4, 1 << 20},
	{"processes", set_integer, IN_HANDLER(limits.processes), 1, 1 << 20},
	{"stream_processes", set_integer, IN_HANDLER(processes), 1, 1000},
	{"stream_window", set_integer, IN_HANDLER(window), 1, 100000},
	{NULL, NULL, 0, 0, 0},
};

/* ---- [env] --------------------------------------------------------------------------- */

static bool is_variable_name(const char *name)
{
	size_t length = strspn(name,
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");

	return length > 0 && name[length] == '\0' && !isdigit((unsigned char)name[0]);
}

/* The variables by which a handler learns about its job. */
static bool is_of_job(const char *name)
{
	static const char *const names[] = {"JOB_ID", "KIND", "ATTEMPT", "MAX_ATTEMPTS",
		"IDEMPOTENCY_KEY", "TENANT_KEY", "SUBJECT_KEY", "CORRELATION_ID", "TRACEPARENT",
		"TRIGGER", "DEADLINE", "RESULT_FD"};

	if (strncmp(name, "OUTBOX_", 7) != 0)
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(name + 7, names[i]) == 0)
			return true;
	return false;
}

static int put_variable(struct manifest *manifest, const char *name, const char *value,
	struct err *err)
{
	if (!is_variable_name(name))
		return err_set(err, ERR_CONFIG, "\"%s\" is not the name of a variable", name);
	if (is_of_job(name))
		return err_set(err, ERR_CONFIG, "\"%s\" is set for each job", name);
	if (value == NULL)
		return err_set(err, ERR_CONFIG, "the required variable \"%s\" is not set", name);
	handler_set_variable(manifest->handler, name, value);
	return 0;
}

static int require_variables(struct manifest *manifest, const char *names,
	struct err *err)
{
	struct buf name;
	int result = 0, found = 0;

	buf_init(&name, strlen(names) + 1);
	while (result == 0 && (found = manifest_next_word(&names, &name)) > 0)
		result = put_variable(manifest, buf_cstr(&name), getenv(buf_cstr(&name)), err);
	if (found < 0)
		result = err_set(err, ERR_CONFIG, "a quote is not closed");
	buf_release(&name);
	return result;
}

static int set_variable(struct manifest *manifest, const char *name, const char *value,
	struct err *err)
{
	if (strcmp(name, "require") == 0)
		return require_variables(manifest, value, err);
	return put_variable(manifest, name, value, err);
}

/* ---- [retry], [retry.CODE] ----------------------------------------------------------- */

static int set_on_exhaustion(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	(void)manifest;
	(void)key;
	if (strcmp(value, "cancel") != 0 && strcmp(value, "dead") != 0)
		return err_set(err, ERR_CONFIG, "\"%s\" is neither dead nor cancel", value);
	*(const char **)field = value[0] == 'c' ? "cancel" : "dead";
	return 0;
}

#define IN_POLICY(member) offsetof(struct policy, member)
#define IN_RULE(member) offsetof(struct policy_rule, member)

static const struct manifest_key retry_keys[] = {
	{"max_attempts", set_integer, IN_POLICY(max_attempts), 1, INT16_MAX},
	{"backoff", set_duration, IN_POLICY(backoff_ms), 0, 3650 * DAY_MS},
	{"backoff_max", set_duration, IN_POLICY(backoff_max_ms), 0, 3650 * DAY_MS},
	{"max_crashes", set_integer, IN_POLICY(max_crashes), 1, INT16_MAX},
	{"warn_at_streak", set_integer, IN_POLICY(warn_at_streak), 1, INT16_MAX},
	{NULL, NULL, 0, 0, 0},
};

static const struct manifest_key rule_keys[] = {
	{"max_attempts", set_integer, IN_RULE(max_attempts), 1, INT16_MAX},
	{"max_delay", set_duration, IN_RULE(max_delay_ms), 0, 3650 * DAY_MS},
	{"streak", set_integer, IN_RULE(streak), 1, INT16_MAX},
	{"on_exhaustion", set_on_exhaustion, IN_RULE(on_exhaustion), 0, 0},
	{NULL, NULL, 0, 0, 0},
};

/* ---- [exit] -------------------------------------------------------------------------- */

static int parse_exit(const char *value, struct outcome_exit *exit, struct err *err)
{
	size_t length = strcspn(value, " \t");
	const char *code = value + length + strspn(value + length, " \t");

	if (outcome_parse((struct str){value, length}, &exit->outcome) != 0)
		return err_set(err, ERR_CONFIG, "\"%.*s\" is not one of ok, retry, fail, cancel",
			(int)length, value);
	if (*code == '\0')
		return 0;
	if (!outcome_is_code(code))
		return err_set(err, ERR_CONFIG,
			"\"%s\" is not a code: 1 to %d of a-z, 0-9, \"_\", \".\", \"-\", the first a "
			"letter or digit",
			code, OUTCOME_MAX_CODE);
	if (exit->outcome == OUTCOME_OK)
		return err_set(err, ERR_CONFIG, "ok has no code");
	strcpy(exit->code, code);
	return 0;
}

static int set_exit(struct manifest *manifest, const char *name, const char *value,
	struct err *err)
{
	struct outcome_exits *exits = &manifest->handler->exits;
	struct outcome_exit exit = {.status = 0};
	int64_t status;

	if (units_parse_integer(name, 0, 255, &status, err) != 0 ||
		parse_exit(value, &exit, err) != 0)
		return -1;
	exit.status = (int)status;
	for (size_t i = 0; i < exits->count; i++) /* 07 and 7 */
		if (exits->items[i].status == exit.status)
			return err_set(err, ERR_CONFIG, "it comes twice");
	exits->items = mem_realloc(exits->items, exits->count + 1, sizeof(*exits->items));
	exits->items[exits->count++] = exit;
	return 0;
}

/* ---- [commit] ------------------------------------------------------------------------ */

/* The server would refuse several at once, each time that a job is done. */
static bool is_one_statement(const char *text)
{
	size_t length = strlen(text);

	while (length > 0 && strchr("; \t\r\n", text[length - 1]) != NULL)
		length--;
	return length > 0 && memchr(text, ';', length) == NULL;
}

static int set_commit(struct manifest *manifest, const char *name, const char *value,
	struct err *err)
{
	if (!is_variable_name(name))
		return err_set(err, ERR_CONFIG,
			"\"%s\" is not a name: letters, digits and \"_\", the first not a digit",
			name);
	if (!is_one_statement(value))
		return err_set(err, ERR_CONFIG, "not one statement without a semicolon in it");
	policy_add_commit(&manifest->policy, name, value);
	return 0;
}

/* ---- [payload], [retention] ---------------------------------------------------------- */

static int set_schema(struct manifest *manifest, const struct manifest_key *key,
	void *field, const char *value, struct err *err)
{
	char **schema = field;

	(void)key;
	*schema = manifest_read_schema(manifest->folder, value, err);
	return *schema == NULL ? -1 : 0;
}

static const struct manifest_key payload_keys[] = {
	{"schema", set_schema, IN_POLICY(schema), 0, 0},
	{"max_bytes", set_size, IN_POLICY(max_bytes), 1, MAX_PAYLOAD_BYTES},
	{"max_depth", set_integer, IN_POLICY(max_depth), 0, 500},
	{NULL, NULL, 0, 0, 0},
};

static const struct manifest_key retention_keys[] = {
	{"succeeded", set_period, IN_POLICY(succeeded_s), SECOND_MS, 36500 * DAY_MS},
	{"cancelled", set_period, IN_POLICY(cancelled_s), SECOND_MS, 36500 * DAY_MS},
	{"dead", set_period, IN_POLICY(dead_s), SECOND_MS, 36500 * DAY_MS},
	{NULL, NULL, 0, 0, 0},
};

/* ---- [redact] ------------------------------------------------------------------------ */

static int set_pattern(struct manifest *manifest, const char *name, const char *value,
	struct err *err)
{
	if (strcmp(name, "pattern") != 0)
		return err_set(err, ERR_CONFIG, "there is no such key");
	return redactions_add(manifest->shared != NULL ? manifest->shared
												   : &manifest->handler->redactions,
		value, err);
}

/* ---- sections ------------------------------------------------------------------------ */

static void *subject_handler(struct manifest *manifest)
{
	return manifest->handler;
}

static void *subject_policy(struct manifest *manifest)
{
	return &manifest->policy;
}

static void *subject_rule(struct manifest *manifest)
{
	return manifest->rule;
}

#define RULE_PREFIX "retry."

static const struct manifest_section sections[] = {
	{.name = "handler", .keys = handler_keys, .subject = subject_handler},
	{.name = "env", .set = set_variable},
	{.name = "retry", .keys = retry_keys, .subject = subject_policy},
	{.name = RULE_PREFIX, .keys = rule_keys, .subject = subject_rule},
	{.name = "exit", .set = set_exit},
	{.name = "commit", .set = set_commit},
	{.name = "payload", .keys = payload_keys, .subject = subject_policy},
	{.name = "retention", .keys = retention_keys, .subject = subject_policy},
	{.name = "redact", .set = set_pattern, .is_repeatable = true, .is_of_folder = true},
};

const char *manifest_code_of_section(const char *name)
{
	size_t length = strlen(RULE_PREFIX);

	return strncmp(name, RULE_PREFIX, length) == 0 ? name + length : NULL;
}

const struct manifest_section *manifest_find_section(const char *name)
{
	const char *wanted = manifest_code_of_section(name) != NULL ? RULE_PREFIX : name;

	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
		if (strcmp(sections[i].name, wanted) == 0)
			return &sections[i];
	return NULL;
}

int manifest_set_key(struct manifest *manifest, const struct manifest_section *section,
	const char *name, const char *value, struct err *err)
{
	const struct manifest_key *key = section->keys;

	while (key->name != NULL && strcmp(key->name, name) != 0)
		key++;
	if (key->name == NULL)
		return err_set(err, ERR_CONFIG, "there is no such key");
	char *subject = section->subject(manifest);
	return key->set(manifest, key, subject + key->offset, value, err);
}
