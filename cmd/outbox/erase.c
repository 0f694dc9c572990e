/*
 * outbox erase-tenant TENANT: deletes a tenant's jobs, history and keys, a small transaction
 * at a time, until a pass over the whole table finds nothing any more.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "buf.h"
#include "clock.h"
#include "command.h"
#include "options.h"
#include "program.h"
#include "transaction.h"

static const char *by;
static int64_t batch, pause_ms, wait_ms;

static const struct opt opts[] = {
	{
		.name = "by",
		.type = OPT_STRING,
		.value = &by,
		.argument = "NAME",
		.environment = "",
		.help = "who cancels what is in flight; else the user of the session",
	},
	{
		.name = "batch",
		.type = OPT_INTEGER,
		.value = &batch,
		.argument = "N",
		.default_text = "1000",
		.environment = "",
		.min = 1,
		.max = 100000,
		.help = "look at so many jobs in a transaction, whosever they are",
	},
	{
		.name = "pause",
		.type = OPT_DURATION,
		.value = &pause_ms,
		.argument = "TIME",
		.default_text = "0",
		.environment = "",
		.help = "pause between transactions",
	},
	{
		.name = "wait",
		.type = OPT_DURATION,
		.value = &wait_ms,
		.argument = "TIME",
		.default_text = "1m",
		.environment = "",
		.help = "wait so long for jobs in flight to end",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox erase-tenant",
	.summary =
		"Deletes all jobs of a tenant, their history and keys. Nothing brings them back.",
	.usage = "[option ...] TENANT",
	.tables = {opts, output_opts, program_db_opts},
};

struct erasure {
	const char *tenant;
	int64_t erased;    /* in all passes */
	int64_t in_flight; /* left by the last pass */
};

/* One step. *place: where it starts, then where the next one does; NULL at the end. */
static int step(PGconn *conn, struct erasure *erasure, char **place, struct err *err)
{
	struct params params = {0};

	params_add(&params, erasure->tenant);
	params_add_int(&params, batch);
	params_add(&params, *place);
	params_add(&params, by);
	PGresult *result = transaction_write(conn,
		"select * from outbox.erase_tenant($1, $2, $3, $4)", &params, err);
	if (result == NULL)
		return -1;
	erasure->erased += strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	erasure->in_flight += strtoll(PQgetvalue(result, 0, 1), NULL, 10);
	free(*place);
	*place = PQgetisnull(result, 0, 2) ? NULL : mem_strdup(PQgetvalue(result, 0, 2));
	PQclear(result);
	return 0;
}

static int pass(PGconn *conn, struct erasure *erasure, struct err *err)
{
	char *place = mem_strdup("0");
	int rc = 0;

	erasure->in_flight = 0;
	while (rc == 0 && place != NULL) {
		rc = step(conn, erasure, &place, err);
		if (place != NULL)
			command_pause_ms(pause_ms);
	}
	free(place);
	return rc;
}

static int erase(PGconn *conn, struct erasure *erasure, struct err *err)
{
	int64_t give_up_ms = clock_ms() + wait_ms;
	int64_t before;

	do {
		before = erasure->erased;
		if (erasure->in_flight > 0)
			command_pause_ms(500);
		if (pass(conn, erasure, err) < 0)
			return -1;
	} while (
		erasure->erased > before || (erasure->in_flight > 0 && clock_ms() < give_up_ms));
	return 0;
}

static void print_erasure(const struct erasure *erasure)
{
	if (output_options.json)
		printf("{\"erased\":%" PRId64 ",\"in_flight\":%" PRId64 "}\n", erasure->erased,
			erasure->in_flight);
	else
		printf("%" PRId64 " erased\n", erasure->erased);
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	int first = command_start_operands(&program, argc, argv, 1, 1);
	struct erasure erasure = {.tenant = argv[first]};

	PGconn *conn = command_connect(&err);
	if (conn == NULL)
		return command_fail(&command_erase_tenant, &err);
	int rc = erase(conn, &erasure, &err);
	PQfinish(conn);
	if (erasure.erased > 0 || rc == 0)
		print_erasure(&erasure);
	if (rc == 0 && erasure.in_flight > 0)
		rc = err_set(&err, ERR_TEMP,
			"%" PRId64 " jobs are still in flight: they are cancelled, run this again",
			erasure.in_flight);
	return rc < 0 ? command_fail(&command_erase_tenant, &err) : 0;
}

const struct command command_erase_tenant = {"erase-tenant",
	"delete all jobs and history of a tenant", run};
