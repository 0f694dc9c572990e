#include "schema.h"

#include <stdbool.h>
#include <stdlib.h>

#include "command.h"
#include "db.h"
#include "program.h"

const char schema_bookkeeping[] = "create table if not exists outbox.migration (\n"
								  "\tname text primary key, -- of the file\n"
								  "\tchecksum text not null, -- SHA-256 of its text\n"
								  "\tapplied_at timestamptz not null default now());\n";

PGconn *schema_connect(struct err *err)
{
	struct db_options options = {
		.conninfo = program_db_options.conninfo,
		.program = "outbox",
		.skip_schema_check = true,
	};

	return db_connect_blocking(&options, err);
}

int schema_read_version(PGconn *conn, long *version, struct err *err)
{
	*version = 0;
	PGresult *result = command_query(conn,
		"select to_regclass('outbox.meta') is not null", 0, NULL, err);
	if (result == NULL)
		return -1;
	bool exists = PQgetvalue(result, 0, 0)[0] == 't';
	PQclear(result);
	if (!exists)
		return 0;
	result = command_query(conn, "select schema_version from outbox.meta", 0, NULL, err);
	if (result == NULL)
		return -1;
	if (PQntuples(result) == 1)
		*version = strtol(PQgetvalue(result, 0, 0), NULL, 10);
	PQclear(result);
	return 0;
}
