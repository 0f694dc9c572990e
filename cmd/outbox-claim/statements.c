#include "statements.h"

#include "clock.h"
#include "json.h"
#include "wanted.h"

#define MAX_BYTES ((size_t)64 << 20) /* of one parameter */

/* ---- statements of one parameter */

static void send_text(struct db *db, const struct db_statement *statement,
	struct str text, db_result_fn *fn, void *ctx)
{
	struct db_params params;

	db_params_init(&params);
	db_bind_text(&params, text);
	db_query(db, statement, &params, fn, ctx);
}

static void send_array(struct db *db, const struct db_statement *statement,
	const struct buf *array, db_result_fn *fn, void *ctx)
{
	struct db_params params;

	db_params_init(&params);
	db_bind_array(&params, array);
	db_query(db, statement, &params, fn, ctx);
}

static const Oid text_array[] = {DB_TEXT_ARRAY};

static void send_texts(struct db *db, const struct db_statement *statement,
	const struct str *texts, size_t count, db_result_fn *fn, void *ctx)
{
	struct db_array array;
	struct buf bytes;

	buf_init(&bytes, MAX_BYTES);
	db_array_begin(&array, &bytes, DB_TEXT);
	for (size_t i = 0; i < count; i++)
		db_array_text(&array, texts[i]);
	db_array_end(&array);
	send_array(db, statement, &bytes, fn, ctx);
	buf_release(&bytes);
}

/* ---- workers */

static void put_kinds(struct buf *out, const struct frame_hello *hello)
{
	buf_put_char(out, '[');
	for (size_t i = 0; i < hello->kinds_count; i++) {
		const struct frame_hello_kind *kind = &hello->kinds[i];
		struct json_object object;

		if (i > 0)
			buf_put_char(out, ',');
		json_begin(&object, out);
		json_str(&object, "kind", kind->kind);
		json_int(&object, "version", kind->version);
		json_str(&object, "lane", kind->lane);
		json_int(&object, "timeout_ms", kind->timeout_ms);
		json_raw(&object, "manifest", kind->manifest);
		json_end(&object);
	}
	buf_put_char(out, ']');
}

static void bind_held(struct db_params *params, struct buf *ids, struct buf *received,
	const struct frame_hello *hello)
{
	struct db_array id_array, received_array;

	buf_init(ids, MAX_BYTES);
	buf_init(received, MAX_BYTES);
	db_array_begin(&id_array, ids, DB_INT8);
	db_array_begin(&received_array, received, DB_INT4);
	for (size_t i = 0; i < hello->claims_count; i++) {
		db_array_int8(&id_array, hello->claims[i].claim_id);
		db_array_int4(&received_array, (int32_t)hello->claims[i].received);
	}
	db_array_end(&id_array);
	db_array_end(&received_array);
	db_bind_array(params, ids);
	db_bind_array(params, received);
}

void send_hello(struct db *db, const struct frame_hello *hello, const char *lane,
	int64_t lease_ms, db_result_fn *fn, void *ctx)
{
	static const Oid types[] = {DB_TEXT, DB_TEXT, DB_INT4, DB_TEXT, DB_TEXT, DB_INT8,
		DB_JSON, DB_INT8_ARRAY, DB_INT4_ARRAY};
	static const struct db_statement statement = {
		.name = "worker_hello",
		.sql = "select outbox.clock_us(), count(*)"
			   " from outbox.worker_hello($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		.nparams = 9,
		.types = types,
	};
	struct db_params params;
	struct buf kinds, ids, received;

	buf_init(&kinds, MAX_BYTES);
	put_kinds(&kinds, hello);
	db_params_init(&params);
	db_bind_text(&params, hello->id);
	db_bind_text(&params, hello->host.s == NULL ? STR("") : hello->host);
	db_bind_int4(&params, (int32_t)hello->pid);
	db_bind_text(&params,
		hello->program_version.s == NULL ? STR("") : hello->program_version);
	db_bind_text(&params, str_of(lane));
	db_bind_int8(&params, lease_ms);
	db_bind_text(&params, (struct str){kinds.data, kinds.len});
	bind_held(&params, &ids, &received, hello);
	db_query(db, &statement, &params, fn, ctx);
	buf_release(&kinds);
	buf_release(&ids);
	buf_release(&received);
}

