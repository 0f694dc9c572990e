/*
 * outbox migrate: brings the schema of a database to the version of this program.
 *
 * Tables: each migration once, in order, in a transaction of its own, with a short lock
 * timeout and retries, so that it never queues behind a long transaction with a strong
 * lock. Functions: all of them, in one transaction, when any has changed. The table
 * outbox.migration records the checksum of every file; a migration that was changed after
 * it was applied is refused. Roles: when asked for, and from then on every time, because new
 * functions and tables need their grants.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "command.h"
#include "migrations.h"
#include "program.h"
#include "schema.h"
#include "version.h"

static bool print_only;
static bool with_roles;
static int64_t lock_timeout_ms;
static int64_t wait_ms;

static const struct opt opts[] = {
	{
		.name = "print",
		.type = OPT_FLAG,
		.value = &print_only,
		.environment = "",
		.help = "write the whole schema as plain SQL to stdout and connect to nothing",
	},
	{
		.name = "roles",
		.type = OPT_FLAG,
		.value = &with_roles,
		.environment = "",
		.help = "create the roles outbox_producer, _worker, _operator and _viewer, and "
				"take everything from PUBLIC",
	},
	{
		.name = "lock-timeout",
		.type = OPT_DURATION,
		.value = &lock_timeout_ms,
		.argument = "TIME",
		.default_text = "500ms", /* whoever comes later waits as long */
		.help = "give up a lock after this time, let others pass, and try again",
		.min = 1,
		.max = 60000,
	},
	{
		.name = "wait",
		.type = OPT_DURATION,
		.value = &wait_ms,
		.argument = "TIME",
		.default_text = "2m",
		.help = "try again for this long before failing",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox migrate",
	.summary =
		"Installs the schema \"outbox\" or upgrades it; running it again is harmless.",
	.usage = "[option ...]",
	.tables = {opts, program_db_opts},
};

static const char record[] =
	"insert into outbox.migration (name, checksum) values ($1, $2)"
	" on conflict (name) do update set checksum = excluded.checksum, applied_at = now()"
	" where outbox.migration.checksum <> excluded.checksum";

/* One writer at a time; the number is arbitrary and only ours. */
static const char begin[] =
	"begin; set local lock_timeout = %lld; set local check_function_bodies = off;"
	" set local client_min_messages = warning;"
	" select pg_advisory_xact_lock(7318349394477056)";

static const char record_version[] =
	"insert into outbox.meta (schema_version, installation)"
	" values (%d, substr(md5(gen_random_uuid()::text), 1, 8))"
	" on conflict (one) do update set schema_version = excluded.schema_version;\n";

/* A function file's name may be that of a migration: the record keeps them apart. */
static void record_name(const struct migration *migration, char *name, size_t size)
{
	snprintf(name, size, "%s/%s",
		migration->kind == MIGRATION_TABLES ? "migrations" : "functions",
		migration->name);
}

enum applied { APPLIED_NO, APPLIED_YES, APPLIED_DIFFERENTLY, APPLIED_ERROR = -1 };

static enum applied find_applied(PGconn *conn, const struct migration *migration,
	struct err *err)
{
	char name[256];
	const char *values[] = {name, migration->checksum};

	record_name(migration, name, sizeof(name));
	PGresult *result = command_query(conn,
		"select checksum = $2 from outbox.migration where name = $1", 2, values, err);
	if (result == NULL)
		return APPLIED_ERROR;

	enum applied applied = APPLIED_NO;
	if (PQntuples(result) == 1)
		applied = PQgetvalue(result, 0, 0)[0] == 't' ? APPLIED_YES : APPLIED_DIFFERENTLY;
	PQclear(result);
	return applied;
}

static int apply(PGconn *conn, const struct migration *migration, struct err *err)
{
	char name[256];
	const char *values[] = {name, migration->checksum};

	record_name(migration, name, sizeof(name));
	if (command_execute(conn, migration->sql, err) < 0)
		return err_prefix(err, "\"%s\"", name);
	PGresult *result = command_query(conn, record, 2, values, err);
	if (result == NULL)
		return -1;
	PQclear(result);
	return 0;
}

static int apply_tables(PGconn *conn, const struct migration *migration, struct err *err)
{
	switch (find_applied(conn, migration, err)) {
	case APPLIED_ERROR:
		return -1;
	case APPLIED_YES:
		return 0;
	case APPLIED_DIFFERENTLY:
		return err_set(err, ERR_CONFIG,
			"migration \"%s\" was changed after it had been applied", migration->name);
	case APPLIED_NO:
		break;
	}
	if (apply(conn, migration, err) < 0)
		return -1;
	printf("applied %s\n", migration->name);
	return 0;
}

/* All function files together, when one is new or changed; then the version is that of
 * this program. */
static int apply_functions(PGconn *conn, const struct migration *unused, struct err *err)
{
	char version[sizeof(record_version) + 16];
	int changed = 0;

	(void)unused;
	for (const struct migration *m = migrations; m->kind != MIGRATION_END; m++) {
		if (m->kind != MIGRATION_FUNCTION)
			continue;
		enum applied applied = find_applied(conn, m, err);
		if (applied == APPLIED_ERROR)
			return -1;
		changed += applied != APPLIED_YES;
	}
	for (const struct migration *m = migrations; changed && m->kind != MIGRATION_END; m++)
		if (m->kind == MIGRATION_FUNCTION && apply(conn, m, err) < 0)
			return -1;
	if (changed)
		printf("replaced the functions (%d files changed)\n", changed);
	snprintf(version, sizeof(version), record_version, OUTBOX_SCHEMA_MAX);
	return command_execute(conn, version, err);
}

