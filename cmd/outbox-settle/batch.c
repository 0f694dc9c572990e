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
		"select job_id, attempt, kind, outcome::text, code, duration_ms, worker, warning,"
		" outbox.clock_us()"
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
		bytes += queue->head->length;
		batch->entries[batch->count++] = queue_take(queue);
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

static void put_result(struct db_array *arrays, const struct frame_result *result)
{
	db_array_int8(&arrays[CLAIM_IDS], result->claim_id);
	db_array_int4(&arrays[CLAIM_INDEXES], (int32_t)result->claim_index);
	db_array_int8(&arrays[JOB_IDS], result->job_id);
	db_array_int2(&arrays[ATTEMPTS], (int16_t)result->attempt);
	db_array_text(&arrays[OUTCOMES], result->outcome);
	db_array_text(&arrays[CODES], result->code);
	db_array_text(&arrays[ERRORS], result->error);
	db_array_text(&arrays[RESPONSES], result->response);
	db_array_bool(&arrays[RESPONSES_ARE_JSON], result->response_is_json);
	db_array_int8(&arrays[AFTERS_MS], result->after_ms);
	db_array_text(&arrays[REASONS], result->reason);
	db_array_int8(&arrays[STARTED_US], result->started_at_us);
	db_array_int8(&arrays[DURATIONS_MS],
		result->started_at_us == 0 ? -1 : result->duration_ms);
	db_array_int4(&arrays[EXIT_STATUSES], (int32_t)result->exit_status);
	db_array_int4(&arrays[SIGNALS], (int32_t)result->signal);
	db_array_text(&arrays[COMMITS], result->commit);
	db_array_text(&arrays[FOLLOW_UPS], result->enqueue);
	db_array_int8(&arrays[DROPPED_BYTES], result->dropped_bytes);
}

void batch_send(struct batch *batch, struct db *db, struct claims *claims,
	db_result_fn *fn, void *ctx)
{
	struct buf bytes[COLUMNS];
	struct db_array arrays[COLUMNS];
	struct db_params params;

	for (int c = 0; c < COLUMNS; c++) {
		buf_init(&bytes[c], (size_t)1 << 30);
		db_array_begin(&arrays[c], &bytes[c], element_types[c]);
	}
	for (size_t i = 0; i < batch->count; i++) {
		const struct entry *entry = batch->entries[i];
		const struct frame_result *result = &entry->result;

		if (entry->failure == NULL) {
			put_result(arrays, result);
		} else {
			struct frame_result failed = without_effects(entry);
			put_result(arrays, &failed);
		}
		if (claims_count(claims, result->claim_id, result->claim_size))
			db_array_int8(&arrays[DONE_CLAIMS], result->claim_id);
	}
	db_params_init(&params);
	for (int c = 0; c < COLUMNS; c++) {
		db_array_end(&arrays[c]);
		if (element_types[c] == DB_TEXT && arrays[c].nulls == arrays[c].count)
			db_bind_null(&params);
		else
			db_bind_array(&params, &bytes[c]);
	}
	db_query(db, &settle_statement, &params, fn, ctx);
	for (int c = 0; c < COLUMNS; c++)
		buf_release(&bytes[c]);
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
