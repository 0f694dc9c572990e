/* The database connection: encoding without a server; with OUTBOX_TEST_DB, its whole life. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "db.h"
#include "turning.h"

enum { BOOLOID = 16, INT8OID = 20, INT2OID = 21, INT4OID = 23, TEXTOID = 25 };
enum { TEXTARRAYOID = 1009, INT8ARRAYOID = 1016 };

/* ---- without a server */

static void test_array_bytes(void **state)
{
	static const char expected[] = "\0\0\0\1"
								   "\0\0\0\1"
								   "\0\0\0\x19"
								   "\0\0\0\3"
								   "\0\0\0\1"
								   "\0\0\0\2"
								   "ab"
								   "\xff\xff\xff\xff"
								   "\0\0\0\0";
	struct db_array array;
	struct buf out;
	(void)state;

	buf_init(&out, SIZE_MAX);
	db_array_begin(&array, &out, TEXTOID);
	db_array_text(&array, STR("ab"));
	db_array_text(&array, STR_NULL);
	db_array_text(&array, STR(""));
	assert_int_equal(db_array_end(&array), 0);
	assert_int_equal(out.len, sizeof(expected) - 1);
	assert_memory_equal(out.data, expected, out.len);
	buf_release(&out);
}

static void test_array_of_numbers(void **state)
{
	static const char expected[] = "\0\0\0\1"
								   "\0\0\0\0"
								   "\0\0\0\x14"
								   "\0\0\0\2"
								   "\0\0\0\1"
								   "\0\0\0\x8"
								   "\x01\x02\x03\x04\x05\x06\x07\x08"
								   "\0\0\0\x8"
								   "\xff\xff\xff\xff\xff\xff\xff\xfe";
	struct db_array array;
	struct buf out;
	(void)state;

	buf_init(&out, SIZE_MAX);
	db_array_begin(&array, &out, INT8OID);
	db_array_int8(&array, 0x0102030405060708);
	db_array_int8(&array, -2);
	assert_int_equal(db_array_end(&array), 0);
	assert_int_equal(out.len, sizeof(expected) - 1);
	assert_memory_equal(out.data, expected, out.len);
	buf_release(&out);
}

static void test_array_that_does_not_fit_leaves_the_buf_alone(void **state)
{
	struct db_array array;
	struct buf out;
	(void)state;

	buf_init(&out, 60);
	assert_int_equal(buf_put(&out, "keep", 4), 0);
	db_array_begin(&array, &out, TEXTOID);
	db_array_text(&array, STR("a text that is longer than what is left"));
	db_array_text(&array, STR("short"));
	assert_int_equal(db_array_end(&array), -1);
	assert_int_equal(out.len, 4);
	buf_release(&out);
}

static void test_redact(void **state)
{
	static const char *const cases[][2] = {
		{NULL, ""},
		{"", ""},
		{"shop", "shop"},
		{"host=db password=hunter2 dbname=shop",
			"password='***' dbname='shop' host='db'"},
		{"host=db password='it''s' user=x=", "(malformed)"},
		{"postgresql://me:hunter2@db:5433/shop?sslpassword=hunter2",
			"user='me' password='***' dbname='shop' host='db' port='5433' "
			"sslpassword='***'"},
		{"user='o\\'neil'", "user='o\\'neil'"},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char *text = db_redact(cases[i][0]);
		assert_string_equal(text, cases[i][1]);
		free(text);
	}
}

static void test_malformed_conninfo_is_a_configuration_error(void **state)
{
	struct loop *loop = loop_new(NULL);
	struct db_options options = {.conninfo = "hosst=x", .program = "test"};
	struct err err = ERR_INIT;
	(void)state;

	assert_null(db_new(loop, &options, &err));
	assert_int_equal(err.class, ERR_CONFIG);
	assert_non_null(strstr(err.text, "hosst"));
	options.conninfo = "host=x password=hunter2 hunter3";
	assert_null(db_new(loop, &options, &err));
	assert_null(strstr(err.text, "hunter"));
	assert_null(db_connect_blocking(&options, &err));
	loop_free(loop);
}

/* ---- with one: a database of its own, with nothing in schema outbox but the version */