struct hello_answer get_hello_answer(const PGresult *result)
{
	return (struct hello_answer){
		.db_now_us = db_get_int8(result, 0, 0),
		.released = db_get_int8(result, 0, 1),
	};
}

void send_beats(struct db *db, const struct str *workers, size_t count, db_result_fn *fn,
	void *ctx)
{
	static const struct db_statement statement = {
		.name = "worker_beat",
		.sql = "select worker, outbox.clock_us() from outbox.worker_beat($1)",
		.nparams = 1,
		.types = text_array,
	};

	send_texts(db, &statement, workers, count, fn, ctx);
}

void send_bye(struct db *db, struct str worker, db_result_fn *fn, void *ctx)
{
	static const struct db_statement statement = {
		.name = "worker_bye",
		.sql = "select outbox.worker_bye($1)",
		.nparams = 1,
	};

	send_text(db, &statement, worker, fn, ctx);
}

/* ---- jobs */

/* What is asked for, as arrays. */
struct parts_arrays {
	struct buf kinds, limits, versions, after;
};

#define START_EARLIER_US INT64_C(200000) /* for what commits a little late */

/* Four instants a kind, null where nothing was claimed; no array at all from the head. */
static void make_after(struct buf *bytes, const struct claim_part *parts, size_t count)
{
	struct db_array after;

	db_array_begin(&after, bytes, DB_TIMESTAMPTZ);
	for (size_t i = 0; i < count * WANTED_PRIORITIES; i++) {
		const int64_t *after_us = parts[i / WANTED_PRIORITIES].after_us;
		int64_t us = after_us == NULL ? 0 : after_us[i % WANTED_PRIORITIES];

		if (us == 0)
			db_array_null(&after);
		else
			db_array_int8(&after, us - START_EARLIER_US - CLOCK_PG_EPOCH_US);
	}
	db_array_end(&after);
}

static void make_parts(struct parts_arrays *arrays, const struct claim_part *parts,
	size_t count)
{
	struct db_array kinds, limits, versions;

	buf_init(&arrays->kinds, MAX_BYTES);
	buf_init(&arrays->limits, MAX_BYTES);
	buf_init(&arrays->versions, MAX_BYTES);
	buf_init(&arrays->after, MAX_BYTES);
	make_after(&arrays->after, parts, count);
	db_array_begin(&kinds, &arrays->kinds, DB_TEXT);
	db_array_begin(&limits, &arrays->limits, DB_INT4);
	db_array_begin(&versions, &arrays->versions, DB_INT4);
	for (size_t i = 0; i < count; i++) {
		db_array_text(&kinds, parts[i].kind);
		db_array_int4(&limits, (int32_t)parts[i].limit);
		db_array_int4(&versions, (int32_t)parts[i].version);
	}
	db_array_end(&kinds);
	db_array_end(&limits);
	db_array_end(&versions);
}

static void release_parts(struct parts_arrays *arrays)
{
	buf_release(&arrays->kinds);
	buf_release(&arrays->limits);
	buf_release(&arrays->versions);
	buf_release(&arrays->after);
}

