/*
 * One asynchronous libpq connection that stays up.
 *
 * Connects with target_session_attrs=read-write, application_name of the program and
 * keepalives; reconnects with jittered, doubling backoff (100 ms to 10 s). On connecting it
 * checks that the schema version is in [OUTBOX_SCHEMA_MIN, OUTBOX_SCHEMA_MAX]; outside, the
 * `fatal` callback gets ERR_CONFIG naming both. No session state but prepared statements
 * and, where asked, LISTEN: settings live in the SQL functions. With `pooled`, or when a pooler
 * is found in between on connecting, nothing is prepared and nothing session-bound is used.
 *
 * One query runs at a time; others wait in order. A query's callback is called exactly
 * once: with its result, with the server's error, or with ERR_UNAVAILABLE when the
 * connection went away while the query was running, so that its fate is UNKNOWN: repeat
 * only what is idempotent. Queries still waiting when the connection drops stay queued and
 * run after the reconnect. An SQLSTATE of class ERR_UNAVAILABLE (25006, 57P01, …) drops
 * the connection too, after the callback, and so does the answer of a server that has become
 * read-only, even to what does not write.
 *
 * db.c has the life of the connection, db_call.c what is sent over it, db_value.c parameters
 * and columns, db_connect.c what the blocking connection has in common with it.
 */
#ifndef OUTBOX_DB_H
#define OUTBOX_DB_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "loop.h"

/* So long after its server a connection is back at the latest. */
#define DB_BACKOFF_MAX_MS 10000

struct db;

struct db_options {
	const char *conninfo;     /* --db; NULL or "": libpq's environment and defaults */
	const char *program;      /* application_name */
	bool pooled;              /* behind a transaction pooler, even if none is found */
	bool skip_schema_check;   /* for `outbox migrate` */
	void (*on_up)(void *ctx); /* connected and checked */
	void (*on_down)(void *ctx,
		const struct err *err); /* lost, or could not connect (each time) */
	void (*on_fatal)(void *ctx,
		const struct err *err); /* retrying is pointless: wrong schema */
	void (*on_notify)(void *ctx, const char *channel, const char *payload);
	void *ctx;
};

/* Starts connecting; never blocks. The options' strings must outlive the db. */
struct db *db_new(struct loop *loop, const struct db_options *options, struct err *err);
void db_free(struct db *db); /* callbacks of waiting queries are not called */
bool db_is_up(const struct db *db);
bool db_is_pooled(const struct db *db);      /* as told or, once it was up, as found */
size_t db_queue_length(const struct db *db); /* waiting and running queries */
void db_reconnect(struct db *db);            /* drop the connection and start anew */
PGconn *db_conn(struct db *db); /* for escapes and backend pid; NULL when down */

/* Types of parameters: the object ids of pg_type.dat, which never change. */
enum {
	DB_BOOL = 16,
	DB_INT8 = 20,
	DB_INT2 = 21,
	DB_INT4 = 23,
	DB_TEXT = 25,
	DB_JSON = 114,
	DB_BOOL_ARRAY = 1000,
	DB_INT2_ARRAY = 1005,
	DB_INT4_ARRAY = 1007,
	DB_TEXT_ARRAY = 1009,
	DB_INT8_ARRAY = 1016,
	DB_TIMESTAMPTZ = 1184,
	DB_TIMESTAMPTZ_ARRAY = 1185,
};

/* A statement: a static object, prepared at first use on each connection under its name. */
struct db_statement {
	const char *name;
	const char *sql;
	int nparams;      /* at most DB_MAX_PARAMS */
	const Oid *types; /* nparams entries, or NULL: the server infers them */
};
#define DB_MAX_PARAMS 40

/* Parameters of one call. Build with the db_bind functions in order. Texts travel in text
 * format, so they suit every type; integers, booleans and arrays in binary, so the types
 * must be right. The values are copied by db_query. */
struct db_params {
	int count;
	const char *values[DB_MAX_PARAMS];
	int lengths[DB_MAX_PARAMS];
	int formats[DB_MAX_PARAMS];
	char scratch[DB_MAX_PARAMS][8];
};
void db_params_init(struct db_params *params);
void db_bind_null(struct db_params *params);
void db_bind_text(struct db_params *params, struct str text); /* absent: null */
void db_bind_int8(struct db_params *params,
	int64_t value); /* the parameter's type must be int8 */
void db_bind_int4(struct db_params *params, int32_t value);
void db_bind_bool(struct db_params *params, bool value);
/* Bytes of a binary array made by the db_array functions; must live until db_query returns. */
void db_bind_array(struct db_params *params, const struct buf *array);

/* One-dimensional binary arrays, as array_recv reads them: begin, then items, then end, which
 * returns -1, with the buf as it was before, when the array does not fit into the buf. */
struct db_array {
	struct buf *out;
	size_t header; /* offset of the element count */
	int32_t count;
	int32_t nulls; /* of these */
	bool is_full;  /* the buf's maximum was reached */
};
void db_array_begin(struct db_array *array, struct buf *out, Oid element_type);
void db_array_int2(struct db_array *array, int16_t value);
void db_array_int4(struct db_array *array, int32_t value);
void db_array_int8(struct db_array *array, int64_t value);
void db_array_bool(struct db_array *array, bool value);
void db_array_text(struct db_array *array, struct str text); /* also json; absent: null */
void db_array_null(struct db_array *array);
int db_array_end(struct db_array *array);

/*
 * result is NULL on an error and cleared by the db after the callback. Results are in
 * binary format: read them with the db_get functions.
 */
typedef void db_result_fn(void *ctx, PGresult *result, const struct err *err);
void db_query(struct db *db, const struct db_statement *statement,
	const struct db_params *params, db_result_fn *fn, void *ctx);

/* LISTEN and other simple commands; same queue, text protocol, result format text. */
void db_command(struct db *db, const char *sql, db_result_fn *fn, void *ctx);

/* Columns of binary results. A null gives 0, false or an absent str. Views die with result. */
int64_t db_get_int8(const PGresult *result, int row, int column);
int32_t db_get_int4(const PGresult *result, int row, int column);
int16_t db_get_int2(const PGresult *result, int row, int column);
bool db_get_bool(const PGresult *result, int row, int column);
struct str db_get_str(const PGresult *result, int row, int column); /* text, json, enum */
int64_t db_get_time_us(const PGresult *result, int row,
	int column); /* timestamptz; null or
	-infinity: INT64_MIN, infinity: INT64_MAX */

/* Fills *err from a failed result or, with result NULL, from the connection. */
void db_error(struct err *err, const PGconn *conn, const PGresult *result);

/* A blocking connection for one-shot commands (`outbox …`): same attributes and checks. */
PGconn *db_connect_blocking(const struct db_options *options, struct err *err);

/* Copies conninfo with the password replaced by "***"; for messages. Caller frees. */
char *db_redact(const char *conninfo);

#endif
