/* Frames: round trips, frames of other versions, and bytes that nobody should believe. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <msgpack.h>

#include "frame.h"
#include "frame_layout.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void assert_str(struct str got, const char *expected)
{
	if (!expected) {
		assert_null(got.s);
		return;
	}
	assert_int_equal(got.n, strlen(expected));
	assert_memory_equal(got.s, expected, got.n);
}

/* ---- samples: every field of every type has a value of its own ----------------------- */

static const struct frame_nudge nudge = {.kind = {"email.welcome", 13}};

static const struct frame_hello_kind hello_kinds[] = {
	{.kind = {"a", 1},
		.version = 12,
		.lane = {"default", 7},
		.timeout_ms = 30000,
		.manifest = {"{\"retry\":{}}", 12}},
	{.kind = {"b", 1}, .lane = {"bulk", 4}},
};
static const struct frame_hello_claim hello_claims[] = {{77, 3}, {78, 0}};
static const struct frame_hello hello = {
	.role = {"run", 3},
	.id = {"host.1.deadbeef", 15},
	.epoch = INT64_MAX,
	.lease_ms = 30000,
	.db_now_us = 1700000000000001,
	.host = {"host", 4},
	.pid = 4711,
	.program_version = {"0.1.0", 5},
	.lane = {"default", 7},
	.slots = 64,
	.kinds = hello_kinds,
	.kinds_count = 2,
	.claims = hello_claims,
	.claims_count = 2,
};

static const struct frame_credit_kind credit_kinds[] = {{{"a", 1}, 8, 3, false},
	{{"b", 1}, 0, 0, true}};
static const struct frame_credit credit = {.epoch = 5,
	.last_seq = 99,
	.total = 7,
	.kinds = credit_kinds,
	.kinds_count = 2};

static const struct frame_job job = {
	.epoch = 5,
	.seq = 100,
	.claim_id = 9007199254740993, /* 2^53 + 1: lost by every double */
	.claim_index = 2,
	.claim_size = 50,
	.claimed_at_us = 1700000000000002,
	.found = {"nudge", 5},
	.job_id = INT64_MAX,
	.attempt = 3,
	.kind = {"email.welcome", 13},
	.payload = {"{\"n\": 12345678901234567890 }", 28},
	.max_attempts = 8,
	.idempotency_key = {"job-1", 5},
	.tenant_key = {"org1", 4},
	.subject_key = {"alice", 5},
	.correlation_id = {"req-7", 5},
	.traceparent = {"00-00", 5},
	.metadata = {"{}", 2},
	.created_at_us = 1700000000000003,
	.trigger = {"manual", 6},
	.reason = {"again", 5},
	.version = 12,
};

static const struct frame_cancel cancel = {.epoch = 5,
	.job_id = 42,
	.attempt = 2,
	.cancelled_by = {"bob", 3},
	.reason = {"spam", 4}};

static const struct frame_result result = {
	.worker = {"w", 1},
	.claim_id = 1,
	.claim_index = 2,
	.claim_size = 3,
	.job_id = 4,
	.attempt = 5,
	.kind = {"k", 1},
	.outcome = {"retry", 5},
	.code = {"exit_3", 6},
	.error = {"no\0t", 4},
	.response = {"{}", 2},
	.response_is_json = true,
	.after_ms = 60000,
	.reason = {"r", 1},
	.started_at_us = 6,
	.duration_ms = 7,
	.exit_status = 3,
	.signal = 15,
	.found = {"poll", 4},
	.commit = {"[]", 2},
	.enqueue = {"[1]", 3},
	.dropped_bytes = 8,
};

static const struct frame_ack_item ack_items[] = {{1, 2, true}, {3, 4, false}};
static const struct frame_ack ack = {.items = ack_items, .count = 2};

static const struct frame_beat beat = {.id = {"w", 1},
	.count = 17,
	.state = FRAME_BEAT_UNKNOWN,
	.db_now_us = 18};