void send_claim(struct db *db, struct str worker, const char *lane,
	const struct claim_part *parts, size_t count, int64_t max_jobs, const char *found_by,
	db_result_fn *fn, void *ctx)
{
	static const Oid types[] = {DB_TEXT, DB_TEXT, DB_TEXT_ARRAY, DB_INT4_ARRAY, DB_INT4,
		DB_TEXT, DB_INT4_ARRAY, DB_TIMESTAMPTZ_ARRAY};
	static const struct db_statement statement = {
		.name = "claim",
		.sql =
			"select claim_id, claim_index, claim_size, claimed_at, job_id, attempt, kind,"
			" payload, max_attempts, idempotency_key, tenant_key, subject_key,"
			" correlation_id, traceparent, metadata, created_at, trigger, reason, version, issues, priority,"
			" due_at from outbox.claim($1, $2, $3, $4, $5, $6, $7, $8)",
		.nparams = 8,
		.types = types,
	};
	struct parts_arrays arrays;
	struct db_params params;

	make_parts(&arrays, parts, count);
	db_params_init(&params);
	db_bind_text(&params, worker);
	db_bind_text(&params, str_of(lane));
	db_bind_array(&params, &arrays.kinds);
	db_bind_array(&params, &arrays.limits);
	db_bind_int4(&params, (int32_t)max_jobs);
	db_bind_text(&params, str_of(found_by));
	db_bind_array(&params, &arrays.versions);
	db_bind_array(&params, &arrays.after);
	db_query(db, &statement, &params, fn, ctx);
	release_parts(&arrays);
}

struct frame_job get_job(const PGresult *result, int row, struct str found_by)
{
	return (struct frame_job){
		.claim_id = db_get_int8(result, row, 0),
		.claim_index = db_get_int4(result, row, 1),
		.claim_size = db_get_int4(result, row, 2),
		.claimed_at_us = db_get_time_us(result, row, 3),
		.found = found_by,
		.job_id = db_get_int8(result, row, 4),
		.attempt = db_get_int2(result, row, 5),
		.kind = db_get_str(result, row, 6),
		.payload = db_get_str(result, row, 7),
		.max_attempts = db_get_int4(result, row, 8),
		.idempotency_key = db_get_str(result, row, 9),
		.tenant_key = db_get_str(result, row, 10),
		.subject_key = db_get_str(result, row, 11),
		.correlation_id = db_get_str(result, row, 12),
		.traceparent = db_get_str(result, row, 13),
		.metadata = db_get_str(result, row, 14),
		.created_at_us = db_get_time_us(result, row, 15),
		.trigger = db_get_str(result, row, 16),
		.reason = db_get_str(result, row, 17),
		.version = db_get_int4(result, row, 18),
		.issues = db_get_str(result, row, 19),
	};
}

int get_priority(const PGresult *result, int row)
{
	return db_get_int2(result, row, 20);
}

int64_t get_due_us(const PGresult *result, int row)
{
	return db_get_time_us(result, row, 21);
}

void send_next_due(struct db *db, const char *lane, const struct claim_part *parts,
	size_t count, db_result_fn *fn, void *ctx)
{
	static const Oid types[] = {DB_TEXT, DB_TEXT_ARRAY, DB_INT4_ARRAY,
		DB_TIMESTAMPTZ_ARRAY};
	static const struct db_statement statement = {
		.name = "next_due",
		.sql = "select (extract(epoch from"
			   " outbox.next_due($1, $2, $3, $4) - outbox.now()) * 1000000)::bigint",
		.nparams = 4,
		.types = types,
	};
	struct parts_arrays arrays;
	struct db_params params;

	make_parts(&arrays, parts, count);
	db_params_init(&params);
	db_bind_text(&params, str_of(lane));
	db_bind_array(&params, &arrays.kinds);
	db_bind_array(&params, &arrays.versions);
	db_bind_array(&params, &arrays.after);
	db_query(db, &statement, &params, fn, ctx);
	release_parts(&arrays);
}

/* ---- cancels and the rest */

void send_cancels(struct db *db, const struct str *workers, size_t count,
	db_result_fn *fn, void *ctx)
{
	static const struct db_statement statement = {
		.name = "cancels",
		.sql = "select worker, job_id, attempt, cancelled_by, reason"
			   " from outbox.cancels($1)",
		.nparams = 1,
		.types = text_array,
	};

	send_texts(db, &statement, workers, count, fn, ctx);
}

struct frame_cancel get_cancel(const PGresult *result, int row, struct str *worker)
{
	*worker = db_get_str(result, row, 0);
	return (struct frame_cancel){
		.job_id = db_get_int8(result, row, 1),
		.attempt = db_get_int2(result, row, 2),
		.cancelled_by = db_get_str(result, row, 3),
		.reason = db_get_str(result, row, 4),
	};
}

