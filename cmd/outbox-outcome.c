/*
 * outbox-outcome: says for a shell handler what became of its job. Makes the document that
 * goes to descriptor 3, and checks it as the runner will.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"
#include "outcome.h"
#include "program.h"
#include "units.h"

#define DEFAULT_RESULT_FD 3

static struct {
	const char *code, *after, *error, *reason;
	struct opt_list commits, follow_ups;
} options;

/* No environment: a handler's is full of OUTBOX_ variables that are about something else. */
static const struct opt opts[] = {
	{
		.name = "code",
		.type = OPT_STRING,
		.value = &options.code,
		.argument = "CODE",
		.environment = "",
		.help = "a word for what went wrong, which policies are about",
	},
	{
		.name = "after",
		.type = OPT_STRING,
		.value = &options.after,
		.argument = "DURATION",
		.environment = "",
		.help = "retry: not before so long",
	},
	{
		.name = "error",
		.type = OPT_STRING,
		.value = &options.error,
		.argument = "TEXT",
		.environment = "",
		.help = "the error that is kept, instead of stderr",
	},
	{
		.name = "reason",
		.type = OPT_STRING,
		.value = &options.reason,
		.argument = "TEXT",
		.environment = "",
		.help = "cancel: why the job is not wanted any more",
	},
	{
		.name = "commit",
		.type = OPT_LIST,
		.value = &options.commits,
		.argument = "NAME",
		.environment = "",
		.help =
			"ok: run this statement of the manifest; or {\"name\", \"args\"}; may be repeated",
	},
	{
		.name = "enqueue",
		.type = OPT_LIST,
		.value = &options.follow_ups,
		.argument = "JSON",
		.environment = "",
		.help =
			"ok: enqueue this follow-up, {\"kind\", \"payload\", ...}; may be repeated",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox-outcome",
	.summary = "say what became of a job",
	.usage = "[option ...] ok|retry|fail|cancel [--] [ARG ...]",
	.tables = {opts},
};

/* ---- the document -------------------------------------------------------------------- */

static int put_json(struct buf *out, const char *text, const char *option,
	struct err *err)
{
	if (!json_is_valid(text, strlen(text), OUTCOME_MAX_DEPTH))
		return err_set(err, ERR_DATA, "--%s: \"%s\" is not JSON", option, text);
	return buf_put_str(out, str_of(text));
}

static int put_named_commit(struct buf *out, const char *name, char *const *arguments)
{
	struct json_object object;
	struct buf list;

	buf_init(&list, out->max);
	buf_put_char(&list, '[');
	for (size_t i = 0; arguments[i] != NULL; i++) {
		if (i > 0)
			buf_put_char(&list, ',');
		json_put_string(&list, str_of(arguments[i]));
	}
	buf_put_char(&list, ']');
	json_begin(&object, out);
	json_str(&object, "name", str_of(name));
	json_raw(&object, "args", (struct str){list.data, list.len});
	buf_release(&list);
	return json_end(&object);
}

static int put_commits(struct buf *out, char *const *arguments, struct err *err)
{
	int result = 0;

	buf_put_char(out, '[');
	for (size_t i = 0; i < options.commits.count && result == 0; i++) {
		const char *commit = options.commits.items[i];
		if (i > 0)
			buf_put_char(out, ',');
		if (commit[0] == '{')
			result = put_json(out, commit, "commit", err);
		else
			result = put_named_commit(out, commit, arguments);
	}
	buf_put_char(out, ']');
	return result;
}

static int put_follow_ups(struct buf *out, struct err *err)
{
	int result = 0;

	buf_put_char(out, '[');
	for (size_t i = 0; i < options.follow_ups.count && result == 0; i++) {
		if (i > 0)
			buf_put_char(out, ',');
		result = put_json(out, options.follow_ups.items[i], "enqueue", err);
	}
	buf_put_char(out, ']');
	return result;
}

static void put_member(struct json_object *object, const char *name, const char *value)
{
	if (value != NULL)
		json_str(object, name, str_of(value));
}

static int put_document(struct buf *out, const char *outcome, char *const *arguments,
	struct err *err)
{
	struct json_object object;
	struct buf list;
	int result = 0;

	buf_init(&list, out->max);
	json_begin(&object, out);
	json_str(&object, "outcome", str_of(outcome));
	put_member(&object, "code", options.code);
	put_member(&object, "after", options.after);
	put_member(&object, "error", options.error);
	put_member(&object, "reason", options.reason);
	if (options.commits.count > 0) {
		result = put_commits(&list, arguments, err);
		json_raw(&object, "commit", (struct str){list.data, list.len});
		buf_clear(&list);
	}
	if (options.follow_ups.count > 0 && result == 0) {
		result = put_follow_ups(&list, err);
		json_raw(&object, "enqueue", (struct str){list.data, list.len});
	}
	buf_release(&list);
	if (result == 0 && (json_end(&object) != 0 || buf_put_char(out, '\n') != 0))
		return err_set(err, ERR_DATA, "the document has more than %zu bytes", out->max);
	return result;
}

/* ---- writing ------------------------------------------------------------------------- */

static int result_fd(struct err *err)
{
	const char *text = getenv("OUTBOX_RESULT_FD");
	int64_t fd = DEFAULT_RESULT_FD;

	if (text != NULL && units_parse_integer(text, 0, INT32_MAX, &fd, err) != 0)
		return err_prefix(err, "OUTBOX_RESULT_FD");
	return (int)fd;
}

static int write_all(int fd, const struct buf *document, struct err *err)
{
	size_t done = 0;

	while (done < document->len) {
		ssize_t written = write(fd, document->data + done, document->len - done);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return err_set_errno(err, ERR_IO, errno, "could not write to descriptor %d",
				fd);
		done += (size_t)written;
	}
	return 0;
}

/* ---- main ---------------------------------------------------------------------------- */

static int check_arguments(int count, char **arguments, struct err *err)
{
	bool takes_arguments = options.commits.count == 1 &&
		options.commits.items[0][0] != '{';

	if (count == 0)
		return err_set(err, ERR_USAGE,
			"the outcome is missing: ok, retry, fail or cancel");
	if (count > 1 && !takes_arguments)
		return err_set(err, ERR_USAGE,
			"\"%s\" is the argument of nothing: it takes one --commit NAME",
			arguments[1]);
	return 0;
}

static int say(int count, char **arguments, struct err *err)
{
	struct outcome_document parsed;
	struct buf document;
	int fd = result_fd(err);

	if (fd < 0 || check_arguments(count, arguments, err) != 0)
		return -1;
	buf_init(&document, OUTCOME_MAX_DOCUMENT);
	int result = put_document(&document, arguments[0], arguments + 1, err);
	if (result == 0)
		result = outcome_document_parse(document.data, document.len, &parsed, err);
	if (result == 0) {
		outcome_document_release(&parsed);
		result = write_all(fd, &document, err);
	}
	buf_release(&document);
	return result;
}

int main(int argc, char **argv)
{
	struct err err = ERR_INIT;

	int first = program_start(&program, argc, argv);
	int result = say(argc - first, argv + first, &err);
	opt_list_release(&options.commits);
	opt_list_release(&options.follow_ups);
	return result == 0 ? 0 : program_fail(&err);
}
