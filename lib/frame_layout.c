#include "frame_layout.h"

#define FIELD(struct_name, field_name, field_type) \
	{ \
		.name = #field_name, .type = field_type, \
		.offset = offsetof(struct struct_name, field_name) \
	}
#define INT(struct_name, field_name) FIELD(struct_name, field_name, FRAME_FIELD_INT)
#define BOOL(struct_name, field_name) FIELD(struct_name, field_name, FRAME_FIELD_BOOL)
#define STATE(struct_name, field_name) FIELD(struct_name, field_name, FRAME_FIELD_STATE)
#define TEXT(struct_name, field_name) FIELD(struct_name, field_name, FRAME_FIELD_STR)
#define JSON(struct_name, field_name) FIELD(struct_name, field_name, FRAME_FIELD_JSON)
/* An int whose value for "none" is -1. */
#define INT_OR_NONE(struct_name, field_name) \
	{ \
		.name = #field_name, .type = FRAME_FIELD_INT, \
		.offset = offsetof(struct struct_name, field_name), .absent = -1 \
	}
#define LIST(struct_name, field_name, count_name, max, item_layout) \
	{ \
		.name = #field_name, .type = FRAME_FIELD_LIST, \
		.offset = offsetof(struct struct_name, field_name), \
		.count_offset = offsetof(struct struct_name, count_name), .max_items = max, \
		.item = item_layout \
	}
#define LAYOUT(layout_name, struct_name, table) \
	{ \
		.name = layout_name, .size = sizeof(struct struct_name), .fields = table, \
		.fields_count = sizeof(table) / sizeof(table[0]) \
	}

static const struct frame_field nudge_fields[] = {
	TEXT(frame_nudge, kind),
};

static const struct frame_field hello_kind_fields[] = {
	TEXT(frame_hello_kind, kind),
	INT(frame_hello_kind, version),
	TEXT(frame_hello_kind, lane),
	INT(frame_hello_kind, timeout_ms),
	JSON(frame_hello_kind, manifest),
};
static const struct frame_layout hello_kind_layout = LAYOUT("hello kind",
	frame_hello_kind, hello_kind_fields);

static const struct frame_field hello_claim_fields[] = {
	INT(frame_hello_claim, claim_id),
	INT(frame_hello_claim, received),
};
static const struct frame_layout hello_claim_layout = LAYOUT("hello claim",
	frame_hello_claim, hello_claim_fields);

static const struct frame_field hello_fields[] = {
	TEXT(frame_hello, role),
	TEXT(frame_hello, id),
	INT(frame_hello, epoch),
	INT(frame_hello, lease_ms),
	INT(frame_hello, db_now_us),
	TEXT(frame_hello, host),
	INT(frame_hello, pid),
	TEXT(frame_hello, program_version),
	TEXT(frame_hello, lane),
	INT(frame_hello, slots),
	LIST(frame_hello, kinds, kinds_count, FRAME_MAX_KINDS, &hello_kind_layout),
	LIST(frame_hello, claims, claims_count, FRAME_MAX_CLAIMS, &hello_claim_layout),
};

static const struct frame_field credit_kind_fields[] = {
	TEXT(frame_credit_kind, kind),
	INT(frame_credit_kind, count),
	INT(frame_credit_kind, held),
	BOOL(frame_credit_kind, apart),
};
static const struct frame_layout credit_kind_layout = LAYOUT("credit kind",
	frame_credit_kind, credit_kind_fields);

static const struct frame_field credit_fields[] = {
	INT(frame_credit, epoch),
	INT(frame_credit, last_seq),
	INT(frame_credit, total),
	LIST(frame_credit, kinds, kinds_count, FRAME_MAX_KINDS, &credit_kind_layout),
};

