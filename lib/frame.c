#include "frame.h"

#include <msgpack.h>
#include <string.h>

#include "cursor.h"
#include "frame_layout.h"

_Static_assert(FRAME_MAX_DEPTH == CURSOR_MAX_DEPTH, "a frame is one container itself");

#define HEADER_FIELDS 2 /* version, type */

const char *frame_type_name(enum frame_type type)
{
	const struct frame_layout *layout = frame_layout(type);
	return layout ? layout->name : NULL;
}

/* ---- finding ------------------------------------------------------------------------ */

static int not_a_frame(struct err *err, const char *why)
{
	return err_set(err, ERR_PROTOCOL, "malformed frame: %s", why);
}

/* Reads an integer of the header. 1, 0 or -1 as frame_next. */
static int read_header_int(struct cursor *cursor, const char *name, int64_t *value,
	struct err *err)
{
	struct cursor_head head;
	enum cursor_status status = cursor_read(cursor, &head);
	if (status == CURSOR_MORE)
		return 0;
	if (status == CURSOR_BAD || head.kind != CURSOR_INT)
		return err_set(err, ERR_PROTOCOL, "malformed frame: %s is not an integer", name);
	*value = head.number;
	return 1;
}

int frame_next(const void *bytes, size_t count, size_t *length, int64_t *version,
	int64_t *type, struct err *err)
{
	struct cursor cursor;
	struct cursor_head head;

	if (count == 0)
		return 0;
	cursor_init(&cursor, bytes, count);
	enum cursor_status status = cursor_read(&cursor, &head);
	if (status == CURSOR_MORE && *(const unsigned char *)bytes >> 1 == 0xdc >> 1)
		return 0; /* the count of an array is cut */
	if (status != CURSOR_OK || head.kind != CURSOR_ARRAY)
		return not_a_frame(err, "not an array");
	if (head.children < HEADER_FIELDS)
		return not_a_frame(err, "fewer than two fields");
	if (head.children > FRAME_MAX_BYTES)
		return not_a_frame(err, "more fields than bytes allowed");
	int found = read_header_int(&cursor, "version", version, err);
	if (found == 1)
		found = read_header_int(&cursor, "type", type, err);
	if (found != 1)
		return found;

	size_t used = (size_t)(cursor.at - (const unsigned char *)bytes);
	status = cursor_skip(&cursor, head.children - HEADER_FIELDS, 1,
		FRAME_MAX_BYTES - used);
	if (status == CURSOR_MORE)
		return 0;
	if (status == CURSOR_BAD)
		return not_a_frame(err, "too large, too deep, or not msgpack");
	*length = (size_t)(cursor.at - (const unsigned char *)bytes);
	return 1;
}

/* ---- decoding ----------------------------------------------------------------------- */

/* Where a decoder is, for its error messages: "kinds[3].lane" or "lane". */
struct place {
	const struct frame_layout *frame;
	const char *list; /* NULL: in the frame itself */
	size_t index;
};

static int wrong_field(struct err *err, const struct place *place, const char *field,
	const char *why)
{
	if (place->list)
		return err_set(err, ERR_PROTOCOL, "malformed %s frame: field \"%s[%zu].%s\" %s",
			place->frame->name, place->list, place->index, field, why);
	return err_set(err, ERR_PROTOCOL, "malformed %s frame: field \"%s\" %s",
		place->frame->name, field, why);
}

static void *member(void *record, size_t offset)
{
	return (char *)record + offset;
}

static const void *const_member(const void *record, size_t offset)
{
	return (const char *)record + offset;
}

static void set_absent(const struct frame_field *field, void *record)
{
	/* The record is zeroed: only a "none" that is not zero needs to be written. */
	if (field->type == FRAME_FIELD_INT)
		*(int64_t *)member(record, field->offset) = field->absent;
}

