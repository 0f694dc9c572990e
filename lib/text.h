/*
 * UTF-8 and names: what PostgreSQL can store, and what a kind may be called.
 */
#ifndef OUTBOX_TEXT_H
#define OUTBOX_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"

/*
 * The length in bytes of the character at the front of `text` (count > 0). *valid is false
 * when it is not well-formed UTF-8; the length is then that of the maximal subpart that one
 * U+FFFD stands for (Unicode 15, section 3.9), at least 1. NUL is a valid character here.
 */
size_t text_next(const char *text, size_t count, bool *valid);

/*
 * Appends `text` to `out` as valid UTF-8 without NUL: each maximal subpart of an ill-formed
 * sequence (so also of surrogates and overlong forms) and each NUL becomes U+FFFD. Appends at
 * most max_bytes, no more than `out` can hold, and never half a character. Returns the
 * number of input bytes taken.
 */
size_t text_put_storable(struct buf *out, const char *text, size_t count,
	size_t max_bytes);

/* Whether the bytes are valid UTF-8 without NUL. */
bool text_is_storable(const char *text, size_t count);

/* The largest n <= max_bytes at which `text` can be cut without splitting a character. */
size_t text_clip(const char *text, size_t count, size_t max_bytes);

/* ^[a-z0-9][a-z0-9._-]{0,99}$, the rule for kinds and lanes (also a CHECK in the schema). */
bool text_is_kind(const char *text, size_t count);

#endif
