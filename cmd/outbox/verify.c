/*
 * outbox verify: whether the schema in the database is the one that this program makes.
 *
 * There is no second description of the schema to compare with. It is made anew under
 * another name, in a transaction that is rolled back, and the catalogs of both are compared.
 * Nothing of the schema that is in use is locked or touched.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "command.h"
#include "migrations.h"
#include "options.h"
#include "program.h"
#include "schema.h"
#include "version.h"

#define OTHER_SCHEMA "outbox_verify"
#define OLDEST_SERVER 140000 /* as libpq numbers versions */
#define MAX_SQL ((size_t)64 << 20)

static const struct opt_program program = {
	.name = "outbox verify",
	.summary = "Compares the schema with what this program makes; exits with 1 when it "
			   "differs.",
	.usage = "[option ...]",
	.tables = {output_opts, program_db_opts},
};

/* Appends SQL with OTHER_SCHEMA in the place of the schema's name. */
static void put_renamed(struct buf *out, const char *sql)
{
	static const char name[] = "outbox.";
	const char *from = sql;

	for (const char *at = sql; (at = strstr(at, name)) != NULL; at++) {
		if (at > sql && (isalnum((unsigned char)at[-1]) || strchr("_.", at[-1])))
			continue;
		buf_put(out, from, (size_t)(at - from));
		buf_put_str(out, STR(OTHER_SCHEMA "."));
		from = at + strlen(name);
	}
	buf_put_str(out, str_of(from));
}

static int make_other_schema(PGconn *conn, struct err *err)
{
	struct buf sql;

	buf_init(&sql, MAX_SQL);
	buf_put_str(&sql, STR("create schema " OTHER_SCHEMA ";\n"));
	put_renamed(&sql, schema_bookkeeping);
	for (const struct migration *m = migrations; m->kind != MIGRATION_END; m++)
		if (m->kind != MIGRATION_ROLES)
			put_renamed(&sql, m->sql);
	int rc = command_execute(conn, buf_cstr(&sql), err);
	buf_release(&sql);
	return rc;
}

/* A list of problems: the versions, then what differs. NULL on failure. */
static PGresult *find_drift(PGconn *conn, struct err *err)
{
	struct params params = {0};

	if (command_execute(conn,
			"begin; set local client_min_messages = warning;"
			" set local check_function_bodies = off",
			err) < 0 ||
		make_other_schema(conn, err) < 0)
		return NULL;
	params_add_int(&params, OUTBOX_SCHEMA_MAX);
	params_add_int(&params, PQserverVersion(conn));
	params_add_int(&params, OLDEST_SERVER);
	return command_query(conn,
		"select 'server' as object, format('has version %s, needed is %s or newer',"
		" $2::integer / 10000, $3::integer / 10000) as problem"
		" where $2::integer < $3::integer"
		" union all select 'schema', format('has version %s, this program makes version %s',"
		" schema_version, $1::integer) from outbox.meta where schema_version <> $1::integer"
		" union all select * from " OTHER_SCHEMA ".schema_drift('" OTHER_SCHEMA
		"', 'outbox')",
		params.count, params.values, err);
}

static PGresult *verify(PGconn *conn, struct err *err)
{
	struct err ignored = ERR_INIT;
	char timeout[64];
	long version;

	if (schema_read_version(conn, &version, err) < 0)
		return NULL;
	if (version == 0) {
		err_set(err, ERR_CONFIG, "there is no schema \"outbox\": run \"outbox migrate\"");
		return NULL;
	}
	snprintf(timeout, sizeof(timeout), "set statement_timeout = %lld",
		(long long)output_options.timeout_ms);
	if (command_execute(conn, timeout, err) < 0)
		return NULL;
	PGresult *drift = find_drift(conn, err);
	command_execute(conn, "rollback", &ignored);
	return drift;
}

static void print_drift(const PGresult *drift)
{
	int count = PQntuples(drift);

	if (output_options.json) {
		table_print(drift, TABLE_JSON, 0);
		return;
	}
	for (int row = 0; row < count; row++)
		printf("%s %s\n", PQgetvalue(drift, row, 0), PQgetvalue(drift, row, 1));
	if (count == 0)
		printf("the schema is the one that outbox %s makes\n", OUTBOX_VERSION);
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;

	command_start_operands(&program, argc, argv, 0, 0);
	PGconn *conn = schema_connect(&err);
	if (conn == NULL)
		return command_fail(&command_verify, &err);
	PGresult *drift = verify(conn, &err);
	PQfinish(conn);
	if (drift == NULL)
		return command_fail(&command_verify, &err);
	print_drift(drift);
	int code = PQntuples(drift) > 0 ? EXIT_REFUSED : 0;
	PQclear(drift);
	return code;
}

const struct command command_verify = {"verify",
	"compare the schema with what this program makes", run};
