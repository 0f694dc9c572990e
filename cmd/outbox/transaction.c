#include "transaction.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "command.h"

#define TRIES 5

static PGresult *run(PGconn *conn, const char *begin, const char *sql,
	const struct params *params, struct err *err)
{
	char start[256];
	struct err ignored = ERR_INIT;

	/* the time zone stays that of the session: instants in options are meant in it */
	snprintf(start, sizeof(start),
		"%s; set local statement_timeout = %" PRId64
		"; set local client_encoding = 'UTF8';"
		" set local datestyle = 'ISO'",
		begin, output_options.timeout_ms);
	if (command_execute(conn, start, err) < 0)
		return NULL;
	PGresult *result = command_query(conn, sql, params->count, params->values, err);
	if (result != NULL && command_execute(conn, "commit", err) == 0)
		return result;
	PQclear(result);
	command_execute(conn, "rollback", &ignored);
	return NULL;
}

PGresult *transaction_read(PGconn *conn, const char *sql, const struct params *params,
	struct err *err)
{
	return run(conn, "begin isolation level repeatable read read only", sql, params, err);
}

/* Whether the transaction was the victim of another one, and nothing else was wrong. */
static bool lost_a_race(const struct err *err)
{
	static const char *const sqlstates[] = {"40P01", "40001", "55P03"};

	for (size_t i = 0; i < sizeof(sqlstates) / sizeof(sqlstates[0]); i++)
		if (strcmp(err->sqlstate, sqlstates[i]) == 0)
			return true;
	return false;
}

PGresult *transaction_write(PGconn *conn, const char *sql, const struct params *params,
	struct err *err)
{
	for (int try = 1;; try++) {
		*err = ERR_INIT;
		PGresult *result = run(conn,
			"begin isolation level read committed read write; set local lock_timeout = '5s'",
			sql, params, err);
		if (result != NULL || !lost_a_race(err) || try == TRIES)
			return result;
		command_pause_ms(50 + (int64_t)random_below(100));
	}
}
