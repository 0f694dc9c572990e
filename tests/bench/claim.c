/*
 * claim: takes jobs and settles them as succeeded, with nothing in between: what the SQL
 * functions and PostgreSQL allow. Each connection claims a batch, settles it, and goes on
 * until nothing is due.
 *
 * usage: claim [-b BATCH] [-j CONNECTIONS] [-n BATCHES] KIND
 *
 * Connects as libpq's environment says. -n ends each connection after so many batches.
 * Prints "rate VALUE jobs/s", "claim_p50 VALUE ms" and so on, and the same for "settle".
 */
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "db.h"
#include "die.h"
#include "samples.h"

#define MAX_CONNECTIONS 64
#define MAX_BATCH 5000

enum oid {
	BOOL_OID = 16,
	INT8_OID = 20,
	INT2_OID = 21,
	INT4_OID = 23,
	TEXT_OID = 25,
	BOOL_ARRAY_OID = 1000,
	INT2_ARRAY_OID = 1005,
	INT4_ARRAY_OID = 1007,
	TEXT_ARRAY_OID = 1009,
	INT8_ARRAY_OID = 1016,
};

/* What a plain success says in each parameter of outbox.settle, in order. */
static const struct parameter {
	Oid element, type;
	enum { CLAIM, INDEX, JOB, ATTEMPT, OK, NONE, ZERO, DONE } content;
} parameters[] = {
	{INT8_OID, INT8_ARRAY_OID, CLAIM},
	{INT4_OID, INT4_ARRAY_OID, INDEX},
	{INT8_OID, INT8_ARRAY_OID, JOB},
	{INT2_OID, INT2_ARRAY_OID, ATTEMPT},
	{TEXT_OID, TEXT_ARRAY_OID, OK},
	{TEXT_OID, TEXT_ARRAY_OID, NONE}, /* codes */
	{TEXT_OID, TEXT_ARRAY_OID, NONE}, /* errors */
	{TEXT_OID, TEXT_ARRAY_OID, NONE}, /* responses */
	{BOOL_OID, BOOL_ARRAY_OID, NONE}, /* responses are JSON */
	{INT8_OID, INT8_ARRAY_OID, NONE}, /* afters */
	{TEXT_OID, TEXT_ARRAY_OID, NONE}, /* reasons */
	{INT8_OID, INT8_ARRAY_OID, ZERO}, /* started */
	{INT8_OID, INT8_ARRAY_OID, ZERO}, /* durations */
	{INT4_OID, INT4_ARRAY_OID, NONE}, /* exit statuses */
	{INT4_OID, INT4_ARRAY_OID, NONE}, /* signals */
	{TEXT_OID, TEXT_ARRAY_OID, NONE}, /* commits */
	{TEXT_OID, TEXT_ARRAY_OID, NONE}, /* follow-ups */
	{INT8_OID, INT8_ARRAY_OID, ZERO}, /* dropped bytes */
	{INT8_OID, INT8_ARRAY_OID, DONE},
};
enum { PARAMETERS = sizeof(parameters) / sizeof(parameters[0]) };

static struct {
	const char *kind;
	int32_t batch;
	int connections;
	long batches;
} options = {.batch = 500, .connections = 1, .batches = LONG_MAX};

struct worker {
	pthread_t thread;
	int number;
	struct samples claims, settles;
	int64_t jobs;
};

static const char claim_sql[] =
	"select claim_id, claim_index, job_id, attempt, payload, idempotency_key"
	" from outbox.claim($1::text, 'default', array[$2::text], array[$3::int4], $3::int4)";

static const char settle_sql[] =
	"select job_id, attempt, kind, outcome::text, code, duration_ms, worker, warning"
	" from outbox.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,"
	" $16, $17, $18, $19)";

/* Whether jobs are left, be they in the hands of another connection that has not committed. */
static const char left_sql[] =
	"select exists (select from outbox.ready where kind = $1 and due_at <= now())";

/* The columns of claim_sql that settling needs. */
enum { CLAIM_ID, CLAIM_INDEX, JOB_ID, ATTEMPT_NUMBER };

static PGresult *checked(PGconn *conn, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		die(EX_UNAVAILABLE, "%s", PQerrorMessage(conn));
	return result;
}

static PGconn *connect_and_prepare(void)
{
	PGconn *conn = PQconnectdb("fallback_application_name=bench-claim");
	Oid types[PARAMETERS];

	if (PQstatus(conn) != CONNECTION_OK)
		die(EX_UNAVAILABLE, "%s", PQerrorMessage(conn));
	for (int p = 0; p < PARAMETERS; p++)
		types[p] = parameters[p].type;
	PQclear(checked(conn, PQprepare(conn, "claim", claim_sql, 3, NULL)));
	PQclear(checked(conn, PQprepare(conn, "left", left_sql, 1, NULL)));
	PQclear(checked(conn, PQprepare(conn, "settle", settle_sql, PARAMETERS, types)));
	return conn;
}

static PGresult *timed(PGconn *conn, const char *statement,
	const struct db_params *params, struct samples *durations)
{
	int64_t begin = now_ns();
	PGresult *result = PQexecPrepared(conn, statement, params->count, params->values,
		params->lengths, params->formats, 1);

	samples_add(durations, now_ns() - begin);
	return checked(conn, result);
}