static const struct frame_event event = {
	.at_us = 1,
	.name = {"dead", 4},
	.job_id = 2,
	.attempt = 3,
	.kind = {"k", 1},
	.from_state = {"running", 7},
	.to_state = {"dead", 4},
	.code = {"exit_65", 7},
	.duration_ms = 4,
	.worker = {"w", 1},
	.detail = {"{\"x\":1}", 7},
};

static const void *const samples[] = {
	[FRAME_NUDGE] = &nudge,
	[FRAME_HELLO] = &hello,
	[FRAME_CREDIT] = &credit,
	[FRAME_JOB] = &job,
	[FRAME_CANCEL] = &cancel,
	[FRAME_RESULT] = &result,
	[FRAME_ACK] = &ack,
	[FRAME_BEAT] = &beat,
	[FRAME_EVENT] = &event,
};
#define TYPES_END ((int)COUNT(samples))

/* Room for one decoded frame of any type. */
struct decoded {
	union {
		struct frame_nudge nudge;
		struct frame_hello hello;
		struct frame_credit credit;
		struct frame_job job;
		struct frame_cancel cancel;
		struct frame_result result;
		struct frame_ack ack;
		struct frame_beat beat;
		struct frame_event event;
	};
	union {
		struct frame_hello_kind kinds[4];
		struct frame_credit_kind credits[4];
		struct frame_ack_item acks[4];
	};
	struct frame_hello_claim claims[4];
};

static int decode(const void *bytes, size_t count, int type, struct decoded *into,
	struct err *err)
{
	const struct frame_list lists[FRAME_MAX_LISTS] = {{into->kinds, 4},
		{into->claims, 4}};
	*err = ERR_INIT;
	return frame_get(bytes, count, (enum frame_type)type, into, lists, err);
}

/* ---- comparison by the fields' tables ------------------------------------------------- */

static void assert_same_record(const struct frame_layout *layout, const char *got,
	const char *expected);

static void assert_same_list(const struct frame_field *field, const char *got,
	const char *expected)
{
	size_t count = *(const size_t *)(const void *)(expected + field->count_offset);
	assert_int_equal(*(const size_t *)(const void *)(got + field->count_offset), count);
	const char *got_items = *(const char *const *)(const void *)(got + field->offset);
	const char *expected_items = *(
		const char *const *)(const void *)(expected + field->offset);
	for (size_t i = 0; i < count; i++)
		assert_same_record(field->item, got_items + i * field->item->size,
			expected_items + i * field->item->size);
}

static void assert_same_field(const struct frame_field *field, const void *got,
	const void *expected)
{
	const struct str *text = got, *expected_text = expected;
	switch (field->type) {
	case FRAME_FIELD_INT:
		assert_true(*(const int64_t *)got == *(const int64_t *)expected);
		return;
	case FRAME_FIELD_BOOL:
		assert_true(*(const bool *)got == *(const bool *)expected);
		return;
	case FRAME_FIELD_STATE:
		assert_int_equal(*(const int *)got, *(const int *)expected);
		return;
	case FRAME_FIELD_STR:
	case FRAME_FIELD_JSON:
		assert_int_equal(text->s == NULL, expected_text->s == NULL);
		assert_int_equal(text->n, expected_text->n);
		if (text->s)
			assert_memory_equal(text->s, expected_text->s, text->n);
		return;
	case FRAME_FIELD_LIST:
		fail();
	}
}

static void assert_same_record(const struct frame_layout *layout, const char *got,
	const char *expected)
{
	for (size_t i = 0; i < layout->fields_count; i++) {
		const struct frame_field *field = &layout->fields[i];
		if (field->type == FRAME_FIELD_LIST)
			assert_same_list(field, got, expected);
		else
			assert_same_field(field, got + field->offset, expected + field->offset);
	}
}

