/*
 * Writing JSON. Payloads are spliced in as they are and never parsed (64-bit numbers,
 * key order and signatures survive); only strings of ours are escaped.
 */
#ifndef OUTBOX_JSON_H
#define OUTBOX_JSON_H

#include <stdbool.h>

#include "buf.h"

/* "…" with the escapes of RFC 8259 section 7; an absent string is null. Invalid UTF-8 is
 * replaced by U+FFFD. -1 past the maximum of `out`, which is then unchanged. */
int json_put_string(struct buf *out, struct str text);

/* An object under construction. Each member call writes its comma, the key, which must need
 * no escapes, and a value; an absent value is null. */
struct json_object {
	struct buf *out;
	bool any;    /* has members */
	bool failed; /* something did not fit; what is in `out` is no JSON */
};

void json_begin(struct json_object *object, struct buf *out); /* { */
int json_end(struct json_object *object); /* }; -1 when any part did not fit */
void json_str(struct json_object *object, const char *key, struct str value);
void json_id(struct json_object *object, const char *key,
	int64_t number); /* in quotes: JavaScript and jq round numbers of more than 53 bits */
void json_int(struct json_object *object, const char *key, int64_t value);
void json_bool(struct json_object *object, const char *key, bool value);
void json_raw(struct json_object *object, const char *key, struct str json);

/*
 * Whether the bytes are exactly one JSON value (RFC 8259) nested at most max_depth deep,
 * with white space around it allowed. A bare number or string has depth 0, [[]] has 2; a
 * max_depth above JSON_MAX_DEPTH counts as that. Strings must be valid UTF-8; \u escapes
 * of lone surrogates pass, as the grammar has it. Does not allocate or recurse.
 */
#define JSON_MAX_DEPTH 512
bool json_is_valid(const char *text, size_t count, int max_depth);

#endif
