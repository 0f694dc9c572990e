#include "outcome.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "json_read.h"
#include "text.h"
#include "units.h"

static const char *const names[] = {
	[OUTCOME_OK] = "ok",
	[OUTCOME_RETRY] = "retry",
	[OUTCOME_FAIL] = "fail",
	[OUTCOME_CANCEL] = "cancel",
	[OUTCOME_LOST] = "lost",
	[OUTCOME_RELEASE] = "release",
};

const char *outcome_name(enum outcome outcome)
{
	return names[outcome];
}

int outcome_parse(struct str name, enum outcome *outcome)
{
	for (int i = OUTCOME_OK; i <= OUTCOME_CANCEL; i++) {
		if (str_equal(name, str_of(names[i]))) {
			*outcome = (enum outcome)i;
			return 0;
		}
	}
	return -1;
}

/* ---- exit statuses ------------------------------------------------------------------- */

/* What will not get better by trying again, as sysexits.h and supervisors (100) say it. */
static bool is_permanent(int exit_status)
{
	switch (exit_status) {
	case 64: /* EX_USAGE */
	case 65: /* EX_DATAERR */
	case 76: /* EX_PROTOCOL */
	case 77: /* EX_NOPERM */
	case 78: /* EX_CONFIG */
	case 100:
		return true;
	default:
		return false;
	}
}

enum outcome outcome_of_exit(int exit_status, int signal_number, char *code, size_t size)
{
	if (signal_number > 0) {
		snprintf(code, size, "signal_%d", signal_number);
		return OUTCOME_RETRY;
	}
	if (exit_status == 0) {
		code[0] = '\0';
		return OUTCOME_OK;
	}
	snprintf(code, size, "exit_%d", exit_status);
	return is_permanent(exit_status) ? OUTCOME_FAIL : OUTCOME_RETRY;
}

/* By the manifest, else by the built-in table. */
static enum outcome classify(int exit_status, int signal_number,
	const struct outcome_exits *exits, char *code, size_t size)
{
	enum outcome outcome = outcome_of_exit(exit_status, signal_number, code, size);

	for (size_t i = 0; signal_number == 0 && i < exits->count; i++) {
		const struct outcome_exit *exit = &exits->items[i];
		if (exit->status != exit_status)
			continue;
		outcome = exit->outcome;
		if (outcome == OUTCOME_OK || exit->code[0] != '\0')
			snprintf(code, size, "%s", exit->code);
		else if (exit_status == 0)
			snprintf(code, size, "exit_0");
	}
	return outcome;
}

enum outcome outcome_conclude(int exit_status, int signal_number,
	const struct outcome_exits *exits, const struct outcome_document *document,
	char code[OUTCOME_MAX_CODE + 1])
{
	size_t size = OUTCOME_MAX_CODE + 1;
	enum outcome by_exit = classify(exit_status, signal_number, exits, code, size);

	if (document == NULL)
		return by_exit;
	if (document->outcome == OUTCOME_OK) {
		if (signal_number == 0 && by_exit != OUTCOME_OK) {
			snprintf(code, size, "bad_outcome");
			return OUTCOME_RETRY;
		}
		return by_exit;
	}
	if (document->code != NULL)
		snprintf(code, size, "%s", document->code);
	else if (code[0] == '\0')
		snprintf(code, size, "%s", outcome_name(document->outcome));
	return document->outcome;
}

/* ---- the document: one function a member --------------------------------------------- */

/* Names are plain ASCII here, so nobody has a reason to write them with escapes. */
static bool key_is(struct str key, const char *name)
{
	size_t length = strlen(name);

	return key.n == length + 2 && memcmp(key.s + 1, name, length) == 0;
}

static bool is_string(struct str value)
{
	return value.n >= 2 && value.s[0] == '"';
}

/* What cannot be stored becomes U+FFFD; a string with half a surrogate pair, which says
 * nothing in UTF-8, stays as it was written, escapes and all. */