static void assert_round_trip(int type, const void *frame)
{
	struct buf out;
	struct decoded decoded;
	struct err err = ERR_INIT;
	size_t length;
	int64_t version, found_type;

	buf_init(&out, FRAME_MAX_BYTES);
	assert_int_equal(frame_put(&out, (enum frame_type)type, frame), 0);
	assert_int_equal(frame_next(out.data, out.len, &length, &version, &found_type, &err),
		1);
	assert_int_equal(length, out.len);
	assert_int_equal(version, FRAME_VERSION);
	assert_int_equal(found_type, type);
	assert_int_equal(decode(out.data, out.len, type, &decoded, &err), 0);
	assert_same_record(frame_layout(type), (const char *)&decoded, frame);
	buf_release(&out);
}

static void every_type_comes_back_as_it_went(void **state)
{
	(void)state;
	for (int type = FRAME_NUDGE; type < TYPES_END; type++)
		assert_round_trip(type, samples[type]);
	assert_string_equal(frame_type_name(FRAME_EVENT), "event");
	assert_null(frame_type_name((enum frame_type)0));
	assert_null(frame_type_name((enum frame_type)TYPES_END));
}

static void empty_frames_keep_absent_apart_from_empty(void **state)
{
	(void)state;
	static const char zeroes[sizeof(struct decoded)];
	for (int type = FRAME_NUDGE; type < TYPES_END; type++)
		assert_round_trip(type, zeroes);
	struct frame_nudge empty_kind = {.kind = {"", 0}};
	assert_round_trip(FRAME_NUDGE, &empty_kind);
}

static void integers_keep_all_their_bits(void **state)
{
	(void)state;
	static const int64_t values[] = {0, 1, -1, 127, 128, -32, -33, -128, -129, 255, 256,
		-32768, -32769, 65535, 65536, INT32_MAX, INT32_MIN, UINT32_MAX,
		INT64_C(1) << 53 | 1, INT64_MAX, INT64_MIN};
	for (size_t i = 0; i < COUNT(values); i++) {
		struct frame_cancel sample = {.job_id = values[i]};
		assert_round_trip(FRAME_CANCEL, &sample);
	}
}

/* ---- frames of older and newer writers ------------------------------------------------ */

static int write_to_buf(void *out, const char *bytes, size_t count)
{
	return buf_put(out, bytes, count);
}

/* Starts a frame of `fields` fields by hand. */
static void begin_by_hand(msgpack_packer *packer, struct buf *out, size_t fields,
	int version, int type)
{
	buf_init(out, 1 << 20);
	msgpack_packer_init(packer, out, write_to_buf);
	msgpack_pack_array(packer, 2 + fields);
	msgpack_pack_int(packer, version);
	msgpack_pack_int(packer, type);
}

static void a_short_frame_has_absent_values(void **state)
{
	(void)state;
	msgpack_packer packer;
	struct buf out;
	struct frame_result got;
	struct err err = ERR_INIT;

	begin_by_hand(&packer, &out, 1, FRAME_VERSION, FRAME_RESULT);
	msgpack_pack_str_with_body(&packer, "w", 1);
	assert_int_equal(frame_get_result(out.data, out.len, &got, &err), 0);
	assert_str(got.worker, "w");
	assert_str(got.kind, NULL);
	assert_int_equal(got.job_id, 0);
	assert_int_equal(got.after_ms, -1);
	assert_int_equal(got.exit_status, -1);
	assert_int_equal(got.signal, 0);
	assert_false(got.response_is_json);
	buf_release(&out);
}

static void pack_a_bit_of_everything(msgpack_packer *packer)
{
	msgpack_pack_map(packer, 2);
	msgpack_pack_str_with_body(packer, "a", 1);
	msgpack_pack_double(packer, 1.5);
	msgpack_pack_array(packer, 2); /* a key may be anything, too */
	msgpack_pack_float(packer, 2.5f);
	msgpack_pack_bin_with_body(packer, "\xff\x00", 2);
	msgpack_pack_nil(packer);
	msgpack_pack_uint64(packer, UINT64_MAX);
	msgpack_pack_ext_with_body(packer, "0123456789abcdef", 16, 5);
	msgpack_pack_ext_with_body(packer, "abc", 3, 5);
}
#define BIT_OF_EVERYTHING 4 /* elements that pack_a_bit_of_everything appends */