/* Why the head cannot be a value of the field, or NULL. */
static const char *type_complaint(const struct frame_field *field,
	const struct cursor_head *head)
{
	switch (field->type) {
	case FRAME_FIELD_INT:
		return head->kind == CURSOR_INT ? NULL : "is not an integer";
	case FRAME_FIELD_BOOL:
		return head->kind == CURSOR_BOOL ? NULL : "is not a boolean";
	case FRAME_FIELD_STATE:
		if (head->kind != CURSOR_INT)
			return "is not an integer";
		if (head->number < FRAME_BEAT_ALIVE || head->number > FRAME_BEAT_UNKNOWN)
			return "is out of range";
		return NULL;
	case FRAME_FIELD_STR:
	case FRAME_FIELD_JSON:
		return head->kind == CURSOR_STR || head->kind == CURSOR_NIL ? NULL
																	: "is not a string";
	case FRAME_FIELD_LIST:
		return head->kind == CURSOR_ARRAY ? NULL : "is not a list";
	}
	return "has an unknown type";
}

static int get_record(struct cursor *cursor, const struct frame_layout *layout,
	uint64_t present, void *record, const struct frame_list *lists,
	const struct place *place, struct err *err);

static int get_list(struct cursor *cursor, const struct frame_field *field,
	uint64_t present, void *record, const struct frame_list *list,
	const struct place *place, struct err *err)
{
	if (present > list->capacity || present > field->max_items)
		return wrong_field(err, place, field->name, "has too many items");
	for (size_t i = 0; i < present; i++) {
		struct place inside = {.frame = place->frame, .list = field->name, .index = i};
		struct cursor_head head;
		if (cursor_read(cursor, &head) != CURSOR_OK || head.kind != CURSOR_ARRAY)
			return wrong_field(err, place, field->name, "has an item that is not a list");
		void *item = (char *)list->items + i * field->item->size;
		if (get_record(cursor, field->item, head.children, item, NULL, &inside, err) < 0)
			return -1;
	}
	*(const void **)member(record, field->offset) = list->items;
	*(size_t *)member(record, field->count_offset) = (size_t)present;
	return 0;
}

static int get_field(struct cursor *cursor, const struct frame_field *field, void *record,
	const struct frame_list *list, const struct place *place, struct err *err)
{
	struct cursor_head head;
	void *value = member(record, field->offset);

	if (cursor_read(cursor, &head) != CURSOR_OK)
		return wrong_field(err, place, field->name, "is cut short");
	const char *complaint = type_complaint(field, &head);
	if (complaint)
		return wrong_field(err, place, field->name, complaint);
	switch (field->type) {
	case FRAME_FIELD_INT:
		*(int64_t *)value = head.number;
		return 0;
	case FRAME_FIELD_BOOL:
		*(bool *)value = head.number != 0;
		return 0;
	case FRAME_FIELD_STATE:
		*(enum frame_beat_state *)value = (enum frame_beat_state)head.number;
		return 0;
	case FRAME_FIELD_STR:
	case FRAME_FIELD_JSON:
		if (head.kind == CURSOR_NIL)
			return 0;
		if (cursor_take(cursor, head.length, value) != CURSOR_OK)
			return wrong_field(err, place, field->name, "is cut short");
		return 0;
	case FRAME_FIELD_LIST:
		return get_list(cursor, field, head.children, record, list, place, err);
	}
	return 0;
}

/* `present` elements follow; those past the layout are skipped. */
static int get_record(struct cursor *cursor, const struct frame_layout *layout,
	uint64_t present, void *record, const struct frame_list *lists,
	const struct place *place, struct err *err)
{
	memset(record, 0, layout->size);
	for (size_t i = 0; i < layout->fields_count; i++) {
		const struct frame_field *field = &layout->fields[i];
		const struct frame_list *list = NULL;
		if (field->type == FRAME_FIELD_LIST)
			list = lists++;
		if (i >= present)
			set_absent(field, record);
		else if (get_field(cursor, field, record, list, place, err) < 0)
			return -1;
	}
	if (present <= layout->fields_count)
		return 0;
	size_t left = (size_t)(cursor->end - cursor->at);
	int depth = place->list ? 3 : 1; /* frame; or frame, list, item */
	if (cursor_skip(cursor, present - layout->fields_count, depth, left) != CURSOR_OK)
		return err_set(err, ERR_PROTOCOL,
			"malformed %s frame: unknown fields at its end cannot be skipped",
			place->frame->name);
	return 0;
}

