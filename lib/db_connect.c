#include "db_connect.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "units.h"
#include "version.h"

const char *const db_schema_query =
	"select outbox.schema_version(), pg_catalog.pg_backend_pid()";

/* ---- errors */

/* libpq's messages have a line for each host that was tried, and indented hints. They become
 * one sentence: "could not reach a; could not reach b". */
static void one_sentence(const char *message, char *text, size_t size)
{
	size_t length = 0;

	while (*message && length + 3 < size) {
		size_t line = strcspn(message, "\n");
		if (line > 0 && *message != '\t') {
			if (length > 0) {
				memcpy(text + length, "; ", 2);
				length += 2;
			}
			size_t count = line < size - 1 - length ? line : size - 1 - length;
			memcpy(text + length, message, count);
			length += count;
		}
		message += line + (message[line] == '\n');
	}
	text[length] = '\0';
}

void db_error(struct err *err, const PGconn *conn, const PGresult *result)
{
	char text[sizeof(err->text)];
	const char *sqlstate = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;

	if (!sqlstate) { /* libpq's own word: the connection is lost */
		one_sentence(result ? PQresultErrorMessage(result) : PQerrorMessage(conn), text,
			sizeof(text));
		err_set(err, ERR_UNAVAILABLE, "%s", *text ? text : "the connection is lost");
		return;
	}
	const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
	one_sentence(primary ? primary : "", text, sizeof(text));
	err_set(err, err_class_of_sqlstate(sqlstate), "%s", text);
	if (err)
		memccpy(err->sqlstate, sqlstate, '\0', sizeof(err->sqlstate));
}

bool db_is_success(const PGconn *conn, const PGresult *result, struct err *err)
{
	switch (PQresultStatus(result)) {
	case PGRES_TUPLES_OK:
	case PGRES_COMMAND_OK:
	case PGRES_EMPTY_QUERY:
		return true;
	case PGRES_COPY_IN:
	case PGRES_COPY_OUT:
		err_set(err, ERR_SOFTWARE, "a statement of ours starts a COPY");
		return false;
	default:
		db_error(err, conn, result);
		return false;
	}
}

/* ---- the connection string */

/* As libpq decides it: anything else is a database name. */
static bool is_conninfo(const char *text)
{
	return strchr(text, '=') || strncmp(text, "postgres://", 11) == 0 ||
		strncmp(text, "postgresql://", 13) == 0;
}

/* libpq's complaint quotes from the string; where that may be a password it is left out. */
static int malformed(const char *conninfo, const char *complaint, struct err *err)
{
	char text[sizeof(err->text)];

	one_sentence(complaint ? complaint : "out of memory", text, sizeof(text));
	if (strcasestr(conninfo, "pass") || strchr(conninfo, '@'))
		return err_set(err, ERR_CONFIG, "the connection string is malformed");
	return err_set(err, ERR_CONFIG, "the connection string is malformed: %s", text);
}

int db_check_conninfo(const char *conninfo, struct err *err)
{
	char *complaint = NULL;

	if (!conninfo || !is_conninfo(conninfo))
		return 0;
	PQconninfoOption *fields = PQconninfoParse(conninfo, &complaint);
	int rc = fields ? 0 : malformed(conninfo, complaint, err);
	PQconninfoFree(fields);
	PQfreemem(complaint);
	return rc;
}

static void put_quoted(struct buf *out, const char *value)
{
	buf_put_char(out, '\'');
	for (; *value; value++) {
		if (*value == '\'' || *value == '\\')
			buf_put_char(out, '\\');
		buf_put_char(out, *value);
	}
	buf_put_char(out, '\'');
}

char *db_redact(const char *conninfo)
{
	struct buf out;

	if (!conninfo || !is_conninfo(conninfo))
		return mem_strdup(conninfo ? conninfo : "");
	PQconninfoOption *fields = PQconninfoParse(conninfo, NULL);
	if (!fields)
		return mem_strdup("(malformed)");
	buf_init(&out, SIZE_MAX);
	for (const PQconninfoOption *field = fields; field->keyword; field++) {
		if (!field->val)
			continue;
		bool is_secret = *field->dispchar == '*';
		buf_printf(&out, "%s%s=", out.len > 0 ? " " : "", field->keyword);
		put_quoted(&out, is_secret ? "***" : field->val);
	}
	PQconninfoFree(fields);
	char *text = mem_strdup(buf_cstr(&out));
	buf_release(&out);
	return text;
}

/* ---- connecting */

PGconn *db_connect_with(db_connect_fn *connect, const struct db_options *options)
{
	/*
	 * What stands before dbname (the connection string, which is expanded in place) is a
	 * default; what stands after it overrides. A peer that vanished is noticed within 25
	 * seconds. TCP_USER_TIMEOUT also bounds the attempt on each of several hosts, which
	 * connect_timeout does not when connecting asynchronously.
	 */
	static const char *const keywords[] = {"fallback_application_name", "connect_timeout",
		"keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count",
		"tcp_user_timeout", "dbname", "target_session_attrs", NULL};
	const char *const values[] = {options->program, "10", "1", "10", "5", "3", "10000",
		options->conninfo ? options->conninfo : "", "read-write", NULL};

	return connect(keywords, values, 1);
}

bool db_is_behind_pooler(const PGconn *conn, const PGresult *result)
{
	return atoi(PQgetvalue(result, 0, 1)) != PQbackendPID(conn);
}

int db_check_schema(const PGresult *result, struct err *err)
{
	int64_t version;

	if (!result) {
		if (err && err->class == ERR_CONFIG)
			err_set(err, ERR_CONFIG,
				"the outbox schema is not installed in this database: run \"outbox "
				"migrate\"");
		return -1;
	}
	if (PQntuples(result) != 1 ||
		units_parse_integer(PQgetvalue(result, 0, 0), 0, INT32_MAX, &version, NULL) < 0)
		return err_set(err, ERR_CONFIG, "the outbox schema does not say its version");
	if (version < OUTBOX_SCHEMA_MIN || version > OUTBOX_SCHEMA_MAX)
		return err_set(err, ERR_CONFIG,
			"the outbox schema has version %d, and outbox %s speaks %d to %d: %s",
			(int)version, OUTBOX_VERSION, OUTBOX_SCHEMA_MIN, OUTBOX_SCHEMA_MAX,
			version < OUTBOX_SCHEMA_MIN ? "run \"outbox migrate\""
										: "install a newer outbox");
	return 0;
}

PGconn *db_connect_blocking(const struct db_options *options, struct err *err)
{
	if (db_check_conninfo(options->conninfo, err) < 0)
		return NULL;
	PGconn *conn = db_connect_with(PQconnectdbParams, options);
	if (PQstatus(conn) != CONNECTION_OK) {
		db_error(err, conn, NULL);
		PQfinish(conn);
		return NULL;
	}
	if (options->skip_schema_check)
		return conn;
	PGresult *result = PQexec(conn, db_schema_query);
	bool success = db_is_success(conn, result, err);
	int rc = db_check_schema(success ? result : NULL, err);
	PQclear(result);
	if (rc == 0)
		return conn;
	PQfinish(conn);
	return NULL;
}