static void unknown_fields_at_the_end_are_skipped(void **state)
{
	(void)state;
	msgpack_packer packer;
	struct buf out;
	struct decoded got;
	struct err err;
	size_t length;
	int64_t version, type;

	begin_by_hand(&packer, &out, 1 + BIT_OF_EVERYTHING, FRAME_VERSION, FRAME_NUDGE);
	msgpack_pack_str_with_body(&packer, "k", 1);
	pack_a_bit_of_everything(&packer);
	assert_int_equal(frame_next(out.data, out.len, &length, &version, &type, &err), 1);
	assert_int_equal(length, out.len);
	assert_int_equal(decode(out.data, out.len, FRAME_NUDGE, &got, &err), 0);
	assert_str(got.nudge.kind, "k");
	buf_release(&out);

	/* The same inside the item of a list. */
	begin_by_hand(&packer, &out, 4, FRAME_VERSION, FRAME_CREDIT);
	for (int i = 0; i < 3; i++)
		msgpack_pack_int(&packer, i);
	msgpack_pack_array(&packer, 2);
	msgpack_pack_array(&packer, 4 + BIT_OF_EVERYTHING);
	msgpack_pack_str_with_body(&packer, "k", 1);
	msgpack_pack_int(&packer, 8);
	msgpack_pack_int(&packer, 3);
	msgpack_pack_true(&packer);
	pack_a_bit_of_everything(&packer);
	msgpack_pack_array(&packer, 1); /* a short item: count is absent */
	msgpack_pack_str_with_body(&packer, "l", 1);
	assert_int_equal(decode(out.data, out.len, FRAME_CREDIT, &got, &err), 0);
	assert_int_equal(got.credit.kinds_count, 2);
	assert_int_equal(got.credit.kinds[0].count, 8);
	assert_str(got.credit.kinds[1].kind, "l");
	assert_int_equal(got.credit.kinds[1].count, 0);
	buf_release(&out);
}

static void unknown_types_and_versions_can_be_stepped_over(void **state)
{
	(void)state;
	msgpack_packer packer;
	struct buf out;
	struct decoded got;
	struct err err = ERR_INIT;
	size_t length;
	int64_t version, type;

	begin_by_hand(&packer, &out, 1, 2, 77);
	msgpack_pack_str_with_body(&packer, "future", 6);
	assert_int_equal(frame_next(out.data, out.len, &length, &version, &type, &err), 1);
	assert_int_equal(length, out.len);
	assert_int_equal(version, 2);
	assert_int_equal(type, 77);
	assert_int_equal(decode(out.data, out.len, FRAME_NUDGE, &got, &err), -1);
	assert_string_equal(err.text, "frame has version 2, not 1");
	buf_release(&out);

	begin_by_hand(&packer, &out, 0, FRAME_VERSION, FRAME_JOB);
	assert_int_equal(decode(out.data, out.len, FRAME_NUDGE, &got, &err), -1);
	assert_string_equal(err.text, "frame has type 4, not 1 (nudge)");
	buf_release(&out);
}

static void frames_in_a_row_are_found_one_by_one(void **state)
{
	(void)state;
	struct buf out;
	struct err err = ERR_INIT;
	size_t at = 0, length;
	int64_t version, type;

	buf_init(&out, 1 << 20);
	for (int expected = FRAME_NUDGE; expected < TYPES_END; expected++)
		frame_put(&out, (enum frame_type)expected, samples[expected]);
	for (int expected = FRAME_NUDGE; expected < TYPES_END; expected++) {
		assert_int_equal(frame_next(out.data + at, out.len - at, &length, &version, &type,
							 &err),
			1);
		assert_int_equal(type, expected);
		at += length;
	}
	assert_int_equal(at, out.len);
	assert_int_equal(frame_next(out.data + at, 0, &length, &version, &type, &err), 0);
	buf_release(&out);
}

