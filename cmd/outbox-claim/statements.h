/*
 * The statements of the claimer, with their parameters bound and their rows read.
 */
#ifndef CLAIM_STATEMENTS_H
#define CLAIM_STATEMENTS_H

#include "db.h"
#include "frame.h"

/* Registers a worker; answers one row: the database's clock, released jobs. */
void send_hello(struct db *db, const struct frame_hello *hello, const char *lane,
	int64_t lease_ms, db_result_fn *fn, void *ctx);
struct hello_answer {
	int64_t db_now_us;
	int64_t released;
};
struct hello_answer get_hello_answer(const PGresult *result);

/* Records a beat for each; a row for each that is registered: worker, database's clock. */
void send_beats(struct db *db, const struct str *workers, size_t count, db_result_fn *fn,
	void *ctx);

void send_bye(struct db *db, struct str worker, db_result_fn *fn, void *ctx);

/* One kind that is asked for. */
struct claim_part {
	struct str kind;
	int64_t limit;
	int64_t version; /* the runner's */
	uint64_t round;  /* of the kind (wanted.h) when the claim began */
	/* where to start, exclusive, by priority - 1: Unix microseconds; NULL: from the head */
	const int64_t *after_us;
};
void send_claim(struct db *db, struct str worker, const char *lane,
	const struct claim_part *parts, size_t count, int64_t max_jobs, const char *found_by,
	db_result_fn *fn, void *ctx);

/* A row of the answer; epoch and seq are for the sender to fill in. Views into result. */
struct frame_job get_job(const PGresult *result, int row, struct str found_by);
int get_priority(const PGresult *result, int row);
int64_t get_due_us(const PGresult *result, int row);

/* One row: microseconds until the next job of these is due, null when none is owed. */
void send_next_due(struct db *db, const char *lane, const struct claim_part *parts,
	size_t count, db_result_fn *fn, void *ctx);

/* Rows of get_cancel: what these workers should stop. */
void send_cancels(struct db *db, const struct str *workers, size_t count,
	db_result_fn *fn, void *ctx);
struct frame_cancel get_cancel(const PGresult *result, int row, struct str *worker);

void send_release(struct db *db, const int64_t *claim_ids, size_t count, db_result_fn *fn,
	void *ctx);

/* Ends an attempt as a permanent failure, because its job cannot be handed to anybody. */
void send_refusal(struct db *db, const struct frame_job *job, const char *worker,
	const char *code, const char *error, db_result_fn *fn, void *ctx);

/* One row: asleep, busy or colleague. */
void send_sleep_begin(struct db *db, const char *lane, db_result_fn *fn, void *ctx);
void send_sleep_end(struct db *db, const char *lane, db_result_fn *fn, void *ctx);
void send_lane_is_pooled(struct db *db, const char *lane, db_result_fn *fn, void *ctx);
void send_nudge_others(struct db *db, const struct str *kinds, size_t count,
	db_result_fn *fn, void *ctx);

/* Rows: kinds of the lane that are owed. */
void send_kinds_owed(struct db *db, const char *lane, db_result_fn *fn, void *ctx);

/* Rows: those of them that no registered worker has. */
void send_kinds_without_runner(struct db *db, const char *lane, db_result_fn *fn,
	void *ctx);

#endif