static const struct frame_field job_fields[] = {
	INT(frame_job, epoch),
	INT(frame_job, seq),
	INT(frame_job, claim_id),
	INT(frame_job, claim_index),
	INT(frame_job, claim_size),
	INT(frame_job, claimed_at_us),
	TEXT(frame_job, found),
	INT(frame_job, job_id),
	INT(frame_job, attempt),
	TEXT(frame_job, kind),
	JSON(frame_job, payload),
	INT(frame_job, max_attempts),
	TEXT(frame_job, idempotency_key),
	TEXT(frame_job, tenant_key),
	TEXT(frame_job, subject_key),
	TEXT(frame_job, correlation_id),
	TEXT(frame_job, traceparent),
	JSON(frame_job, metadata),
	INT(frame_job, created_at_us),
	TEXT(frame_job, trigger),
	TEXT(frame_job, reason),
	INT(frame_job, version),
	JSON(frame_job, issues),
};

static const struct frame_field cancel_fields[] = {
	INT(frame_cancel, epoch),
	INT(frame_cancel, job_id),
	INT(frame_cancel, attempt),
	TEXT(frame_cancel, cancelled_by),
	TEXT(frame_cancel, reason),
};

static const struct frame_field result_fields[] = {
	TEXT(frame_result, worker),
	INT(frame_result, claim_id),
	INT(frame_result, claim_index),
	INT(frame_result, claim_size),
	INT(frame_result, job_id),
	INT(frame_result, attempt),
	TEXT(frame_result, kind),
	TEXT(frame_result, outcome),
	TEXT(frame_result, code),
	TEXT(frame_result, error),
	JSON(frame_result, response),
	BOOL(frame_result, response_is_json),
	INT_OR_NONE(frame_result, after_ms),
	TEXT(frame_result, reason),
	INT(frame_result, started_at_us),
	INT(frame_result, duration_ms),
	INT_OR_NONE(frame_result, exit_status),
	INT(frame_result, signal),
	TEXT(frame_result, found),
	JSON(frame_result, commit),
	JSON(frame_result, enqueue),
	INT(frame_result, dropped_bytes),
};

static const struct frame_field ack_item_fields[] = {
	INT(frame_ack_item, job_id),
	INT(frame_ack_item, attempt),
	BOOL(frame_ack_item, accepted),
};
static const struct frame_layout ack_item_layout = LAYOUT("ack item", frame_ack_item,
	ack_item_fields);

static const struct frame_field ack_fields[] = {
	LIST(frame_ack, items, count, FRAME_MAX_ACKS, &ack_item_layout),
};

static const struct frame_field beat_fields[] = {
	TEXT(frame_beat, id),
	INT(frame_beat, count),
	STATE(frame_beat, state),
	INT(frame_beat, db_now_us),
};

static const struct frame_field event_fields[] = {
	INT(frame_event, at_us),
	TEXT(frame_event, name),
	INT(frame_event, job_id),
	INT(frame_event, attempt),
	TEXT(frame_event, kind),
	TEXT(frame_event, from_state),
	TEXT(frame_event, to_state),
	TEXT(frame_event, code),
	INT(frame_event, duration_ms),
	TEXT(frame_event, worker),
	JSON(frame_event, detail),
};

static const struct frame_layout layouts[] = {
	[FRAME_NUDGE] = LAYOUT("nudge", frame_nudge, nudge_fields),
	[FRAME_HELLO] = LAYOUT("hello", frame_hello, hello_fields),
	[FRAME_CREDIT] = LAYOUT("credit", frame_credit, credit_fields),
	[FRAME_JOB] = LAYOUT("job", frame_job, job_fields),
	[FRAME_CANCEL] = LAYOUT("cancel", frame_cancel, cancel_fields),
	[FRAME_RESULT] = LAYOUT("result", frame_result, result_fields),
	[FRAME_ACK] = LAYOUT("ack", frame_ack, ack_fields),
	[FRAME_BEAT] = LAYOUT("beat", frame_beat, beat_fields),
	[FRAME_EVENT] = LAYOUT("event", frame_event, event_fields),
};

const struct frame_layout *frame_layout(int64_t type)
{
	if (type < FRAME_NUDGE || type > FRAME_EVENT)
		return NULL;
	return &layouts[type];
}