/* ---- bytes that nobody should believe --------------------------------------------------- */

/* A copy of exactly `count` bytes on the heap, so that a sanitizer sees a read past them. */
static void *exact_copy(const void *bytes, size_t count)
{
	void *copy = malloc(count ? count : 1);
	assert_non_null(copy);
	memcpy(copy, bytes, count);
	return copy;
}

static void a_frame_cut_anywhere_asks_for_more(void **state)
{
	(void)state;
	for (int type = FRAME_NUDGE; type < TYPES_END; type++) {
		struct buf out;
		buf_init(&out, 1 << 20);
		frame_put(&out, (enum frame_type)type, samples[type]);
		for (size_t cut = 0; cut < out.len; cut++) {
			struct decoded got;
			struct err err = ERR_INIT;
			size_t length;
			int64_t version, found;
			void *bytes = exact_copy(out.data, cut);
			assert_int_equal(frame_next(bytes, cut, &length, &version, &found, &err), 0);
			assert_int_equal(decode(bytes, cut, type, &got, &err), -1);
			assert_int_equal(err.class, ERR_PROTOCOL);
			free(bytes);
		}
		buf_release(&out);
	}
}

static void every_wrong_byte_is_survived(void **state)
{
	(void)state;
	for (int type = FRAME_NUDGE; type < TYPES_END; type++) {
		struct buf out;
		buf_init(&out, 1 << 20);
		frame_put(&out, (enum frame_type)type, samples[type]);
		for (size_t at = 0; at < out.len; at++) {
			for (int value = 0; value < 256; value++) {
				struct decoded got;
				struct err err = ERR_INIT;
				size_t length = 0;
				int64_t version, found;
				char *bytes = exact_copy(out.data, out.len);
				bytes[at] = (char)value;
				if (frame_next(bytes, out.len, &length, &version, &found, &err) == 1)
					assert_in_range(length, 3, out.len);
				decode(bytes, out.len, type, &got, &err);
				free(bytes);
			}
		}
		buf_release(&out);
	}
}

struct hostile_case {
	const char *what;
	const char *bytes;
	size_t count;
	int expected; /* of frame_next */
};
#define BYTES(literal) literal, sizeof(literal) - 1

