#include "batch.h"

#include <stdlib.h>

#include "settled.h"

/* The parameters of outbox.settle in order, and where their values come from. */
enum column {
	CLAIM_IDS,
	CLAIM_INDEXES,
	JOB_IDS,
	ATTEMPTS,
	OUTCOMES,
	CODES,
	ERRORS,
	RESPONSES,
	RESPONSES_ARE_JSON,
	AFTERS_MS,
	REASONS,
	STARTED_US,
	DURATIONS_MS,
	EXIT_STATUSES,
	SIGNALS,
	COMMITS,
	FOLLOW_UPS,
	DROPPED_BYTES,
	DONE_CLAIMS,
	COLUMNS
};

static const Oid element_types[COLUMNS] = {
	[CLAIM_IDS] = DB_INT8,
	[CLAIM_INDEXES] = DB_INT4,
	[JOB_IDS] = DB_INT8,
	[ATTEMPTS] = DB_INT2,
	[OUTCOMES] = DB_TEXT,
	[CODES] = DB_TEXT,
	[ERRORS] = DB_TEXT,
	[RESPONSES] = DB_TEXT,
	[RESPONSES_ARE_JSON] = DB_BOOL,
	[AFTERS_MS] = DB_INT8,
	[REASONS] = DB_TEXT,
	[STARTED_US] = DB_INT8,
	[DURATIONS_MS] = DB_INT8,
	[EXIT_STATUSES] = DB_INT4,
	[SIGNALS] = DB_INT4,
	[COMMITS] = DB_TEXT,
	[FOLLOW_UPS] = DB_TEXT,
	[DROPPED_BYTES] = DB_INT8,
	[DONE_CLAIMS] = DB_INT8,
};

static const Oid parameter_types[COLUMNS] = {DB_INT8_ARRAY, DB_INT4_ARRAY, DB_INT8_ARRAY,
	DB_INT2_ARRAY, DB_TEXT_ARRAY, DB_TEXT_ARRAY, DB_TEXT_ARRAY, DB_TEXT_ARRAY,
	DB_BOOL_ARRAY, DB_INT8_ARRAY, DB_TEXT_ARRAY, DB_INT8_ARRAY, DB_INT8_ARRAY,
	DB_INT4_ARRAY, DB_INT4_ARRAY, DB_TEXT_ARRAY, DB_TEXT_ARRAY, DB_INT8_ARRAY,
	DB_INT8_ARRAY};

static const struct db_statement settle_statement = {
	.name = "settle",
	.sql =
		"select " SETTLED_COLUMNS
		" from outbox.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,"
		" $15, $16, $17, $18, $19)",
	.nparams = COLUMNS,
	.types = parameter_types,
};

void batch_init(struct batch *batch, size_t capacity)
{
	*batch = (struct batch){.capacity = capacity};
	batch->entries = mem_alloc(capacity, sizeof(struct entry *));
}

void batch_release(struct batch *batch)
{
	for (size_t i = 0; i < batch->count; i++)
		entry_free(batch->entries[i]);
	free(batch->entries);
	*batch = (struct batch){.count = 0};
}

void batch_fill(struct batch *batch, struct queue *queue, size_t limit)
{
	size_t bytes = 0;

	if (limit > batch->capacity)
		limit = batch->capacity;
	while (batch->count < limit && queue->head != NULL &&
		(batch->count == 0 || bytes + queue->head->length <= BATCH_MAX_BYTES)) {
		bool apart = queue->head->apart;

		if (apart && batch->count > 0)
			break;
		bytes += queue->head->length;
		batch->entries[batch->count++] = queue_take(queue);
		if (apart)
			break;
	}
}

/* What the handler said that settling could not carry out: the effects are left out, and
 * the attempt is charged. */
static struct frame_result without_effects(const struct entry *entry)
{
	struct frame_result result = entry->result;

	result.outcome = STR("retry");
	result.code = STR("settle_failed");
	result.error = str_of(entry->failure);
	result.response = STR_NULL;
	result.response_is_json = false;
	result.commit = STR_NULL;
	result.enqueue = STR_NULL;
	result.reason = STR_NULL;
	return result;
}