int frame_get(const void *bytes, size_t count, enum frame_type type, void *frame,
	const struct frame_list *lists, struct err *err)
{
	const struct frame_layout *layout = frame_layout(type);
	struct place place = {.frame = layout};
	struct cursor cursor;
	struct cursor_head head;
	int64_t version = 0, found_type = 0;

	if (count == 0)
		return not_a_frame(err, "no bytes");
	cursor_init(&cursor, bytes, count);
	if (cursor_read(&cursor, &head) != CURSOR_OK || head.kind != CURSOR_ARRAY ||
		head.children < HEADER_FIELDS ||
		read_header_int(&cursor, "version", &version, NULL) != 1 ||
		read_header_int(&cursor, "type", &found_type, NULL) != 1)
		return not_a_frame(err, "no header");
	if (version != FRAME_VERSION)
		return err_set(err, ERR_PROTOCOL, "frame has version %lld, not %d",
			(long long)version, FRAME_VERSION);
	if (found_type != (int64_t)type)
		return err_set(err, ERR_PROTOCOL, "frame has type %lld, not %d (%s)",
			(long long)found_type, (int)type, layout->name);
	if (get_record(&cursor, layout, head.children - HEADER_FIELDS, frame, lists, &place,
			err) < 0)
		return -1;
	if (cursor.at != cursor.end)
		return err_set(err, ERR_PROTOCOL, "malformed %s frame: %zu bytes follow its end",
			layout->name, (size_t)(cursor.end - cursor.at));
	return 0;
}

/* ---- encoding ----------------------------------------------------------------------- */

static int write_to_buf(void *out, const char *bytes, size_t count)
{
	return buf_put(out, bytes, count);
}

static int put_str(msgpack_packer *packer, struct str text)
{
	if (!text.s)
		return msgpack_pack_nil(packer);
	if (text.n > FRAME_MAX_BYTES)
		return -1;
	if (msgpack_pack_str(packer, text.n) < 0)
		return -1;
	return msgpack_pack_str_body(packer, text.s, text.n);
}

static int put_record(msgpack_packer *packer, const struct frame_layout *layout,
	const void *record);

static int put_list(msgpack_packer *packer, const struct frame_field *field,
	const void *record)
{
	const char *items = *(const char *const *)const_member(record, field->offset);
	size_t count = *(const size_t *)const_member(record, field->count_offset);
	if (count > field->max_items || msgpack_pack_array(packer, count) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		if (msgpack_pack_array(packer, field->item->fields_count) < 0 ||
			put_record(packer, field->item, items + i * field->item->size) < 0)
			return -1;
	}
	return 0;
}

static int put_field(msgpack_packer *packer, const struct frame_field *field,
	const void *record)
{
	const void *value = const_member(record, field->offset);
	switch (field->type) {
	case FRAME_FIELD_INT:
		return msgpack_pack_int64(packer, *(const int64_t *)value);
	case FRAME_FIELD_BOOL:
		return *(const bool *)value ? msgpack_pack_true(packer)
									: msgpack_pack_false(packer);
	case FRAME_FIELD_STATE:
		return msgpack_pack_int64(packer, *(const enum frame_beat_state *)value);
	case FRAME_FIELD_STR:
	case FRAME_FIELD_JSON:
		return put_str(packer, *(const struct str *)value);
	case FRAME_FIELD_LIST:
		return put_list(packer, field, record);
	}
	return -1;
}

static int put_record(msgpack_packer *packer, const struct frame_layout *layout,
	const void *record)
{
	for (size_t i = 0; i < layout->fields_count; i++) {
		if (put_field(packer, &layout->fields[i], record) < 0)
			return -1;
	}
	return 0;
}

