/*
 * The calls that a db makes: each one a statement or a command with copies of its parameters,
 * the queue of those that wait, and how one is sent. Private to the db modules.
 */
#ifndef OUTBOX_DB_CALL_H
#define OUTBOX_DB_CALL_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

#include "db.h"

struct db_call {
	struct db_call *next;
	const struct db_statement *statement; /* NULL: a command */
	char *command;
	db_result_fn *fn;
	void *ctx;
	int count;
	const char *values[DB_MAX_PARAMS]; /* in bytes */
	int lengths[DB_MAX_PARAMS];
	int formats[DB_MAX_PARAMS];
	char bytes[];
};

/* Copies the parameters; NULL: none. */
struct db_call *db_call_new(const struct db_statement *statement,
	const struct db_params *params, db_result_fn *fn, void *ctx);
struct db_call *db_call_new_command(const char *sql, db_result_fn *fn, void *ctx);
void db_call_free(struct db_call *call);

struct db_calls {
	struct db_call *first, *last;
	size_t count;
};
void db_calls_append(struct db_calls *calls, struct db_call *call);
void db_calls_prepend(struct db_calls *calls, struct db_call *call);
struct db_call *db_calls_take(struct db_calls *calls); /* the first, or NULL */

/* The statements that are prepared on a connection. */
struct db_prepared {
	const struct db_statement **items;
	size_t count;
};
void db_prepared_add(struct db_prepared *prepared, const struct db_statement *statement);
void db_prepared_clear(struct db_prepared *prepared); /* a new connection has none */
void db_prepared_release(struct db_prepared *prepared);

/* Sends a call, or first what prepares its statement; *preparing says which. prepared NULL:
 * nothing is to be prepared on this connection. -1: libpq has taken nothing. */
int db_call_send(const struct db_call *call, PGconn *conn,
	const struct db_prepared *prepared, bool *preparing);

#endif
