/*
 * Reading JSON as slices: the members of an object and the items of an array, one by one,
 * each as the very bytes that stand in the text. Nothing is parsed that is not asked for,
 * so 64-bit numbers and nested documents stay as they are. Only for text that json_is_valid
 * has accepted: there is no second check here. Views die with the text.
 */
#ifndef OUTBOX_JSON_READ_H
#define OUTBOX_JSON_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"

struct json_reader {
	const char *at, *end;
};

/* Whether the text is an object ('{') or array ('['); if so the reader is in front of its
 * first element. */
bool json_read_begin(struct json_reader *reader, struct str json, char open);

/* The next member: its key with quotes and escapes, its value without white space around.
 * false at the end. */
bool json_read_member(struct json_reader *reader, struct str *key, struct str *value);

/* The next item of an array; false at the end. */
bool json_read_item(struct json_reader *reader, struct str *value);

/* Appends what a string ("…", with its quotes) says. -1: not a string, half a surrogate
 * pair, or the buf is full. */
int json_read_string(struct buf *out, struct str value);

/* -1: not a number, not whole, or past 64 bits. */
int json_read_int(struct str value, int64_t *number);

bool json_read_is(struct str value, const char *word); /* true, false or null */

#endif