static const char *server;  /* OUTBOX_TEST_DB */
static char database[64];   /* "outbox_test_db_PID" */
static char conninfo[1024]; /* to it */
static PGconn *admin;       /* to the server's own database */
static struct loop *loop;
static struct db *db;

/* What the callbacks saw. */
static int ups, downs, fatals, results, notifications;
static struct err last_down, last_fatal;
static char last_notify[128];

struct outcome {
	bool done;
	struct err err;
	int64_t number;
	char text[64];
	int order; /* 1: the first callback of the test */
};

static void note_up(void *ctx)
{
	(void)ctx;
	ups++;
}

static void note_down(void *ctx, const struct err *err)
{
	(void)ctx;
	downs++;
	last_down = *err;
}

static void note_fatal(void *ctx, const struct err *err)
{
	(void)ctx;
	fatals++;
	last_fatal = *err;
}

static void note_notify(void *ctx, const char *channel, const char *payload)
{
	(void)ctx;
	notifications++;
	snprintf(last_notify, sizeof(last_notify), "%s:%s", channel, payload);
}

static void note_result(void *ctx, PGresult *result, const struct err *err)
{
	struct outcome *outcome = ctx;

	assert_false(outcome->done);
	assert_int_equal(result == NULL, err != NULL);
	outcome->done = true;
	outcome->order = ++results;
	if (err) {
		outcome->err = *err;
	} else if (PQntuples(result) > 0 && PQfformat(result, 0) == 1) {
		outcome->number = db_get_int8(result, 0, 0);
	} else if (PQntuples(result) > 0) {
		snprintf(outcome->text, sizeof(outcome->text), "%s", PQgetvalue(result, 0, 0));
	}
}

static bool is_done(void *ctx)
{
	return ((const struct outcome *)ctx)->done;
}

static bool is_positive(void *ctx)
{
	return *(const int *)ctx > 0;
}

static void admin_do(const char *sql)
{
	PGresult *result = PQexec(admin, sql);
	ExecStatusType status = PQresultStatus(result);
	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
		print_message("%s: %s", sql, PQresultErrorMessage(result));
	PQclear(result);
	assert_true(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK);
}

/* In the database of the test. */
static void install(const char *sql)
{
	PGconn *conn = PQconnectdb(conninfo);
	assert_int_equal(PQstatus(conn), CONNECTION_OK);
	PGresult *result = PQexec(conn, sql);
	assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
	PQclear(result);
	PQfinish(conn);
}

static int set_up_database(void **state)
{
	char sql[128];
	(void)state;

	server = getenv("OUTBOX_TEST_DB");
	if (!server)
		return 0;
	admin = PQconnectdb(server);
	if (PQstatus(admin) != CONNECTION_OK)
		return -1;
	snprintf(database, sizeof(database), "outbox_test_db_%d", (int)getpid());
	snprintf(conninfo, sizeof(conninfo), "%s dbname=%s", server, database);
	snprintf(sql, sizeof(sql), "create database %s", database);
	admin_do(sql);
	install(
		"create schema outbox; create function outbox.schema_version() returns integer "
		"language sql as 'select 1'");
	return 0;
}

static int drop_database(void **state)
{
	char sql[128];
	(void)state;

	if (!server)
		return 0;
	snprintf(sql, sizeof(sql), "drop database %s with (force)", database);
	admin_do(sql);
	PQfinish(admin);
	return 0;
}

static int set_up(void **state)
{
	(void)state;
	loop = loop_new(NULL);
	db = NULL;
	ups = downs = fatals = results = notifications = 0;
	return loop ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	db_free(db);
	loop_free(loop);
	return 0;
}

static struct db_options test_options(void)
{
	return (struct db_options){
		.conninfo = conninfo,
		.program = "outbox-test",
		.on_up = note_up,
		.on_down = note_down,
		.on_fatal = note_fatal,
		.on_notify = note_notify,
	};
}

static void open_db(bool pooled)
{
	struct db_options options = test_options();

	if (!server)
		skip();
	options.pooled = pooled;
	db = db_new(loop, &options, NULL);
	assert_non_null(db);
	assert_false(db_is_up(db));
	assert_null(db_conn(db));
}