/* Whether the roles have their grants in this database. */
static int find_roles(PGconn *conn, bool *found, struct err *err)
{
	PGresult *result = command_query(conn,
		"select coalesce(has_schema_privilege(to_regrole('outbox_producer'), 'outbox', "
		"'usage'), false)",
		0, NULL, err);

	if (result == NULL)
		return -1;
	*found = PQgetvalue(result, 0, 0)[0] == 't';
	PQclear(result);
	return 0;
}

static int apply_roles(PGconn *conn, const struct migration *roles, struct err *err)
{
	bool found = false;

	if (!with_roles && find_roles(conn, &found, err) < 0)
		return -1;
	if (!with_roles && !found)
		return 0;
	if (command_execute(conn, roles->sql, err) < 0)
		return err_prefix(err, "roles");
	printf("granted the roles their rights\n");
	return 0;
}

/* One step in a transaction of its own, tried again while a lock is not to be had. */
static int run_step(PGconn *conn,
	int (*step)(PGconn *conn, const struct migration *migration, struct err *err),
	const struct migration *migration, struct err *err)
{
	char start[sizeof(begin) + 32];
	int64_t give_up_ms = clock_ms() + wait_ms;

	snprintf(start, sizeof(start), begin, (long long)lock_timeout_ms);
	for (int64_t delay_ms = 200;; delay_ms = delay_ms < 5000 ? delay_ms * 2 : 5000) {
		*err = ERR_INIT;
		if (command_execute(conn, start, err) == 0 && step(conn, migration, err) == 0 &&
			command_execute(conn, "commit", err) == 0)
			return 0;
		struct err ignored = ERR_INIT;
		command_execute(conn, "rollback", &ignored);
		if (err->class != ERR_TEMP || clock_ms() + delay_ms > give_up_ms)
			return -1;
		fprintf(stderr, "outbox migrate: %s; trying again\n", err->text);
		command_pause_ms(delay_ms);
	}
}

/* Refuses a schema that a newer program has made: it must not be taken back. */
static int prepare(PGconn *conn, const struct migration *unused, struct err *err)
{
	long version;

	(void)unused;
	if (schema_read_version(conn, &version, err) < 0)
		return -1;
	if (version > OUTBOX_SCHEMA_MAX)
		return err_set(err, ERR_CONFIG,
			"the schema has version %ld, this program (%s) makes version %d: "
			"use a newer program",
			version, OUTBOX_VERSION, OUTBOX_SCHEMA_MAX);
	if (command_execute(conn, "create schema if not exists outbox", err) < 0)
		return -1;
	return command_execute(conn, schema_bookkeeping, err);
}

static int run_steps(PGconn *conn, enum migration_kind kind,
	int (*step)(PGconn *conn, const struct migration *migration, struct err *err),
	struct err *err)
{
	for (const struct migration *m = migrations; m->kind != MIGRATION_END; m++)
		if (m->kind == kind && run_step(conn, step, m, err) < 0)
			return -1;
	return 0;
}

static int migrate(PGconn *conn, struct err *err)
{
	if (run_step(conn, prepare, NULL, err) < 0 ||
		run_steps(conn, MIGRATION_TABLES, apply_tables, err) < 0 ||
		run_step(conn, apply_functions, NULL, err) < 0)
		return -1;
	return run_steps(conn, MIGRATION_ROLES, apply_roles, err);
}

static void print_schema(void)
{
	printf("-- The schema \"outbox\", version %d, as plain SQL for an empty database.\n"
		   "begin;\nset local check_function_bodies = off;\n"
		   "create schema if not exists outbox;\n%s",
		OUTBOX_SCHEMA_MAX, schema_bookkeeping);
	for (const struct migration *m = migrations; m->kind != MIGRATION_END; m++) {
		char name[256];

		if (m->kind == MIGRATION_ROLES) {
			if (with_roles)
				printf("\n%s", m->sql);
			continue;
		}
		record_name(m, name, sizeof(name));
		printf("\n-- %s\n%s", name, m->sql);
		printf("insert into outbox.migration (name, checksum) values ('%s', '%s');\n",
			name, m->checksum);
	}
	printf(record_version, OUTBOX_SCHEMA_MAX);
	printf("commit;\n");
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;

	command_start_operands(&program, argc, argv, 0, 0);
	if (print_only) {
		print_schema();
		return 0;
	}
	PGconn *conn = schema_connect(&err);
	if (conn == NULL)
		return command_fail(&command_migrate, &err);
	int rc = migrate(conn, &err);
	PQfinish(conn);
	if (rc < 0)
		return command_fail(&command_migrate, &err);
	printf("the schema has version %d\n", OUTBOX_SCHEMA_MAX);
	return 0;
}

const struct command command_migrate = {"migrate",
	"install or upgrade the schema in a database", run};