static void hostile_heads_are_refused_at_once(void **state)
{
	(void)state;
	static const struct hostile_case cases[] = {
		{"empty array", BYTES("\x90"), -1},
		{"one field", BYTES("\x91\x01"), -1},
		{"not an array: nil", BYTES("\xc0"), -1},
		{"not an array: map", BYTES("\x82\x01\x01"), -1},
		{"not an array: cut str", BYTES("\xdb\xff"), -1},
		{"not an array: text", BYTES("{\"kind\":1}"), -1},
		{"the byte that msgpack never uses", BYTES("\xc1"), -1},
		{"… and inside", BYTES("\x93\x01\x01\xc1"), -1},
		{"version is a str", BYTES("\x93\xa1x\x01"), -1},
		{"version past int64", BYTES("\x93\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x01"), -1},
		{"type is nil", BYTES("\x93\x01\xc0"), -1},
		{"2^32-1 fields", BYTES("\xdd\xff\xff\xff\xff"), -1},
		{"str of 2^32-1", BYTES("\x93\x01\x01\xdb\xff\xff\xff\xff"), -1},
		{"bin of 2^32-1", BYTES("\x93\x01\x01\xc6\xff\xff\xff\xff"), -1},
		{"ext of 2^32-1", BYTES("\x93\x01\x01\xc9\xff\xff\xff\xff"), -1},
		{"list of 2^32-1", BYTES("\x93\x01\x01\xdd\xff\xff\xff\xff"), -1},
		{"map of 2^32-1", BYTES("\x93\x01\x01\xdf\xff\xff\xff\xff"), -1},
		{"map of half the limit", BYTES("\x93\x01\x01\xdf\x00\x80\x00\x00"), -1},
		{"str just too large", BYTES("\x93\x01\x01\xdb\x00\xff\xff\xf9"), -1},
		{"str just not too large", BYTES("\x93\x01\x01\xdb\x00\xff\xff\xf8"), 0},
		{"two lists that owe too much together",
			BYTES("\x94\x01\x01\xdd\x00\x80\x00\x00\xdd\x00\x80\x00\x00"), -1},
		{"depth 8", BYTES("\x93\x01\x01\x91\x91\x91\x91\x91\x91\x91\x01"), 1},
		{"depth 9", BYTES("\x93\x01\x01\x91\x91\x91\x91\x91\x91\x91\x91\x01"), -1},
		{"depth 9 of maps", BYTES("\x93\x01\x01\x81\x81\x81\x81\x81\x81\x81\x81\x01"),
			-1},
		{"cut count", BYTES("\xdd\x00\x00"), 0},
		{"negative type is unknown, not malformed", BYTES("\x92\x01\xff"), 1},
		{"depth does not pile up", BYTES("\x95\x01\x01\x91\x90\x91\x90\x91\x91\x90"), 1},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct err err = ERR_INIT;
		size_t length;
		int64_t version, type;
		void *bytes = exact_copy(cases[i].bytes, cases[i].count);
		int got = frame_next(bytes, cases[i].count, &length, &version, &type, &err);
		if (got != cases[i].expected)
			fail_msg("%s: got %d", cases[i].what, got);
		if (got == -1)
			assert_int_equal(err.class, ERR_PROTOCOL);
		if (got == 1)
			assert_int_equal(length, cases[i].count);
		free(bytes);
	}
}

static void wrong_fields_are_named(void **state)
{
	(void)state;
	static const struct {
		int type;
		const char *bytes;
		size_t count;
		const char *expected;
	} cases[] = {
		{FRAME_NUDGE, BYTES("\x93\x01\x01\x05"),
			"malformed nudge frame: field \"kind\" is not a string"},
		{FRAME_NUDGE, BYTES("\x93\x01\x01\xc4\x01k"),
			"malformed nudge frame: field \"kind\" is not a string"},
		{FRAME_NUDGE, BYTES("\x93\x01\x01\xa5k"),
			"malformed nudge frame: field \"kind\" is cut short"},
		{FRAME_NUDGE, BYTES("\x93\x01\x01"),
			"malformed nudge frame: field \"kind\" is cut short"},
		{FRAME_NUDGE, BYTES("\x94\x01\x01\xa1k\xc1"),
			"malformed nudge frame: unknown fields at its end cannot be skipped"},
		{FRAME_NUDGE, BYTES("\x93\x01\x01\xa1kx"),
			"malformed nudge frame: 1 bytes follow its end"},
		{FRAME_CANCEL, BYTES("\x93\x01\x05\xc0"),
			"malformed cancel frame: field \"epoch\" is not an integer"},
		{FRAME_CANCEL, BYTES("\x93\x01\x05\xcb\0\0\0\0\0\0\0\0"),
			"malformed cancel frame: field \"epoch\" is not an integer"},
		{FRAME_CANCEL, BYTES("\x94\x01\x05\x01\xcf\x80\0\0\0\0\0\0\0"),
			"malformed cancel frame: field \"job_id\" is not an integer"},
		{FRAME_BEAT, BYTES("\x95\x01\x08\xc0\x01\x04"),
			"malformed beat frame: field \"state\" is out of range"},
		{FRAME_BEAT, BYTES("\x95\x01\x08\xc0\x01\xff"),
			"malformed beat frame: field \"state\" is out of range"},
		{FRAME_ACK, BYTES("\x93\x01\x07\x01"),
			"malformed ack frame: field \"items\" is not a list"},
		{FRAME_ACK, BYTES("\x93\x01\x07\x91\x01"),
			"malformed ack frame: field \"items\" has an item that is not a list"},
		{FRAME_ACK, BYTES("\x93\x01\x07\x92\x90\x93\x01\x02\x01"),
			"malformed ack frame: field \"items[1].accepted\" is not a boolean"},
		{FRAME_ACK, BYTES("\x93\x01\x07\xdd\xff\xff\xff\xff"),
			"malformed ack frame: field \"items\" has too many items"},
		{FRAME_ACK, BYTES("\x93\x01\x07\x95\x90\x90\x90\x90\x90"),
			"malformed ack frame: field \"items\" has too many items"},
		{FRAME_ACK, BYTES(""), "malformed frame: no bytes"},
		{FRAME_ACK, BYTES("\xc0"), "malformed frame: no header"},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct decoded got;
		struct err err;
		void *bytes = exact_copy(cases[i].bytes, cases[i].count);
		assert_int_equal(decode(bytes, cases[i].count, cases[i].type, &got, &err), -1);
		assert_int_equal(err.class, ERR_PROTOCOL);
		assert_string_equal(err.text, cases[i].expected);
		free(bytes);
	}
}