static const struct db_statement add_statement = {
	.name = "add",
	.sql = "select $1 + $2",
	.nparams = 2,
	.types = (const Oid[]){INT8OID, INT4OID},
};

static void query_sum(struct outcome *outcome, int64_t a, int32_t b)
{
	struct db_params params;

	*outcome = (struct outcome){.done = false};
	db_params_init(&params);
	db_bind_int8(&params, a);
	db_bind_int4(&params, b);
	db_query(db, &add_statement, &params, note_result, outcome);
	memset(&params, 0xff, sizeof(params)); /* they were copied */
}

static void test_queries_run_in_order(void **state)
{
	struct outcome first, second, third = {.done = false};
	(void)state;

	open_db(false);
	query_sum(&first, 40, 2);
	query_sum(&second, INT64_MAX - 1, 1);
	db_command(db, "select 'plain'", note_result, &third);
	assert_int_equal(db_queue_length(db), 3);
	turn_until(loop, is_done, &third);
	assert_int_equal(first.number, 42);
	assert_true(second.number == INT64_MAX);
	assert_string_equal(third.text, "plain");
	assert_int_equal(first.order, 1);
	assert_int_equal(second.order, 2);
	assert_int_equal(third.order, 3);
	assert_int_equal(db_queue_length(db), 0);
	assert_true(db_is_up(db));
	assert_int_equal(ups, 1);
	assert_int_equal(downs, 0);
}

static void test_error_of_the_server_leaves_the_connection_up(void **state)
{
	struct outcome failed, next;
	(void)state;

	open_db(false);
	query_sum(&failed, INT64_MAX, 1);
	query_sum(&next, 1, 1);
	turn_until(loop, is_done, &next);
	assert_int_equal(failed.err.class, ERR_DATA);
	assert_string_equal(failed.err.sqlstate, "22003");
	assert_string_equal(failed.err.text, "bigint out of range");
	assert_int_equal(next.number, 2);
	assert_int_equal(downs, 0);
}

/* A query whose callback goes on with another one, as programs do. */
static struct outcome chained;

static void go_on(void *ctx, PGresult *result, const struct err *err)
{
	note_result(ctx, result, err);
	db_command(db, "select 'next'", note_result, &chained);
}

static void test_after_an_error_the_callback_may_go_on(void **state)
{
	struct outcome failed = {.done = false};
	(void)state;

	open_db(false);
	chained = (struct outcome){.done = false};
	db_command(db, "select 1 / 0", go_on, &failed);
	turn_until(loop, is_done, &chained);
	assert_string_equal(failed.err.sqlstate, "22012");
	assert_string_equal(chained.text, "next");
	turn_for_ms(loop, 20);
	assert_int_equal(downs, 0);
}

static void test_a_callback_sends_nothing_on_a_connection_that_is_given_up(void **state)
{
	struct outcome failed = {.done = false};
	(void)state;

	open_db(false);
	chained = (struct outcome){.done = false};
	db_command(db, "do $$begin raise 'going' using errcode = '57P01'; end$$", go_on,
		&failed);
	turn_until(loop, is_done, &chained);
	assert_int_equal(failed.err.class, ERR_UNAVAILABLE);
	assert_string_equal(chained.text, "next"); /* on the new one */
	assert_int_equal(downs, 1);
	assert_int_equal(ups, 2);
}

static void count_prepared(struct outcome *outcome)
{
	*outcome = (struct outcome){.done = false};
	db_command(db, "select count(*) from pg_prepared_statements", note_result, outcome);
	turn_until(loop, is_done, outcome);
}

static void test_statements_are_prepared_once_unless_pooled(void **state)
{
	struct outcome sum, count;
	(void)state;

	open_db(false);
	for (int i = 0; i < 3; i++) {
		query_sum(&sum, i, i);
		turn_until(loop, is_done, &sum);
		assert_int_equal(sum.number, 2 * i);
	}
	count_prepared(&count);
	assert_string_equal(count.text, "1");
	db_free(db);

	open_db(true);
	query_sum(&sum, 20, 3);
	turn_until(loop, is_done, &sum);
	assert_int_equal(sum.number, 23);
	count_prepared(&count);
	assert_string_equal(count.text, "0");
}

