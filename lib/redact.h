/*
 * Redaction: what matches a pattern is replaced before a text leaves the runner.
 *
 * Patterns are POSIX extended regular expressions over bytes, in the C locale; "." and
 * "[^…]" do not match a newline, "^" and "$" match at lines, as with grep.
 */
#ifndef OUTBOX_REDACT_H
#define OUTBOX_REDACT_H

#include <regex.h>
#include <stddef.h>

#include "buf.h"
#include "err.h"

#define REDACT_REPLACEMENT "[redacted]"

struct redactions {
	regex_t *patterns;
	size_t count;
};

/* ERR_CONFIG: no regular expression, or one that matches the empty text. */
int redactions_add(struct redactions *redactions, const char *pattern, struct err *err);
void redactions_release(struct redactions *redactions);

/*
 * Replaces every match of at most 2048 bytes in the text, which is cut at its maximum should it grow past it. Half
 * a character may be left where a pattern took the other half.
 */
void redactions_apply(const struct redactions *redactions, struct buf *text);

#endif
