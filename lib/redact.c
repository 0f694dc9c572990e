#include "redact.h"

#include <stdbool.h>
#include <stdlib.h>

#define WINDOW ((size_t)2048) /* bytes: the longest match; see find() */

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

/*
 * Finds the next match at or after `from`. In windows, because a pattern without an upper
 * bound costs the square of the length that it may look at, and the runner waits meanwhile.
 */
static bool find(const regex_t *pattern, const struct buf *text, size_t from,
	regmatch_t *match)
{
	while (from < text->len) {
		size_t end = text->len - from > WINDOW ? from + WINDOW : text->len;
		bool is_last = end == text->len;

		*match = (regmatch_t){.rm_so = (regoff_t)from, .rm_eo = (regoff_t)end};
		if (regexec(pattern, text->data, 1, match,
				REG_STARTEND | (is_last ? 0 : REG_NOTEOL)) == 0) {
			bool is_cut = !is_last && (size_t)match->rm_eo == end;
			if (!is_cut || (size_t)match->rm_so == from)
				return true;
			from = (size_t)match->rm_so; /* again, with a whole window before it */
		} else if (is_last) {
			return false;
		} else {
			from = end - WINDOW / 2;
		}
	}
	return false;
}

static void replace(const regex_t *pattern, struct buf *text)
{
	regmatch_t match;
	size_t copied = 0, from = 0;
	struct buf result;

	buf_cstr(text);
	buf_init(&result, text->max);
	while (find(pattern, text, from, &match)) {
		size_t start = (size_t)match.rm_so, end = (size_t)match.rm_eo;
		if (end > start) {
			put_clipped(&result, text->data + copied, start - copied);
			put_clipped(&result, REDACT_REPLACEMENT, sizeof(REDACT_REPLACEMENT) - 1);
			copied = end;
		}
		from = end > start ? end : end + 1;
	}
	if (copied > 0) {
		put_clipped(&result, text->data + copied, text->len - copied);
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