static int get_text(struct str value, char **text, struct err *err)
{
	struct buf decoded, storable;

	if (!is_string(value))
		return err_set(err, ERR_DATA, "not a string");
	buf_init(&decoded, value.n);
	buf_init(&storable, 3 * value.n);
	if (json_read_string(&decoded, value) != 0) {
		buf_clear(&decoded);
		buf_put(&decoded, value.s + 1, value.n - 2);
	}
	text_put_storable(&storable, decoded.data, decoded.len, storable.max);
	*text = mem_strdup(buf_cstr(&storable));
	buf_release(&decoded);
	buf_release(&storable);
	return 0;
}

static int get_outcome(struct outcome_document *document, struct str value,
	struct err *err)
{
	char *name = NULL;

	if (get_text(value, &name, err) != 0)
		return -1;
	int found = outcome_parse(str_of(name), &document->outcome);
	free(name);
	if (found != 0)
		return err_set(err, ERR_DATA, "not one of ok, retry, fail, cancel");
	return 0;
}

bool outcome_is_code(const char *text)
{
	size_t length = strlen(text);

	return length > 0 && length <= OUTCOME_MAX_CODE && text[0] != '_' && text[0] != '.' &&
		text[0] != '-' &&
		strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_.-") == length;
}

static int get_code(struct outcome_document *document, struct str value, struct err *err)
{
	if (get_text(value, &document->code, err) != 0)
		return -1;
	if (!outcome_is_code(document->code))
		return err_set(err, ERR_DATA,
			"not 1 to %d of a-z, 0-9, \"_\", \".\" and \"-\", the first a letter or digit",
			OUTCOME_MAX_CODE);
	return 0;
}

static int get_error(struct outcome_document *document, struct str value, struct err *err)
{
	return get_text(value, &document->error, err);
}

static int get_reason(struct outcome_document *document, struct str value,
	struct err *err)
{
	return get_text(value, &document->reason, err);
}

static int get_after_seconds(struct str value, int64_t *after_ms, struct err *err)
{
	char text[32];

	if (value.n >= sizeof(text))
		return err_set(err, ERR_DATA, "not a reasonable number of seconds");
	memcpy(text, value.s, value.n);
	text[value.n] = '\0';
	double ms = strtod(text, NULL) * 1000;
	if (!(ms >= 0 && ms <= (double)OUTCOME_MAX_AFTER_MS))
		return err_set(err, ERR_DATA, "not between 0 and 10 years");
	*after_ms = llrint(ms);
	return 0;
}

static int get_after(struct outcome_document *document, struct str value, struct err *err)
{
	char *text = NULL;

	if (value.s[0] == '-' || (value.s[0] >= '0' && value.s[0] <= '9'))
		return get_after_seconds(value, &document->after_ms, err);
	if (!is_string(value))
		return err_set(err, ERR_DATA, "neither a duration nor a number of seconds");
	if (get_text(value, &text, err) != 0)
		return -1;
	int parsed = units_parse_duration_ms(text, &document->after_ms, err);
	free(text);
	if (parsed == 0 && document->after_ms > OUTCOME_MAX_AFTER_MS)
		return err_set(err, ERR_DATA, "not between 0 and 10 years");
	return parsed;
}

static bool is_name(struct str value)
{
	return is_string(value) && value.n > 2;
}

static bool is_kind(struct str value)
{
	return is_string(value) && text_is_kind(value.s + 1, value.n - 2);
}

static bool has_member(struct str object, const char *wanted, bool is_good(struct str))
{
	struct json_reader members;
	struct str key, value;
	bool good = false;

	if (!json_read_begin(&members, object, '{'))
		return false;
	while (json_read_member(&members, &key, &value))
		if (key_is(key, wanted))
			good = is_good(value);
	return good;
}

