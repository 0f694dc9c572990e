/*
 * What the asynchronous (db.c) and the blocking connection share: attributes, the schema
 * check, libpq's messages. Private to the db modules.
 */
#ifndef OUTBOX_DB_CONNECT_H
#define OUTBOX_DB_CONNECT_H

#include <libpq-fe.h>

#include "db.h"
#include "err.h"

/* ERR_CONFIG when libpq could not read the connection string. */
int db_check_conninfo(const char *conninfo, struct err *err);

/* PQconnectdbParams or PQconnectStartParams with our attributes. NULL: out of memory. */
typedef PGconn *db_connect_fn(const char *const *keywords, const char *const *values,
	int expand_dbname);
PGconn *db_connect_with(db_connect_fn *connect, const struct db_options *options);

/* The result of this query, in text format, decides whether we speak the schema. With result
 * NULL, *err says why the query failed; a missing function is reworded. */
extern const char *const db_schema_query;
int db_check_schema(const PGresult *result, struct err *err);

/* Whether the server process that answered that query is another one than the connection was
 * told of: a pooler is in between, and may pass each transaction to another process. */
bool db_is_behind_pooler(const PGconn *conn, const PGresult *result);

/* Whether the result is a success; else *err is filled. */
bool db_is_success(const PGconn *conn, const PGresult *result, struct err *err);

#endif
