/*
 * The protocol as data: the fields of every frame in the order of the wire, with the names
 * and places that they have in the structs of frame.h. Encoding, decoding and the JSON of
 * `outbox-frame` all walk these tables, so that they cannot disagree.
 */
#ifndef OUTBOX_FRAME_LAYOUT_H
#define OUTBOX_FRAME_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "frame.h"

enum frame_field_type {
	FRAME_FIELD_INT,   /* int64_t */
	FRAME_FIELD_BOOL,  /* bool */
	FRAME_FIELD_STATE, /* enum frame_beat_state, an int on the wire */
	FRAME_FIELD_STR,   /* struct str */
	FRAME_FIELD_JSON,  /* struct str, JSON text as a rule; a str on the wire */
	FRAME_FIELD_LIST, /* const struct ITEM * and a size_t; an array of arrays on the wire */
};

struct frame_layout;

struct frame_field {
	const char *name;
	enum frame_field_type type;
	size_t offset;  /* in the struct */
	int64_t absent; /* INT: the value when a shorter frame lacks it */
	/* LIST: */
	size_t count_offset; /* of the size_t beside the pointer */
	size_t max_items;
	const struct frame_layout *item;
};

struct frame_layout {
	const char *name; /* "job" */
	size_t size;      /* of the struct */
	const struct frame_field *fields;
	size_t fields_count;
};

/* Where a decoder puts the items of a frame's lists, one for each LIST in order. */
struct frame_list {
	void *items;
	size_t capacity;
};
#define FRAME_MAX_LISTS 2 /* lists in one type of frame */

const struct frame_layout *frame_layout(int64_t type); /* NULL when unknown */

/* What the typed functions of frame.h call: `frame` is the struct of the layout. */
int frame_put(struct buf *out, enum frame_type type, const void *frame);
int frame_get(const void *bytes, size_t count, enum frame_type type, void *frame,
	const struct frame_list *lists, struct err *err);

#endif