int frame_put(struct buf *out, enum frame_type type, const void *frame)
{
	const struct frame_layout *layout = frame_layout(type);
	msgpack_packer packer;
	size_t before = out->len;

	msgpack_packer_init(&packer, out, write_to_buf);
	if (msgpack_pack_array(&packer, HEADER_FIELDS + layout->fields_count) < 0 ||
		msgpack_pack_int(&packer, FRAME_VERSION) < 0 ||
		msgpack_pack_int(&packer, (int)type) < 0 ||
		put_record(&packer, layout, frame) < 0 || out->len - before > FRAME_MAX_BYTES) {
		out->len = before;
		return -1;
	}
	return 0;
}

/* ---- by type ------------------------------------------------------------------------ */

int frame_put_nudge(struct buf *out, const struct frame_nudge *nudge)
{
	return frame_put(out, FRAME_NUDGE, nudge);
}

int frame_put_hello(struct buf *out, const struct frame_hello *hello)
{
	return frame_put(out, FRAME_HELLO, hello);
}

int frame_put_credit(struct buf *out, const struct frame_credit *credit)
{
	return frame_put(out, FRAME_CREDIT, credit);
}

int frame_put_job(struct buf *out, const struct frame_job *job)
{
	return frame_put(out, FRAME_JOB, job);
}

int frame_put_cancel(struct buf *out, const struct frame_cancel *cancel)
{
	return frame_put(out, FRAME_CANCEL, cancel);
}

int frame_put_result(struct buf *out, const struct frame_result *result)
{
	return frame_put(out, FRAME_RESULT, result);
}

int frame_put_ack(struct buf *out, const struct frame_ack *ack)
{
	return frame_put(out, FRAME_ACK, ack);
}

int frame_put_beat(struct buf *out, const struct frame_beat *beat)
{
	return frame_put(out, FRAME_BEAT, beat);
}

int frame_put_event(struct buf *out, const struct frame_event *event)
{
	return frame_put(out, FRAME_EVENT, event);
}

int frame_get_nudge(const void *bytes, size_t count, struct frame_nudge *nudge,
	struct err *err)
{
	return frame_get(bytes, count, FRAME_NUDGE, nudge, NULL, err);
}

int frame_get_hello(const void *bytes, size_t count, struct frame_hello *hello,
	struct frame_hello_kind *kinds, size_t kinds_capacity,
	struct frame_hello_claim *claims, size_t claims_capacity, struct err *err)
{
	const struct frame_list lists[] = {
		{kinds, kinds_capacity},
		{claims, claims_capacity},
	};
	return frame_get(bytes, count, FRAME_HELLO, hello, lists, err);
}

int frame_get_credit(const void *bytes, size_t count, struct frame_credit *credit,
	struct frame_credit_kind *kinds, size_t kinds_capacity, struct err *err)
{
	const struct frame_list list = {kinds, kinds_capacity};
	return frame_get(bytes, count, FRAME_CREDIT, credit, &list, err);
}

int frame_get_job(const void *bytes, size_t count, struct frame_job *job, struct err *err)
{
	return frame_get(bytes, count, FRAME_JOB, job, NULL, err);
}

int frame_get_cancel(const void *bytes, size_t count, struct frame_cancel *cancel,
	struct err *err)
{
	return frame_get(bytes, count, FRAME_CANCEL, cancel, NULL, err);
}

int frame_get_result(const void *bytes, size_t count, struct frame_result *result,
	struct err *err)
{
	return frame_get(bytes, count, FRAME_RESULT, result, NULL, err);
}

int frame_get_ack(const void *bytes, size_t count, struct frame_ack *ack,
	struct frame_ack_item *items, size_t capacity, struct err *err)
{
	const struct frame_list list = {items, capacity};
	return frame_get(bytes, count, FRAME_ACK, ack, &list, err);
}

int frame_get_beat(const void *bytes, size_t count, struct frame_beat *beat,
	struct err *err)
{
	return frame_get(bytes, count, FRAME_BEAT, beat, NULL, err);
}

int frame_get_event(const void *bytes, size_t count, struct frame_event *event,
	struct err *err)
{
	return frame_get(bytes, count, FRAME_EVENT, event, NULL, err);
}