/* ---- values of every type, there and back */

static void check_values(void *ctx, PGresult *result, const struct err *err)
{
	int64_t now_us = clock_wall_us();

	if (err)
		print_message("%s\n", err->text);
	assert_null(err);
	assert_true(db_get_int8(result, 0, 0) == INT64_MIN + 1);
	assert_int_equal(db_get_int4(result, 0, 1), -7);
	assert_int_equal(db_get_int2(result, 0, 2), -2);
	assert_true(db_get_bool(result, 0, 3));
	assert_true(str_equal(db_get_str(result, 0, 4), STR("d'\xc3\xa9j\xc3\xa0")));
	assert_true(str_equal(db_get_str(result, 0, 5), STR("{\"a\": 1}")));
	assert_in_range(db_get_time_us(result, 0, 6), now_us - 60000000, now_us + 60000000);
	assert_true(db_get_time_us(result, 0, 7) == INT64_MAX);
	assert_true(db_get_time_us(result, 0, 8) == INT64_MIN);
	assert_null(db_get_str(result, 0, 9).s);
	assert_int_equal(db_get_int8(result, 0, 9), 0);
	assert_false(db_get_bool(result, 0, 9));
	assert_true(db_get_time_us(result, 0, 9) == INT64_MIN);
	assert_true(
		str_equal(db_get_str(result, 0, 10), STR("2|{1,NULL,3}|{NULL,\"a,b\",\"\"}")));
	assert_int_equal(db_get_int8(result, 0, 11), 0); /* an empty array */
	((struct outcome *)ctx)->done = true;
}

static void test_values_of_every_type(void **state)
{
	static const Oid types[] = {INT8OID, INT4OID, BOOLOID, TEXTOID, 0, TEXTOID,
		INT8ARRAYOID, TEXTARRAYOID, INT8ARRAYOID};
	static const struct db_statement statement = {
		.name = "values",
		.sql = "select $1, $2, (-2)::int2, $3, $4, $5::jsonb::text, now(),"
			   " 'infinity'::timestamptz, '-infinity'::timestamptz, $6,"
			   " concat_ws('|', array_lower($7, 1) + 1, $7, $8), cardinality($9)",
		.nparams = 9,
		.types = types,
	};
	struct outcome outcome = {.done = false};
	struct buf numbers, texts, none;
	struct db_array array;
	struct db_params params;
	(void)state;

	open_db(false);
	buf_init(&numbers, SIZE_MAX);
	buf_init(&texts, SIZE_MAX);
	buf_init(&none, SIZE_MAX);
	db_array_begin(&array, &numbers, INT8OID);
	db_array_int8(&array, 1);
	db_array_null(&array);
	db_array_int8(&array, 3);
	assert_int_equal(db_array_end(&array), 0);
	db_array_begin(&array, &texts, TEXTOID);
	db_array_text(&array, STR_NULL);
	db_array_text(&array, STR("a,b"));
	db_array_text(&array, STR(""));
	assert_int_equal(db_array_end(&array), 0);
	db_array_begin(&array, &none, INT8OID);
	assert_int_equal(db_array_end(&array), 0);

	db_params_init(&params);
	db_bind_int8(&params, INT64_MIN + 1);
	db_bind_int4(&params, -7);
	db_bind_bool(&params, true);
	db_bind_text(&params, STR("d'\xc3\xa9j\xc3\xa0"));
	db_bind_text(&params, STR("{\"a\":1}"));
	db_bind_null(&params);
	db_bind_array(&params, &numbers);
	db_bind_array(&params, &texts);
	db_bind_array(&params, &none);
	db_query(db, &statement, &params, check_values, &outcome);
	buf_release(&numbers);
	buf_release(&texts);
	buf_release(&none);
	turn_until(loop, is_done, &outcome);
}

static const struct db_statement length_statement = {.name = "length",
	.sql = "select length($1)",
	.nparams = 1,
	.types = (const Oid[]){TEXTOID}};