static PGresult *claim(PGconn *conn, struct worker *worker)
{
	struct db_params params;
	char name[32];

	snprintf(name, sizeof(name), "bench-%d", worker->number);
	db_params_init(&params);
	db_bind_text(&params, str_of(name));
	db_bind_text(&params, str_of(options.kind));
	db_bind_int4(&params, options.batch);
	return timed(conn, "claim", &params, &worker->claims);
}

static void put(struct db_array *array, const struct parameter *parameter,
	const PGresult *jobs, int row)
{
	switch (parameter->content) {
	case CLAIM:
		db_array_int8(array, db_get_int8(jobs, row, CLAIM_ID));
		break;
	case INDEX:
		db_array_int4(array, db_get_int4(jobs, row, CLAIM_INDEX));
		break;
	case JOB:
		db_array_int8(array, db_get_int8(jobs, row, JOB_ID));
		break;
	case ATTEMPT:
		db_array_int2(array, db_get_int2(jobs, row, ATTEMPT_NUMBER));
		break;
	case OK:
		db_array_text(array, STR("ok"));
		break;
	case NONE:
		db_array_null(array);
		break;
	case ZERO:
		db_array_int8(array, 0);
		break;
	case DONE: /* all jobs of a claim are settled together: once is enough */
		if (db_get_int4(jobs, row, CLAIM_INDEX) == 1)
			db_array_int8(array, db_get_int8(jobs, row, CLAIM_ID));
		break;
	}
}

static void settle(PGconn *conn, struct worker *worker, const PGresult *jobs)
{
	struct buf bytes[PARAMETERS];
	struct db_params params;

	db_params_init(&params);
	for (int p = 0; p < PARAMETERS; p++) {
		struct db_array array;

		buf_init(&bytes[p], (size_t)1 << 24);
		db_array_begin(&array, &bytes[p], parameters[p].element);
		for (int row = 0; row < PQntuples(jobs); row++)
			put(&array, &parameters[p], jobs, row);
		if (db_array_end(&array) < 0)
			die(EX_SOFTWARE, "a batch does not fit into its buffer");
		db_bind_array(&params, &bytes[p]);
	}
	PGresult *result = timed(conn, "settle", &params, &worker->settles);
	/* what comes back was not plainly recorded */
	if (PQntuples(result) != 0)
		die(EX_SOFTWARE, "of %d results %d were refused", PQntuples(jobs),
			PQntuples(result));
	PQclear(result);
	for (int p = 0; p < PARAMETERS; p++)
		buf_release(&bytes[p]);
}

static bool any_left(PGconn *conn)
{
	PGresult *result = checked(conn,
		PQexecPrepared(conn, "left", 1, &options.kind, NULL, NULL, 1));
	bool left = db_get_bool(result, 0, 0);

	PQclear(result);
	return left;
}

static void *work(void *ctx)
{
	struct worker *worker = ctx;
	PGconn *conn = connect_and_prepare();
	bool left = true;

	for (long batch = 0; left && batch < options.batches; batch++) {
		PGresult *jobs = claim(conn, worker);
		int count = PQntuples(jobs);

		if (count > 0)
			settle(conn, worker, jobs);
		else
			left = any_left(conn);
		PQclear(jobs);
		worker->jobs += count;
	}
	PQfinish(conn);
	return NULL;
}

static void parse(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "b:j:n:")) != -1) {
		if (option == 'b')
			options.batch = atoi(optarg);
		else if (option == 'j')
			options.connections = atoi(optarg);
		else if (option == 'n')
			options.batches = atol(optarg);
		else
			options.batch = 0;
	}
	if (argc - optind != 1 || options.batch < 1 || options.batch > MAX_BATCH ||
		options.connections < 1 || options.connections > MAX_CONNECTIONS ||
		options.batches < 1)
		die(EX_USAGE, "usage: claim [-b BATCH] [-j CONNECTIONS] [-n BATCHES] KIND");
	options.kind = argv[optind];
}

static void merge(struct samples *into, struct samples *from)
{
	for (size_t i = 0; i < from->count; i++)
		samples_add(into, from->ns[i]);
	samples_release(from);
}

int main(int argc, char **argv)
{
	static struct worker workers[MAX_CONNECTIONS];
	struct worker total = {0};

	parse(argc, argv);
	int64_t begin = now_ns();
	for (int i = 0; i < options.connections; i++) {
		workers[i].number = i;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			die(EX_OSERR, "could not start a thread");
	}
	for (int i = 0; i < options.connections; i++) {
		pthread_join(workers[i].thread, NULL);
		merge(&total.claims, &workers[i].claims);
		merge(&total.settles, &workers[i].settles);
		total.jobs += workers[i].jobs;
	}
	printf("rate %.0f jobs/s\n", (double)total.jobs / ((double)(now_ns() - begin) / 1e9));
	samples_print(&total.claims, "claim_");
	samples_print(&total.settles, "settle_");
	samples_release(&total.claims);
	samples_release(&total.settles);
	return 0;
}
