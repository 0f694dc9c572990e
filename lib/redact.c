#include "redact.h"

#include <stdlib.h>

static int refuse(const char *pattern, const char *why, struct err *err)
{
	return err_set(err, ERR_CONFIG, "\"%s\" cannot be redacted: %s", pattern, why);
}

int redactions_add(struct redactions *redactions, const char *pattern, struct err *err)
{
	regex_t compiled;
	char why[128];

	int failed = regcomp(&compiled, pattern, REG_EXTENDED | REG_NEWLINE);
	if (failed != 0) {
		regerror(failed, &compiled, why, sizeof(why));
		return refuse(pattern, why, err);
	}
	if (regexec(&compiled, "", 0, NULL, 0) == 0) {
		regfree(&compiled);
		return refuse(pattern, "it matches the empty text", err);
	}
	redactions->patterns = mem_realloc(redactions->patterns, redactions->count + 1,
		sizeof(*redactions->patterns));
	redactions->patterns[redactions->count++] = compiled;
	return 0;
}

void redactions_release(struct redactions *redactions)
{
	for (size_t i = 0; i < redactions->count; i++)
		regfree(&redactions->patterns[i]);
	free(redactions->patterns);
	*redactions = (struct redactions){0};
}

/* Appends as much as fits. */
static void put_clipped(struct buf *out, const char *bytes, size_t count)
{
	size_t room = out->max - out->len;

	buf_put(out, bytes, count < room ? count : room);
}

/* By offsets (REG_STARTEND), because measuring the rest for every match would cost the
 * square of the length. */
static void replace(const regex_t *pattern, struct buf *text)
{
	regmatch_t match = {.rm_so = 0, .rm_eo = (regoff_t)text->len};
	size_t copied = 0, from = 0;
	const char *bytes = buf_cstr(text);
	struct buf result;

	buf_init(&result, text->max);
	while (from < text->len && regexec(pattern, bytes, 1, &match, REG_STARTEND) == 0) {
		size_t start = (size_t)match.rm_so, end = (size_t)match.rm_eo;
		if (end > start) {
			put_clipped(&result, bytes + copied, start - copied);
			put_clipped(&result, REDACT_REPLACEMENT, sizeof(REDACT_REPLACEMENT) - 1);
			copied = end;
		}
		from = end > start ? end : end + 1;
		match = (regmatch_t){.rm_so = (regoff_t)from, .rm_eo = (regoff_t)text->len};
	}
	if (copied > 0) {
		put_clipped(&result, bytes + copied, text->len - copied);
		buf_clear(text);
		buf_put(text, result.data, result.len);
	}
	buf_release(&result);
}

void redactions_apply(const struct redactions *redactions, struct buf *text)
{
	for (size_t i = 0; i < redactions->count; i++)
		if (text->len > 0)
			replace(&redactions->patterns[i], text);
}
