#include "jobdoc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "json.h"

#define DEFAULT_PATH "PATH=/usr/local/bin:/usr/bin:/bin"
#define TIME_SIZE 28 /* of clock_format_utc */

enum { JOB_VARIABLES = 12 }; /* as many as put_variables puts */

/* ---- the document -------------------------------------------------------------------- */

static void put_time(struct json_object *object, const char *key, int64_t unix_us)
{
	char text[TIME_SIZE];

	clock_format_utc(unix_us, text, sizeof(text));
	json_str(object, key, unix_us == 0 ? STR_NULL : str_of(text));
}

void jobdoc_put(struct buf *out, const struct frame_job *job, int64_t deadline_us)
{
	struct json_object object;

	json_begin(&object, out);
	json_id(&object, "id", job->job_id);
	json_str(&object, "kind", job->kind);
	json_raw(&object, "payload", job->payload);
	json_int(&object, "attempt", job->attempt);
	json_int(&object, "max_attempts", job->max_attempts);
	json_str(&object, "idempotency_key", job->idempotency_key);
	json_str(&object, "tenant_key", job->tenant_key);
	json_str(&object, "subject_key", job->subject_key);
	json_str(&object, "correlation_id", job->correlation_id);
	json_str(&object, "traceparent", job->traceparent);
	json_raw(&object, "metadata", job->metadata);
	put_time(&object, "created_at", job->created_at_us);
	put_time(&object, "deadline", deadline_us);
	json_str(&object, "trigger", job->trigger);
	json_str(&object, "reason", job->reason);
	json_end(&object);
	buf_put_char(out, '\n');
}

static void replace(char *text, size_t length, char unwanted)
{
	char *end = text + length;

	while ((text = memchr(text, unwanted, (size_t)(end - text))) != NULL)
		*text++ = ' ';
}

void jobdoc_put_line(struct buf *out, const struct frame_job *job, int64_t deadline_us)
{
	size_t start = out->len;

	jobdoc_put(out, job, deadline_us);
	size_t length = out->len - 1 - start;
	replace(out->data + start, length, '\n');
	replace(out->data + start, length, '\r');
}

/* ---- the environment ----------------------------------------------------------------- */

static void add_fixed(struct jobdoc_environment *environment, char *variable)
{
	environment->envp = mem_realloc(environment->envp,
		environment->fixed_count + 1 + JOB_VARIABLES + 1, sizeof(char *));
	environment->envp[environment->fixed_count++] = variable;
}

/* Unless the handler has a value of its own for it. */
static void add_inherited(struct jobdoc_environment *environment,
	const struct handler *handler, char *variable)
{
	size_t length = strcspn(variable, "=") + 1;

	for (char **own = handler->envp; *own != NULL; own++)
		if (strncmp(*own, variable, length) == 0)
			return;
	add_fixed(environment, variable);
}

/* "NAME=value" of this process's environment, or NULL. */
static char *find_variable(const char *name)
{
	size_t length = strlen(name);

	for (char **variable = environ; *variable != NULL; variable++)
		if (strncmp(*variable, name, length) == 0 && (*variable)[length] == '=')
			return *variable;
	return NULL;
}

static bool is_passed(const struct opt_list *passed, const char *name)
{
	for (size_t i = 0; i < passed->count; i++)
		if (strcmp(passed->items[i], name) == 0)
			return true;
	return false;
}

static bool is_kept(const char *variable)
{
	return strncmp(variable, "HOME=", 5) == 0 || strncmp(variable, "LANG=", 5) == 0 ||
		strncmp(variable, "LC_", 3) == 0 || strncmp(variable, "TZ=", 3) == 0;
}

void jobdoc_environment_init(struct jobdoc_environment *environment,
	const struct handler *handler, const struct opt_list *passed)
{
	static char default_path[] = DEFAULT_PATH;

	*environment = (struct jobdoc_environment){0};
	buf_init(&environment->text, JOBDOC_MAX_BYTES);
	if (!is_passed(passed, "PATH"))
		add_inherited(environment, handler, default_path);
	for (char **variable = environ; *variable != NULL; variable++)
		if (is_kept(*variable))
			add_inherited(environment, handler, *variable);
	for (size_t i = 0; i < passed->count; i++) {
		char *variable = find_variable(passed->items[i]);
		if (variable != NULL && !is_kept(variable))
			add_inherited(environment, handler, variable);
	}
	for (char **variable = handler->envp; *variable != NULL; variable++)
		add_fixed(environment, *variable);
}

void jobdoc_environment_release(struct jobdoc_environment *environment)
{
	free(environment->envp);
	buf_release(&environment->text);
	*environment = (struct jobdoc_environment){0};
}

/* Absent values have no variable; nor has one that a C string cannot hold. */
static void put_str(struct buf *text, const char *name, struct str value)
{
	if (value.s == NULL || memchr(value.s, '\0', value.n) != NULL)
		return;
	buf_put_str(text, str_of(name));
	buf_put_char(text, '=');
	buf_put_str(text, value);
	buf_put_char(text, '\0');
}

static void put_int(struct buf *text, const char *name, int64_t value)
{
	buf_printf(text, "%s=%" PRId64, name, value);
	buf_put_char(text, '\0');
}

static void put_variables(struct buf *text, const struct frame_job *job,
	int64_t deadline_us)
{
	char deadline[TIME_SIZE];

	clock_format_utc(deadline_us, deadline, sizeof(deadline));
	put_int(text, "OUTBOX_JOB_ID", job->job_id);
	put_str(text, "OUTBOX_KIND", job->kind);
	put_int(text, "OUTBOX_ATTEMPT", job->attempt);
	put_int(text, "OUTBOX_MAX_ATTEMPTS", job->max_attempts);
	put_str(text, "OUTBOX_IDEMPOTENCY_KEY", job->idempotency_key);
	put_str(text, "OUTBOX_TENANT_KEY", job->tenant_key);
	put_str(text, "OUTBOX_SUBJECT_KEY", job->subject_key);
	put_str(text, "OUTBOX_CORRELATION_ID", job->correlation_id);
	put_str(text, "OUTBOX_TRACEPARENT", job->traceparent);
	put_str(text, "OUTBOX_TRIGGER", job->trigger);
	put_str(text, "OUTBOX_DEADLINE", deadline_us == 0 ? STR_NULL : str_of(deadline));
	put_str(text, "OUTBOX_RESULT_FD", STR("3"));
}

/* Behind the fixed part: what stands in the text. */
static char *const *add_variables(struct jobdoc_environment *environment)
{
	struct buf *text = &environment->text;
	size_t count = environment->fixed_count;

	for (size_t at = 0; at < text->len; at += strlen(text->data + at) + 1)
		environment->envp[count++] = text->data + at;
	environment->envp[count] = NULL;
	return environment->envp;
}

char *const *jobdoc_environment_of(struct jobdoc_environment *environment,
	const struct frame_job *job, int64_t deadline_us)
{
	buf_clear(&environment->text);
	put_variables(&environment->text, job, deadline_us);
	return add_variables(environment);
}

char *const *jobdoc_environment_of_stream(struct jobdoc_environment *environment,
	const char *kind)
{
	buf_clear(&environment->text);
	put_str(&environment->text, "OUTBOX_KIND", str_of(kind));
	put_str(&environment->text, "OUTBOX_MODE", STR("stream"));
	return add_variables(environment);
}