/* More than a socket takes at once, both ways; and a NUL, which must not cut the value. */
static void test_large_and_unstorable_values(void **state)
{
	static const Oid types[] = {INT4OID, TEXTOID};
	static const struct db_statement repeat = {.name = "repeat",
		.sql = "select repeat('x', $1), $2",
		.nparams = 2,
		.types = types};
	const size_t size = (size_t)20 << 20;
	struct outcome length = {.done = false}, large = length, unstorable = length;
	char *text = malloc(size);
	struct db_params params;
	(void)state;

	open_db(false);
	memset(text, 'a', size);
	db_params_init(&params);
	db_bind_text(&params, (struct str){text, size});
	db_query(db, &length_statement, &params, note_result, &length);
	db_params_init(&params);
	db_bind_int4(&params, (int32_t)size);
	db_bind_text(&params, (struct str){text, size});
	db_query(db, &repeat, &params, note_result, &large);
	db_params_init(&params);
	db_bind_text(&params, (struct str){"a\0b", 3});
	db_query(db, &length_statement, &params, note_result, &unstorable);
	free(text);
	turn_until(loop, is_done, &unstorable);
	assert_int_equal(length.number, size);
	assert_int_equal(large.err.class, ERR_NONE);
	assert_string_equal(unstorable.err.sqlstate, "22021");
	assert_int_equal(unstorable.err.class, ERR_DATA);
}

/* ---- losing the connection */

static bool is_sleeping(void *ctx)
{
	(void)ctx;
	char sql[256];
	snprintf(sql, sizeof(sql),
		"select from pg_stat_activity where datname = '%s' and application_name = "
		"'outbox-test' and query like '%%pg_sleep%%' and wait_event = 'PgSleep'",
		database);
	PGresult *result = PQexec(admin, sql);
	bool found = PQntuples(result) > 0;
	PQclear(result);
	return found;
}

static void terminate_backends(void)
{
	char sql[256];
	snprintf(sql, sizeof(sql),
		"select pg_terminate_backend(pid) from pg_stat_activity where datname = '%s'",
		database);
	admin_do(sql);
}

static void allow_connections(bool allowed)
{
	char sql[128];
	snprintf(sql, sizeof(sql), "alter database %s allow_connections %s", database,
		allowed ? "true" : "false");
	admin_do(sql);
}

static void test_running_query_is_told_and_waiting_ones_run_later(void **state)
{
	struct outcome before, running = {.done = false}, waiting;
	(void)state;

	open_db(false);
	query_sum(&before, 1, 2);
	turn_until(loop, is_done, &before);
	db_command(db, "select pg_sleep(60)", note_result, &running);
	query_sum(&waiting, 3, 4);
	turn_until(loop, is_sleeping, NULL);
	terminate_backends();
	turn_until(loop, is_done, &waiting);
	assert_int_equal(running.err.class, ERR_UNAVAILABLE);
	assert_string_equal(running.err.sqlstate, "57P01");
	assert_int_equal(waiting.number, 7); /* prepared anew */
	assert_int_equal(downs, 1);
	assert_int_equal(ups, 2);
}

static void test_idle_connection_comes_back(void **state)
{
	(void)state;
	open_db(false);
	turn_until(loop, is_positive, &ups);
	ups = 0;
	terminate_backends();
	turn_until(loop, is_positive, &ups);
	assert_int_equal(downs, 1);
	assert_int_equal(last_down.class, ERR_UNAVAILABLE);
}

static bool downs_are_three(void *ctx)
{
	(void)ctx;
	return downs >= 3;
}

/* As in a restart: the server refuses for a while, then takes connections again. */
static void test_reconnects_until_the_server_is_back(void **state)
{
	struct outcome waiting;
	(void)state;

	open_db(false);
	turn_until(loop, is_positive, &ups);
	allow_connections(false);
	terminate_backends();
	turn_until(loop, is_positive, &downs);
	assert_false(db_is_up(db));
	query_sum(&waiting, 5, 6);
	turn_until(loop, downs_are_three, NULL);
	assert_int_equal(db_queue_length(db), 1);
	allow_connections(true);
	turn_until(loop, is_done, &waiting);
	assert_int_equal(waiting.number, 11);
	assert_int_equal(ups, 2);
}