static void an_encoder_that_runs_out_of_room_leaves_no_trace(void **state)
{
	(void)state;
	for (int type = FRAME_NUDGE; type < TYPES_END; type++) {
		struct buf whole, tight;
		buf_init(&whole, 1 << 20);
		frame_put(&whole, (enum frame_type)type, samples[type]);
		for (size_t room = 0; room < whole.len; room++) {
			buf_init(&tight, 3 + room);
			buf_put(&tight, "abc", 3);
			assert_int_equal(frame_put(&tight, (enum frame_type)type, samples[type]), -1);
			assert_int_equal(tight.len, 3);
			assert_memory_equal(tight.data, "abc", 3);
			buf_release(&tight);
		}
		buf_release(&whole);
	}
}

static void an_encoder_keeps_the_limits_of_its_readers(void **state)
{
	(void)state;
	struct buf out;
	char *large = calloc(1, FRAME_MAX_BYTES);
	assert_non_null(large);
	buf_init(&out, 4 * FRAME_MAX_BYTES);

	struct frame_job too_large = {.payload = {large, FRAME_MAX_BYTES}};
	assert_int_equal(frame_put_job(&out, &too_large), -1);
	assert_int_equal(out.len, 0);
	too_large.payload.n = FRAME_MAX_BYTES - 100;
	assert_int_equal(frame_put_job(&out, &too_large), 0);

	struct frame_ack_item *items = calloc(FRAME_MAX_ACKS + 1, sizeof *items);
	assert_non_null(items);
	struct frame_ack many = {.items = items, .count = FRAME_MAX_ACKS + 1};
	buf_clear(&out);
	assert_int_equal(frame_put_ack(&out, &many), -1);
	assert_int_equal(out.len, 0);
	many.count--;
	assert_int_equal(frame_put_ack(&out, &many), 0);
	free(items);
	free(large);
	buf_release(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_comes_back_as_it_went),
		cmocka_unit_test(empty_frames_keep_absent_apart_from_empty),
		cmocka_unit_test(integers_keep_all_their_bits),
		cmocka_unit_test(a_short_frame_has_absent_values),
		cmocka_unit_test(unknown_fields_at_the_end_are_skipped),
		cmocka_unit_test(unknown_types_and_versions_can_be_stepped_over),
		cmocka_unit_test(frames_in_a_row_are_found_one_by_one),
		cmocka_unit_test(a_frame_cut_anywhere_asks_for_more),
		cmocka_unit_test(every_wrong_byte_is_survived),
		cmocka_unit_test(hostile_heads_are_refused_at_once),
		cmocka_unit_test(wrong_fields_are_named),
		cmocka_unit_test(an_encoder_that_runs_out_of_room_leaves_no_trace),
		cmocka_unit_test(an_encoder_keeps_the_limits_of_its_readers),
	};
	return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
