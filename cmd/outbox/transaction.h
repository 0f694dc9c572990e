/*
 * One query in a transaction of its own, with the time limit of --timeout.
 */
#ifndef OUTBOX_TRANSACTION_H
#define OUTBOX_TRANSACTION_H

#include <libpq-fe.h>

#include "err.h"
#include "options.h"

/* Read only; the query sees one snapshot, however many statements it is made of. NULL on
 * failure. The caller clears the result. */
PGresult *transaction_read(PGconn *conn, const char *sql, const struct params *params,
	struct err *err);

/* Read committed, as operating on jobs requires, and with patience for locks. A loser of a
 * deadlock or of the wait for a lock is tried again a few times. */
PGresult *transaction_write(PGconn *conn, const char *sql, const struct params *params,
	struct err *err);

#endif