static void test_server_that_is_not_there(void **state)
{
	struct db_options options = test_options();
	(void)state;

	/* Needs no server. */
	options.conninfo = "host=/nonexistent dbname=x";
	db = db_new(loop, &options, NULL);
	assert_non_null(db);
	int64_t begun_ms = clock_ms();
	turn_until(loop, downs_are_three, NULL);
	assert_in_range(clock_ms() - begun_ms, 150,
		5000); /* within [50,100] + [100,200] ms */
	assert_int_equal(last_down.class, ERR_UNAVAILABLE);
	assert_null(strchr(last_down.text, '\n'));
	assert_int_equal(ups + fatals, 0);
}

static void test_read_only_server_drops_the_connection(void **state)
{
	struct outcome refused = {.done = false}, next;
	(void)state;

	open_db(false);
	db_command(db, "begin read only; create table refused ()", note_result, &refused);
	query_sum(&next, 1, 1);
	turn_until(loop, is_done, &next);
	assert_string_equal(refused.err.sqlstate, "25006");
	assert_int_equal(refused.err.class, ERR_UNAVAILABLE);
	assert_int_equal(next.number, 2);
	assert_int_equal(downs, 1);
	assert_string_equal(last_down.sqlstate, "25006");
	assert_int_equal(ups, 2);
}

/* What only reads gets its answer, and does not stay with that server. */
static void test_server_that_becomes_read_only_is_left(void **state)
{
	struct outcome read = {.done = false}, next;
	(void)state;

	open_db(false);
	db_command(db, "set default_transaction_read_only = on; select 'read'", note_result,
		&read);
	query_sum(&next, 1, 1);
	turn_until(loop, is_done, &next);
	assert_string_equal(read.text, "read");
	assert_int_equal(next.number, 2);
	assert_int_equal(downs, 1);
	assert_string_equal(last_down.sqlstate, "25006");
	assert_int_equal(ups, 2);
}

static void test_copy_does_not_hang(void **state)
{
	struct outcome copy = {.done = false}, next;
	(void)state;

	open_db(false);
	db_command(db, "copy pg_class to stdout", note_result, &copy);
	query_sum(&next, 1, 1);
	turn_until(loop, is_done, &next);
	assert_int_equal(copy.err.class, ERR_SOFTWARE);
	assert_int_equal(next.number, 2);
}

static void test_reconnect_on_request(void **state)
{
	struct outcome running = {.done = false}, next;
	(void)state;

	open_db(false);
	turn_until(loop, is_positive, &ups);
	db_command(db, "select pg_sleep(60)", note_result, &running);
	turn_until(loop, is_sleeping, NULL);
	db_reconnect(db);
	assert_int_equal(downs, 0); /* callbacks come from the loop only */
	query_sum(&next, 2, 2);
	turn_until(loop, is_done, &next);
	assert_int_equal(running.err.class, ERR_UNAVAILABLE);
	assert_int_equal(next.number, 4);
	assert_int_equal(downs, 1);
}

/* A migration that changes a result type spoils prepared statements: a new connection helps. */
static void test_changed_result_type_heals(void **state)
{
	static const struct db_statement statement = {.name = "pick",
		.sql = "select * from changing"};
	struct outcome first = {.done = false}, second = first, third = first;
	(void)state;

	open_db(false);
	install("create table changing (a int4); insert into changing values (7)");
	db_query(db, &statement, NULL, note_result, &first);
	turn_until(loop, is_done, &first);
	install("alter table changing alter column a type int8");
	db_query(db, &statement, NULL, note_result, &second);
	db_query(db, &statement, NULL, note_result, &third);
	turn_until(loop, is_done, &third);
	assert_string_equal(second.err.sqlstate, "0A000");
	assert_int_equal(third.number, 7);
	install("drop table changing");
}

/* ---- notifications, schema, freeing */

static void test_notifications_arrive(void **state)
{
	struct outcome listening = {.done = false}, notified = {.done = false};
	(void)state;

	open_db(false);
	db_command(db, "listen \"Channel\"", note_result, &listening);
	turn_until(loop, is_done, &listening);
	install("notify \"Channel\", 'from another'");
	turn_until(loop, is_positive, &notifications);
	assert_string_equal(last_notify, "Channel:from another");
	db_command(db, "notify \"Channel\", 'own'", note_result, &notified);
	turn_until(loop, is_done, &notified);
	turn_for_ms(loop, 20);
	assert_string_equal(last_notify, "Channel:own");
	assert_int_equal(notifications, 2);
}

