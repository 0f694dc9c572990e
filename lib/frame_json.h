/*
 * Frames as JSON objects: {"type":"job","epoch":5,…} with the field names of frame.h.
 *
 * A field that holds JSON (payload, metadata, manifest, response, commit, enqueue, detail)
 * becomes a member of that very text, byte for byte, where one line can hold it: valid, no
 * line break, no white space around it. Any other text becomes a string under NAME_text.
 * An absent document is left out, an absent string is null. Both directions together give
 * the same frame back, but for strings that are not UTF-8 and for fields that this version
 * does not know. A frame of an unknown version or type is only described.
 */
#ifndef OUTBOX_FRAME_JSON_H
#define OUTBOX_FRAME_JSON_H

#include "buf.h"
#include "err.h"

/* Appends the object for one whole frame, without a line break. -1: ERR_PROTOCOL, or
 * ERR_DATA past the maximum of `out`; `out` is then as it was. */
int frame_json_put(struct buf *out, const void *frame, size_t length, struct err *err);

/* Appends the frame that the object describes; members that are missing are absent. -1:
 * ERR_DATA naming the field; `out` is then as it was. */
int frame_json_get(struct buf *out, struct str object, struct err *err);

#endif
