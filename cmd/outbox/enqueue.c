/* outbox enqueue KIND [PAYLOAD]: one job. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "command.h"
#include "options.h"
#include "program.h"
#include "transaction.h"

#define PAYLOAD_MAX (16 * 1024 * 1024) /* the server refuses less than that */

static const char *dedupe_key, *tenant, *subject, *correlation_id, *traceparent, *run_at,
	*metadata;
static int dedupe;
static int64_t delay_ms = -1, priority, max_attempts, least_version;

static const struct opt opts[] = {
	{
		.name = "dedupe-key",
		.type = OPT_STRING,
		.value = &dedupe_key,
		.argument = "KEY",
		.environment = "",
		.help = "make no second job with this key",
	},
	{
		.name = "dedupe",
		.type = OPT_CHOICE,
		.value = &dedupe,
		.choices = "forever|until_done",
		.default_text = "forever",
		.environment = "",
		.help = "how long the key holds",
	},
	{
		.name = "tenant",
		.type = OPT_STRING,
		.value = &tenant,
		.argument = "TENANT",
		.environment = "",
		.help = "whose job it is",
	},
	{
		.name = "subject",
		.type = OPT_STRING,
		.value = &subject,
		.argument = "NAME",
		.environment = "",
		.help = "who asked for it",
	},
	{
		.name = "correlation-id",
		.type = OPT_STRING,
		.value = &correlation_id,
		.argument = "ID",
		.environment = "",
		.help = "what it belongs to",
	},
	{
		.name = "traceparent",
		.type = OPT_STRING,
		.value = &traceparent,
		.argument = "TRACE",
		.environment = "",
		.help = "trace context of the W3C",
	},
	{
		.name = "delay",
		.type = OPT_DURATION,
		.value = &delay_ms,
		.argument = "TIME",
		.environment = "",
		.help = "run it after this time",
	},
	{
		.name = "run-at",
		.type = OPT_STRING,
		.value = &run_at,
		.argument = "INSTANT",
		.environment = "",
		.help = "run it then or later",
	},
	{
		.name = "priority",
		.type = OPT_INTEGER,
		.value = &priority,
		.argument = "N",
		.default_text = "2",
		.environment = "",
		.min = 1,
		.max = 4,
		.help = "1 (first) to 4 (last)",
	},
	{
		.name = "max-attempts",
		.type = OPT_INTEGER,
		.value = &max_attempts,
		.argument = "N",
		.environment = "",
		.min = 1,
		.max = 10000,
		.help = "instead of what its kind says",
	},
	{
		.name = "metadata",
		.type = OPT_STRING,
		.value = &metadata,
		.argument = "JSON",
		.environment = "",
		.help = "a document beside the payload",
	},
	{
		.name = "least-version",
		.type = OPT_INTEGER,
		.value = &least_version,
		.argument = "N",
		.environment = "",
		.min = 1,
		.max = INT32_MAX,
		.help = "only for handlers of this version or a newer one",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox enqueue",
	.summary = "Enqueues a job in a transaction of its own and prints its id.",
	.usage = "[option ...] KIND [PAYLOAD | -]",
	.tables = {opts, output_opts, program_db_opts},
};

static const char sql[] =
	"select id, status, kind, existing_kind, issues from outbox.enqueue($1, $2::text,"
	" dedupe_key => $3, dedupe => $4, tenant_key => $5, subject_key => $6,"
	" correlation_id => $7, traceparent => $8,"
	" delay => $9::bigint * interval '1 millisecond', run_at => $10::timestamptz,"
	" priority => $11, max_attempts => $12, metadata => $13::json, version => $14)";

/* A payload may be nested deeper than a parser likes, but not hold a NUL. */
static int read_stdin(struct buf *payload, struct err *err)
{
	char chunk[65536];
	size_t count;

	while ((count = fread(chunk, 1, sizeof(chunk), stdin)) > 0)
		if (buf_put(payload, chunk, count) < 0)
			return err_set(err, ERR_DATA, "the payload is longer than %d bytes",
				PAYLOAD_MAX);
	if (ferror(stdin))
		return err_set(err, ERR_IO, "could not read stdin");
	if (payload->len > 0 && memchr(payload->data, '\0', payload->len) != NULL)
		return err_set(err, ERR_DATA, "the payload holds a NUL byte");
	return 0;
}

static void add_optional_int(struct params *params, int64_t number, int64_t absent)
{
	if (number == absent)
		params_add(params, NULL);
	else
		params_add_int(params, number);
}

static PGresult *enqueue(const char *kind, const char *payload, struct err *err)
{
	struct params params = {0};
	PGconn *conn = command_connect(err);

	if (conn == NULL)
		return NULL;
	params_add(&params, kind);
	params_add(&params, payload);
	params_add(&params, dedupe_key);
	params_add(&params, dedupe == 0 ? "forever" : "until_done");
	params_add(&params, tenant);
	params_add(&params, subject);
	params_add(&params, correlation_id);
	params_add(&params, traceparent);
	add_optional_int(&params, delay_ms, -1);
	params_add(&params, run_at);
	params_add_int(&params, priority);
	add_optional_int(&params, max_attempts, 0);
	params_add(&params, metadata);
	add_optional_int(&params, least_version, 0);
	PGresult *result = transaction_write(conn, sql, &params, err);
	PQfinish(conn);
	return result;
}

enum { ID, STATUS, KIND, EXISTING_KIND, ISSUES };

/* Prints "ID STATUS". Returns the exit code. */
static int report(const PGresult *result)
{
	const char *status = PQgetvalue(result, 0, STATUS);

	if (output_options.json)
		table_print(result, TABLE_JSON, 0);
	else if (!PQgetisnull(result, 0, ID))
		printf("%s %s\n", PQgetvalue(result, 0, ID), status);
	if (strcmp(status, "invalid_payload") == 0)
		fprintf(stderr, "outbox enqueue: the payload is invalid: %s\n",
			PQgetvalue(result, 0, ISSUES));
	if (strcmp(status, "dedupe_conflict") == 0)
		fprintf(stderr, "outbox enqueue: the key belongs to a job of kind \"%s\"\n",
			PQgetvalue(result, 0, EXISTING_KIND));
	bool accepted = strcmp(status, "created") == 0 || strcmp(status, "exists") == 0;
	return accepted ? 0 : EXIT_REFUSED;
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct buf from_stdin;
	PGresult *result = NULL;
	int first = command_start_operands(&program, argc, argv, 1, 2);
	const char *payload = argc - first == 2 ? argv[first + 1] : "{}";

	buf_init(&from_stdin, PAYLOAD_MAX);
	if (strcmp(payload, "-") != 0)
		result = enqueue(argv[first], payload, &err);
	else if (read_stdin(&from_stdin, &err) == 0)
		result = enqueue(argv[first], buf_cstr(&from_stdin), &err);
	buf_release(&from_stdin);
	if (result == NULL)
		return command_fail(&command_enqueue, &err);
	int code = report(result);
	PQclear(result);
	return code;
}

const struct command command_enqueue = {"enqueue", "enqueue a job", run};