/* One array a column. A column that says nothing of any result is not sent. */
struct columns {
	struct buf bytes[COLUMNS];
	struct db_array arrays[COLUMNS];
	bool says[COLUMNS];
};

static void put_int(struct columns *columns, enum column c, int64_t value,
	int64_t nothing)
{
	struct db_array *array = &columns->arrays[c];

	columns->says[c] |= value != nothing;
	if (element_types[c] == DB_INT8)
		db_array_int8(array, value);
	else if (element_types[c] == DB_INT4)
		db_array_int4(array, (int32_t)value);
	else
		db_array_int2(array, (int16_t)value);
}

static void put_text(struct columns *columns, enum column c, struct str text)
{
	columns->says[c] |= text.s != NULL;
	db_array_text(&columns->arrays[c], text);
}

static void put_result(struct columns *columns, const struct frame_result *result)
{
	int64_t duration_ms = result->started_at_us == 0 ? -1 : result->duration_ms;

	put_int(columns, CLAIM_IDS, result->claim_id, 0);
	put_int(columns, CLAIM_INDEXES, result->claim_index, 0);
	put_int(columns, JOB_IDS, result->job_id, 0);
	put_int(columns, ATTEMPTS, result->attempt, 0);
	put_text(columns, OUTCOMES, result->outcome);
	put_text(columns, CODES, result->code);
	put_text(columns, ERRORS, result->error);
	put_text(columns, RESPONSES, result->response);
	columns->says[RESPONSES_ARE_JSON] |= result->response_is_json;
	db_array_bool(&columns->arrays[RESPONSES_ARE_JSON], result->response_is_json);
	put_int(columns, AFTERS_MS, result->after_ms, -1);
	put_text(columns, REASONS, result->reason);
	put_int(columns, STARTED_US, result->started_at_us, 0);
	put_int(columns, DURATIONS_MS, duration_ms, -1);
	put_int(columns, EXIT_STATUSES, result->exit_status, -1);
	put_int(columns, SIGNALS, result->signal, 0);
	put_text(columns, COMMITS, result->commit);
	put_text(columns, FOLLOW_UPS, result->enqueue);
	put_int(columns, DROPPED_BYTES, result->dropped_bytes, 0);
}

void batch_send(struct batch *batch, struct db *db, struct claims *claims,
	db_result_fn *fn, void *ctx)
{
	struct columns columns = {.says = {false}};
	struct db_params params;

	for (int c = 0; c < COLUMNS; c++) {
		buf_init(&columns.bytes[c], (size_t)1 << 30);
		db_array_begin(&columns.arrays[c], &columns.bytes[c], element_types[c]);
	}
	for (size_t i = 0; i < batch->count; i++) {
		const struct entry *entry = batch->entries[i];
		const struct frame_result *result = &entry->result;

		if (entry->failure == NULL) {
			put_result(&columns, result);
		} else {
			struct frame_result failed = without_effects(entry);
			put_result(&columns, &failed);
		}
		if (claims_count(claims, result->claim_id, result->claim_size))
			put_int(&columns, DONE_CLAIMS, result->claim_id, 0);
	}
	db_params_init(&params);
	for (int c = 0; c < COLUMNS; c++) {
		db_array_end(&columns.arrays[c]);
		if (columns.says[c])
			db_bind_array(&params, &columns.bytes[c]);
		else
			db_bind_null(&params);
	}
	db_query(db, &settle_statement, &params, fn, ctx);
	for (int c = 0; c < COLUMNS; c++)
		buf_release(&columns.bytes[c]);
}

void batch_return(struct batch *batch, struct queue *queue)
{
	struct queue returned;

	if (batch->count == 0)
		return;
	queue_init(&returned);
	for (size_t i = 0; i < batch->count; i++)
		queue_put(&returned, batch->entries[i]);
	batch->count = 0;
	/* in front of what came meanwhile */
	*returned.tail = queue->head;
	if (queue->head != NULL)
		returned.tail = queue->tail;
	returned.count += queue->count;
	returned.bytes += queue->bytes;
	*queue = returned;
}
