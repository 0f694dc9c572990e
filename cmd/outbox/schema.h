/* What the commands share that look at the schema as such: migrate and verify. */
#ifndef OUTBOX_SCHEMA_H
#define OUTBOX_SCHEMA_H

#include <libpq-fe.h>

#include "err.h"

/* Makes the table outbox.migration, which records the files that were applied. */
extern const char schema_bookkeeping[];

/* Connects by --db whatever the schema's version. NULL on failure. */
PGconn *schema_connect(struct err *err);

/* The version of the schema in the database; 0 when there is none. */
int schema_read_version(PGconn *conn, long *version, struct err *err);

#endif