void send_release(struct db *db, const int64_t *claim_ids, size_t count, db_result_fn *fn,
	void *ctx)
{
	static const Oid types[] = {DB_INT8_ARRAY};
	static const struct db_statement statement = {
		.name = "release_claims",
		.sql = "select outbox.release_claims($1)",
		.nparams = 1,
		.types = types,
	};
	struct db_array array;
	struct buf bytes;

	buf_init(&bytes, MAX_BYTES);
	db_array_begin(&array, &bytes, DB_INT8);
	for (size_t i = 0; i < count; i++)
		db_array_int8(&array, claim_ids[i]);
	db_array_end(&array);
	send_array(db, &statement, &bytes, fn, ctx);
	buf_release(&bytes);
}

void send_refusal(struct db *db, const struct frame_job *job, const char *worker,
	const char *code, const char *error, db_result_fn *fn, void *ctx)
{
	static const Oid types[] = {DB_TEXT, DB_TEXT, DB_INT8, DB_TEXT, DB_TEXT, DB_INT8,
		DB_INT4};
	static const struct db_statement statement = {
		.name = "refusal",
		.sql = "select from outbox.settle_claimed('fail', $1, $2, array[row($3, $4,"
			   " $5::outbox.found, $6, $7::smallint)::outbox.claimed])",
		.nparams = 7,
		.types = types,
	};
	struct db_params params;

	db_params_init(&params);
	db_bind_text(&params, str_of(code));
	db_bind_text(&params, str_of(error));
	db_bind_int8(&params, job->claim_id);
	db_bind_text(&params, str_of(worker));
	db_bind_text(&params, job->found);
	db_bind_int8(&params, job->job_id);
	db_bind_int4(&params, (int32_t)job->attempt);
	db_query(db, &statement, &params, fn, ctx);
}

void send_kinds_owed(struct db *db, const char *lane, db_result_fn *fn, void *ctx)
{
	static const struct db_statement statement = {
		.name = "kinds_owed",
		.sql = "select * from outbox.kinds_owed($1)",
		.nparams = 1,
	};

	send_text(db, &statement, str_of(lane), fn, ctx);
}

void send_kinds_without_runner(struct db *db, const char *lane, db_result_fn *fn,
	void *ctx)
{
	static const struct db_statement statement = {
		.name = "kinds_without_runner",
		.sql = "select * from outbox.kinds_without_runner($1)",
		.nparams = 1,
	};

	send_text(db, &statement, str_of(lane), fn, ctx);
}

/* ---- sleeping */

void send_sleep_begin(struct db *db, const char *lane, db_result_fn *fn, void *ctx)
{
	static const struct db_statement statement = {
		.name = "sleep_begin",
		.sql = "select outbox.sleep_begin($1)",
		.nparams = 1,
	};

	send_text(db, &statement, str_of(lane), fn, ctx);
}

void send_sleep_end(struct db *db, const char *lane, db_result_fn *fn, void *ctx)
{
	static const struct db_statement statement = {
		.name = "sleep_end",
		.sql = "select outbox.sleep_end($1)",
		.nparams = 1,
	};

	send_text(db, &statement, str_of(lane), fn, ctx);
}

void send_lane_is_pooled(struct db *db, const char *lane, db_result_fn *fn, void *ctx)
{
	static const struct db_statement statement = {
		.name = "lane_is_pooled",
		.sql = "select outbox.lane_is_pooled($1)",
		.nparams = 1,
	};

	send_text(db, &statement, str_of(lane), fn, ctx);
}

void send_nudge_others(struct db *db, const struct str *kinds, size_t count,
	db_result_fn *fn, void *ctx)
{
	static const struct db_statement statement = {
		.name = "nudge_others",
		.sql = "select outbox.nudge_others($1)",
		.nparams = 1,
		.types = text_array,
	};

	send_texts(db, &statement, kinds, count, fn, ctx);
}
