#include "frame_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frame_layout.h"
#include "json.h"
#include "json_read.h"

#define TEXT_SUFFIX "_text"
#define MAX_DEPTH JSON_MAX_DEPTH
/* In a line the document lies in the object, and perhaps in a list and its item. */
#define MAX_DOCUMENT_DEPTH (MAX_DEPTH - 3)

static const char *const state_names[] = {
	[FRAME_BEAT_ALIVE] = "alive",
	[FRAME_BEAT_DRAINING] = "draining",
	[FRAME_BEAT_GONE] = "gone",
	[FRAME_BEAT_UNKNOWN] = "unknown",
};
#define STATES (sizeof state_names / sizeof state_names[0])

static const void *const_member(const void *record, size_t offset)
{
	return (const char *)record + offset;
}

static void *member(void *record, size_t offset)
{
	return (char *)record + offset;
}

/* ---- frame to JSON ---- */

static bool fits_one_line(struct str json)
{
	if (json.n == 0 || strchr(" \t", json.s[0]) || strchr(" \t", json.s[json.n - 1]))
		return false;
	return !memchr(json.s, '\n', json.n) && !memchr(json.s, '\r', json.n) &&
		json_is_valid(json.s, json.n, MAX_DOCUMENT_DEPTH);
}

static void put_document(struct json_object *object, const char *name, struct str text)
{
	char text_name[64];

	if (!text.s)
		return;
	if (fits_one_line(text)) {
		json_raw(object, name, text);
		return;
	}
	snprintf(text_name, sizeof text_name, "%s" TEXT_SUFFIX, name);
	json_str(object, text_name, text);
}

static void put_fields(struct json_object *object, const struct frame_layout *layout,
	const void *record);

static void put_list(struct json_object *object, const struct frame_field *field,
	const void *record)
{
	const char *items = *(const char *const *)const_member(record, field->offset);
	size_t count = *(const size_t *)const_member(record, field->count_offset);

	json_raw(object, field->name, STR("["));
	for (size_t i = 0; i < count; i++) {
		struct json_object item;
		if (i > 0 && buf_put_char(object->out, ',') < 0)
			object->failed = true;
		json_begin(&item, object->out);
		put_fields(&item, field->item, items + i * field->item->size);
		if (json_end(&item) < 0)
			object->failed = true;
	}
	if (buf_put_char(object->out, ']') < 0)
		object->failed = true;
}

static void put_fields(struct json_object *object, const struct frame_layout *layout,
	const void *record)
{
	for (size_t i = 0; i < layout->fields_count; i++) {
		const struct frame_field *field = &layout->fields[i];
		const void *value = const_member(record, field->offset);
		switch (field->type) {
		case FRAME_FIELD_INT:
			json_int(object, field->name, *(const int64_t *)value);
			break;
		case FRAME_FIELD_BOOL:
			json_bool(object, field->name, *(const bool *)value);
			break;
		case FRAME_FIELD_STATE:
			json_str(object, field->name,
				str_of(state_names[*(const enum frame_beat_state *)value]));
			break;
		case FRAME_FIELD_STR:
			json_str(object, field->name, *(const struct str *)value);
			break;
		case FRAME_FIELD_JSON:
			put_document(object, field->name, *(const struct str *)value);
			break;
		case FRAME_FIELD_LIST:
			put_list(object, field, record);
			break;
		}
	}
}

/* Allocates a record and room for its lists, which the caller frees. */
static void *record_new(const struct frame_layout *layout,
	struct frame_list lists[FRAME_MAX_LISTS])
{
	size_t used = 0;

	memset(lists, 0, FRAME_MAX_LISTS * sizeof *lists);
	for (size_t i = 0; i < layout->fields_count; i++) {
		const struct frame_field *field = &layout->fields[i];
		if (field->type != FRAME_FIELD_LIST)
			continue;
		lists[used].items = mem_alloc(field->max_items, field->item->size);
		lists[used++].capacity = field->max_items;
	}
	return mem_alloc(1, layout->size);
}

static void record_free(void *record, struct frame_list lists[FRAME_MAX_LISTS])
{
	for (size_t i = 0; i < FRAME_MAX_LISTS; i++)
		free(lists[i].items);
	free(record);
}

static int put_known(struct json_object *object, const void *frame, size_t length,
	int64_t type, struct err *err)
{
	const struct frame_layout *layout = frame_layout(type);
	struct frame_list lists[FRAME_MAX_LISTS];
	void *record = record_new(layout, lists);

	int rc = frame_get(frame, length, (enum frame_type)type, record, lists, err);
	if (rc == 0) {
		json_str(object, "type", str_of(layout->name));
		put_fields(object, layout, record);
	}
	record_free(record, lists);
	return rc;
}