/* Keeps the text of an array of objects, each with the member that it is known by. */
static int get_list(struct str value, const char *member, bool is_good(struct str),
	char **text, struct err *err)
{
	struct json_reader items;
	struct str item;
	int64_t count = 0;

	if (!json_read_begin(&items, value, '['))
		return err_set(err, ERR_DATA, "not an array");
	for (; json_read_item(&items, &item); count++)
		if (!has_member(item, member, is_good))
			return err_set(err, ERR_DATA, "an item is not an object with a good \"%s\"",
				member);
	if (count > 0)
		*text = mem_strndup(value.s, value.n);
	return 0;
}

static int get_commit(struct outcome_document *document, struct str value,
	struct err *err)
{
	return get_list(value, "name", is_name, &document->commit, err);
}

static int get_enqueue(struct outcome_document *document, struct str value,
	struct err *err)
{
	return get_list(value, "kind", is_kind, &document->enqueue, err);
}

static const struct member {
	const char *name;
	int (*get)(struct outcome_document *document, struct str value, struct err *err);
} members[] = {
	{"outcome", get_outcome}, /* first: it has to be there */
	{"code", get_code},
	{"error", get_error},
	{"reason", get_reason},
	{"after", get_after},
	{"commit", get_commit},
	{"enqueue", get_enqueue},
};

#define MEMBERS (sizeof(members) / sizeof(members[0]))

static size_t find_member(struct str key)
{
	size_t i = 0;

	while (i < MEMBERS && !key_is(key, members[i].name))
		i++;
	return i;
}

static int get_members(struct json_reader *reader, struct outcome_document *document,
	bool needs_outcome, struct err *err)
{
	bool seen[MEMBERS] = {false};
	struct str key, value;

	while (json_read_member(reader, &key, &value)) {
		size_t i = find_member(key);
		if (i == MEMBERS || json_read_is(value, "null"))
			continue;
		if (seen[i])
			return err_set(err, ERR_DATA, "\"%s\" comes twice", members[i].name);
		seen[i] = true;
		if (members[i].get(document, value, err) != 0)
			return err_prefix(err, "\"%s\"", members[i].name);
	}
	if (needs_outcome && !seen[0])
		return err_set(err, ERR_DATA, "there is no \"outcome\"");
	if (document->outcome != OUTCOME_OK &&
		(document->commit != NULL || document->enqueue != NULL))
		return err_set(err, ERR_DATA,
			"\"commit\" and \"enqueue\" go with the outcome \"ok\" only");
	return 0;
}

static int read_object(struct str object, bool needs_outcome,
	struct outcome_document *document, struct err *err)
{
	struct json_reader reader;

	*document = (struct outcome_document){.after_ms = -1};
	if (!json_read_begin(&reader, object, '{'))
		return err_set(err, ERR_DATA, "not an object");
	if (get_members(&reader, document, needs_outcome, err) == 0)
		return 0;
	outcome_document_release(document);
	return -1;
}

int outcome_document_read(struct str object, struct outcome_document *document,
	struct err *err)
{
	return read_object(object, false, document, err);
}

int outcome_document_parse(const char *text, size_t count,
	struct outcome_document *document, struct err *err)
{
	*document = (struct outcome_document){.after_ms = -1};
	if (count > OUTCOME_MAX_DOCUMENT)
		return err_set(err, ERR_DATA, "the outcome document has more than %zu bytes",
			OUTCOME_MAX_DOCUMENT);
	if (!json_is_valid(text, count, OUTCOME_MAX_DEPTH))
		return err_set(err, ERR_DATA, "the outcome document is not one JSON value");
	if (read_object((struct str){text, count}, true, document, err) != 0)
		return err_prefix(err, "in the outcome document");
	return 0;
}

void outcome_document_release(struct outcome_document *document)
{
	free(document->code);
	free(document->error);
	free(document->reason);
	free(document->commit);
	free(document->enqueue);
	*document = (struct outcome_document){.after_ms = -1};
}