static void expect_fatal(const char *definition, enum err_class class, const char *text)
{
	struct db_options options = test_options();
	struct err err = ERR_INIT;

	install(definition);
	fatals = 0;
	db = db_new(loop, &options, NULL);
	turn_until(loop, is_positive, &fatals);
	assert_int_equal(last_fatal.class, class);
	assert_non_null(strstr(last_fatal.text, text));
	turn_for_ms(loop, 300); /* and no more attempts */
	assert_int_equal(fatals, 1);
	assert_int_equal(ups, 0);
	assert_false(db_is_up(db));
	db_free(db);
	db = NULL;
	assert_null(db_connect_blocking(&options, &err));
	assert_int_equal(err.class, class);
	assert_non_null(strstr(err.text, text));
}

static void test_schema_that_we_do_not_speak_is_fatal(void **state)
{
	(void)state;
	if (!server)
		skip();
	expect_fatal("create or replace function outbox.schema_version() returns integer "
				 "language sql as 'select 4711'",
		ERR_CONFIG, "version 4711");
	expect_fatal("drop function outbox.schema_version()", ERR_CONFIG, "outbox migrate");
	expect_fatal("drop schema outbox", ERR_CONFIG, "outbox migrate");
	install(
		"create schema outbox; create function outbox.schema_version() returns integer "
		"language sql as 'select 1'");
}

static void test_schema_check_can_be_skipped(void **state)
{
	struct db_options options = test_options();
	PGconn *conn;
	(void)state;

	if (!server)
		skip();
	install("alter function outbox.schema_version() rename to hidden");
	options.skip_schema_check = true;
	db = db_new(loop, &options, NULL);
	turn_until(loop, is_positive, &ups);
	conn = db_connect_blocking(&options, NULL);
	assert_non_null(conn);
	assert_string_equal(PQparameterStatus(conn, "application_name"), "outbox-test");
	PQfinish(conn);
	install("alter function outbox.hidden() rename to schema_version");
}

static void free_db(void *ctx, PGresult *result, const struct err *err)
{
	note_result(ctx, result, err);
	db_free(db);
	db = NULL;
}

static void test_freed_by_its_own_callback(void **state)
{
	struct outcome outcome = {.done = false}, never;
	(void)state;

	open_db(false);
	db_command(db, "select 1; select 2", free_db, &outcome);
	query_sum(&never, 1, 1);
	turn_until(loop, is_done, &outcome);
	turn_for_ms(loop, 20);
	assert_null(db);
	assert_string_equal(outcome.text, "2");
	assert_false(never.done);
}

#define db_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_array_bytes),
		cmocka_unit_test(test_array_of_numbers),
		cmocka_unit_test(test_array_that_does_not_fit_leaves_the_buf_alone),
		cmocka_unit_test(test_redact),
		cmocka_unit_test(test_malformed_conninfo_is_a_configuration_error),
		db_test(test_server_that_is_not_there),
		db_test(test_queries_run_in_order),
		db_test(test_error_of_the_server_leaves_the_connection_up),
		db_test(test_after_an_error_the_callback_may_go_on),
		db_test(test_a_callback_sends_nothing_on_a_connection_that_is_given_up),
		db_test(test_statements_are_prepared_once_unless_pooled),
		db_test(test_values_of_every_type),
		db_test(test_large_and_unstorable_values),
		db_test(test_running_query_is_told_and_waiting_ones_run_later),
		db_test(test_idle_connection_comes_back),
		db_test(test_reconnects_until_the_server_is_back),
		db_test(test_read_only_server_drops_the_connection),
		db_test(test_server_that_becomes_read_only_is_left),
		db_test(test_copy_does_not_hang),
		db_test(test_reconnect_on_request),
		db_test(test_changed_result_type_heals),
		db_test(test_notifications_arrive),
		db_test(test_schema_that_we_do_not_speak_is_fatal),
		db_test(test_schema_check_can_be_skipped),
		db_test(test_freed_by_its_own_callback),
	};
	return cmocka_run_group_tests(tests, set_up_database, drop_database);
}