int frame_json_put(struct buf *out, const void *frame, size_t length, struct err *err)
{
	struct json_object object;
	size_t before = out->len, found_length;
	int64_t version, type;

	int found = frame_next(frame, length, &found_length, &version, &type, err);
	if (found < 0)
		return -1;
	if (found == 0 || found_length != length)
		return err_set(err, ERR_PROTOCOL, "not exactly one frame");
	json_begin(&object, out);
	if (version != FRAME_VERSION || !frame_layout(type)) {
		json_int(&object, "type", type);
		json_int(&object, "frame_version", version);
		json_int(&object, "bytes", (int64_t)length);
	} else if (put_known(&object, frame, length, type, err) < 0) {
		out->len = before;
		return -1;
	}
	if (json_end(&object) < 0) {
		out->len = before;
		return err_set(err, ERR_DATA, "the frame is too large to be shown");
	}
	return 0;
}

/* ---- JSON to frame ---- */

/* Owns what the record points to: strings without their escapes, and lists. */
struct reading {
	struct buf text; /* large enough from the start: views into it stay */
	void *lists[FRAME_MAX_LISTS];
	size_t lists_used;
	const char *list; /* the list that is being read, or NULL */
	size_t index;     /* and the item in it */
	struct err *err;
};

static int wrong_field(const struct reading *reading, const char *field,
	const char *complaint)
{
	if (reading->list)
		return err_set(reading->err, ERR_DATA, "field \"%s[%zu].%s\" %s", reading->list,
			reading->index, field, complaint);
	return err_set(reading->err, ERR_DATA, "field \"%s\" %s", field, complaint);
}

static int get_string(struct reading *reading, const char *name, struct str value,
	struct str *into)
{
	if (json_read_is(value, "null")) {
		*into = STR_NULL;
		return 0;
	}
	size_t start = reading->text.len;
	if (json_read_string(&reading->text, value) < 0)
		return wrong_field(reading, name, "is not a string");
	/* An empty string needs an address, too, to be told from an absent one. */
	into->s = reading->text.len > start ? reading->text.data + start : "";
	into->n = reading->text.len - start;
	return 0;
}

static int get_state(struct reading *reading, const char *name, struct str value,
	enum frame_beat_state *into)
{
	struct str text;

	if (get_string(reading, name, value, &text) < 0)
		return -1;
	for (size_t i = 0; i < STATES; i++) {
		if (str_equal(text, str_of(state_names[i]))) {
			*into = (enum frame_beat_state)i;
			return 0;
		}
	}
	return wrong_field(reading, name, "is not alive, draining, gone or unknown");
}

static int get_bool(struct reading *reading, const char *name, struct str value,
	bool *into)
{
	*into = json_read_is(value, "true");
	if (!*into && !json_read_is(value, "false"))
		return wrong_field(reading, name, "is not true or false");
	return 0;
}

static int get_record(struct reading *reading, const struct frame_layout *layout,
	struct str object, void *record);

static size_t count_items(struct json_reader items)
{
	struct str value;
	size_t count = 0;

	while (json_read_item(&items, &value))
		count++;
	return count;
}

static int get_list(struct reading *reading, const struct frame_field *field,
	struct str value, void *record)
{
	struct json_reader items;
	struct str item;

	if (!json_read_begin(&items, value, '['))
		return wrong_field(reading, field->name, "is not a list");
	size_t count = count_items(items);
	if (count > field->max_items)
		return wrong_field(reading, field->name, "has too many items");
	if (reading->lists_used == FRAME_MAX_LISTS)
		return wrong_field(reading, field->name, "is given more than once");
	char *list = mem_alloc(count + 1, field->item->size);
	reading->lists[reading->lists_used++] = list;
	*(const void **)member(record, field->offset) = list;
	*(size_t *)member(record, field->count_offset) = count;

	reading->list = field->name;
	for (size_t i = 0; json_read_item(&items, &item); i++) {
		reading->index = i;
		if (get_record(reading, field->item, item, list + i * field->item->size) < 0)
			return -1;
	}
	reading->list = NULL;
	return 0;
}

static int get_field(struct reading *reading, const struct frame_field *field,
	struct str value, void *record)
{
	void *into = member(record, field->offset);

	switch (field->type) {
	case FRAME_FIELD_INT:
		if (json_read_int(value, into) < 0)
			return wrong_field(reading, field->name, "is not a whole number of 64 bits");
		return 0;
	case FRAME_FIELD_BOOL:
		return get_bool(reading, field->name, value, into);
	case FRAME_FIELD_STATE:
		return get_state(reading, field->name, value, into);
	case FRAME_FIELD_STR:
		return get_string(reading, field->name, value, into);
	case FRAME_FIELD_JSON:
		*(struct str *)into = value;
		return 0;
	case FRAME_FIELD_LIST:
		return get_list(reading, field, value, record);
	}
	return 0;
}

/* The field that a key (in its quotes) names. *as_text: by NAME_text. */
static const struct frame_field *find_field(const struct frame_layout *layout,
	struct str key, bool *as_text)
{
	struct str name = {key.s + 1, key.n - 2};
	struct str suffix = STR(TEXT_SUFFIX);

	for (size_t i = 0; i < layout->fields_count; i++) {
		const struct frame_field *field = &layout->fields[i];
		struct str field_name = str_of(field->name);
		*as_text = false;
		if (str_equal(name, field_name))
			return field;
		*as_text = true;
		if (field->type == FRAME_FIELD_JSON && name.n == field_name.n + suffix.n &&
			strncmp(name.s, field_name.s, field_name.n) == 0 &&
			strncmp(name.s + field_name.n, suffix.s, suffix.n) == 0)
			return field;
	}
	return NULL;
}

static int get_member(struct reading *reading, const struct frame_layout *layout,
	struct str key, struct str value, void *record)
{
	bool as_text;
	const struct frame_field *field = find_field(layout, key, &as_text);

	if (!field) {
		char name[64];
		snprintf(name, sizeof name, "%.*s", (int)(key.n - 2), key.s + 1);
		return wrong_field(reading, name, "is none that such a frame has");
	}
	if (as_text)
		return get_string(reading, field->name, value, member(record, field->offset));
	return get_field(reading, field, value, record);
}

static bool is_type(struct str key)
{
	return str_equal(key, STR("\"type\""));
}

static int get_record(struct reading *reading, const struct frame_layout *layout,
	struct str object, void *record)
{
	struct json_reader members;
	struct str key, value;

	for (size_t i = 0; i < layout->fields_count; i++) {
		const struct frame_field *field = &layout->fields[i];
		if (field->type == FRAME_FIELD_INT)
			*(int64_t *)member(record, field->offset) = field->absent;
	}
	if (!json_read_begin(&members, object, '{'))
		return err_set(reading->err, ERR_DATA, "%s is not an object", layout->name);
	while (json_read_member(&members, &key, &value)) {
		if (is_type(key) && !reading->list)
			continue;
		if (get_member(reading, layout, key, value, record) < 0)
			return -1;
	}
	return 0;
}

/* The type that the object's "type" names. */
static int find_type(struct reading *reading, struct str object, enum frame_type *type)
{
	struct json_reader members;
	struct str key, value, name = STR_NULL;

	if (!json_read_begin(&members, object, '{'))
		return err_set(reading->err, ERR_DATA, "not an object");
	while (json_read_member(&members, &key, &value)) {
		if (is_type(key) && get_string(reading, "type", value, &name) < 0)
			return -1;
	}
	if (!name.s)
		return err_set(reading->err, ERR_DATA, "field \"type\" is missing");
	for (*type = FRAME_NUDGE; frame_layout(*type); (*type)++) {
		if (str_equal(name, str_of(frame_type_name(*type))))
			return 0;
	}
	return err_set(reading->err, ERR_DATA, "field \"type\" is no type of frame");
}

static int get_frame(struct reading *reading, struct buf *out, struct str object)
{
	enum frame_type type = FRAME_NUDGE;

	if (find_type(reading, object, &type) < 0)
		return -1;
	const struct frame_layout *layout = frame_layout(type);
	void *record = mem_alloc(1, layout->size);
	int rc = get_record(reading, layout, object, record);
	if (rc == 0 && frame_put(out, type, record) < 0)
		rc = err_set(reading->err, ERR_DATA, "the frame would be larger than %zu bytes",
			FRAME_MAX_BYTES);
	free(record);
	return rc;
}

int frame_json_get(struct buf *out, struct str object, struct err *err)
{
	struct reading reading = {.err = err};

	if (!json_is_valid(object.s, object.n, MAX_DEPTH))
		return err_set(err, ERR_DATA, "not valid JSON");
	buf_init(&reading.text, object.n + 1);
	buf_reserve(&reading.text, object.n + 1);
	int rc = get_frame(&reading, out, object);
	for (size_t i = 0; i < FRAME_MAX_LISTS; i++)
		free(reading.lists[i]);
	buf_release(&reading.text);
	return rc;
}
