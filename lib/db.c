#include "db.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "clock.h"
#include "db_call.h"
#include "db_connect.h"

enum {
	BACKOFF_MIN_MS = 100,
	/* For each step of connecting. More than TCP_USER_TIMEOUT (db_connect_with), after which
	 * libpq goes on to the next host; a host that accepts and stays mute ends the attempt. */
	STEP_TIMEOUT_MS = 15000,
};

enum db_state {
	DB_DOWN,       /* the timer runs until the next attempt */
	DB_CONNECTING, /* PQconnectPoll wants the socket; the timer runs against a mute server */
	DB_CHECKING, /* the schema check is the running call; the timer runs */
	DB_UP,       /* the timer is armed only to drop the connection */
	DB_OVER,     /* after on_fatal, and while being freed */
};

struct db {
	struct loop *loop;
	struct db_options options;
	enum db_state state;
	PGconn *conn; /* NULL while DB_DOWN or DB_OVER */
	int fd;       /* of conn, as the loop knows it; -1: not there */
	struct loop_timer timer;
	int64_t backoff_ms;

	struct db_prepared prepared; /* on this connection */
	struct db_calls waiting;
	struct db_call *running; /* sent, no longer in the queue */
	bool preparing;          /* what was sent of it, if anything, is its PREPARE */
	bool spoilt;             /* nothing more is sent on this connection */
	bool pooled;             /* nothing is prepared on it */
	PGresult *result;        /* of running: its first error, else its last result */

	int holds;  /* callbacks of ours that are running */
	bool freed; /* while they were: the last one frees */
};

/* ---- holding on while callbacks run */

static void hold(struct db *db)
{
	db->holds++;
}

static void release(struct db *db)
{
	if (--db->holds > 0 || !db->freed)
		return;
	db_prepared_release(&db->prepared);
	free(db);
}

/* ---- closing */

static void close_connection(struct db *db, enum db_state state)
{
	loop_stop_timer(db->loop, &db->timer);
	loop_del_fd(db->loop, db->fd);
	db->fd = -1;
	PQclear(db->result);
	db->result = NULL;
	PQfinish(db->conn);
	db->conn = NULL;
	db_prepared_clear(&db->prepared);
	db->spoilt = false;
	db->state = state;
}

static void arm_reconnect(struct db *db)
{
	/* Within [half, whole], so that programs that lost one server do not return as one. */
	int64_t half_ms = db->backoff_ms / 2;
	int64_t wait_ms = half_ms + (int64_t)random_below((uint64_t)half_ms + 1);

	db->backoff_ms *= 2;
	if (db->backoff_ms > DB_BACKOFF_MAX_MS)
		db->backoff_ms = DB_BACKOFF_MAX_MS;
	loop_set_timer(db->loop, &db->timer, wait_ms * 1000);
}

/* The running call leaves before its callback runs, which may start another. */
static void finish_running(struct db *db, PGresult *result, const struct err *err)
{
	struct db_call *call = db->running;

	db->running = NULL;
	call->fn(call->ctx, result, err);
	db_call_free(call);
}

/* The connection is lost or unusable: close it, tell everybody, come again later. */
static void drop(struct db *db, const struct err *why)
{
	struct err err = *why;

	close_connection(db, DB_DOWN);
	arm_reconnect(db);
	if (db->running && db->preparing) {
		db_calls_prepend(&db->waiting, db->running);
		db->running = NULL;
	} else if (db->running) {
		err.class = ERR_UNAVAILABLE;
		finish_running(db, NULL, &err);
	}
	if (!db->freed && db->options.on_down)
		db->options.on_down(db->options.ctx, why);
}

static void give_up(struct db *db, const struct err *why)
{
	close_connection(db, DB_OVER);
	if (db->options.on_fatal)
		db->options.on_fatal(db->options.ctx, why);
}

/* Drops the connection from the loop, where callbacks may be called. */
static void drop_soon(struct db *db)
{
	loop_set_timer(db->loop, &db->timer, 0);
}

/* ---- sending */

static void watch_socket(struct db *db, uint32_t events)
{
	loop_mod_fd(db->loop, db->fd, events);
}

static void flush(struct db *db)
{
	int rc = PQflush(db->conn);
	if (rc < 0)
		drop_soon(db);
	else
		watch_socket(db, rc > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* Sends the running call, or first what prepares it. */
static void send_running(struct db *db)
{
	const struct db_prepared *prepared = db->pooled ? NULL : &db->prepared;

	if (db_call_send(db->running, db->conn, prepared, &db->preparing) == 0) {
		flush(db);
	} else {
		db->preparing = true;
		drop_soon(db);
	}
}

static void run_next(struct db *db)
{
	if (db->state != DB_UP || db->running || db->spoilt)
		return;
	db->running = db_calls_take(&db->waiting);
	if (db->running)
		send_running(db);
}

void db_query(struct db *db, const struct db_statement *statement,
	const struct db_params *params, db_result_fn *fn, void *ctx)
{
	db_calls_append(&db->waiting, db_call_new(statement, params, fn, ctx));
	run_next(db);
}

void db_command(struct db *db, const char *sql, db_result_fn *fn, void *ctx)
{
	db_calls_append(&db->waiting, db_call_new_command(sql, fn, ctx));
	run_next(db);
}

/* ---- receiving */

static void deliver_notifications(struct db *db)
{
	PGnotify *notify;

	while (db->conn && (notify = PQnotifies(db->conn))) {
		if (db->options.on_notify)
			db->options.on_notify(db->options.ctx, notify->relname, notify->extra);
		PQfreemem(notify);
	}
}

/*
 * Whether a new connection helps: the server is going away or read-only, or a prepared
 * statement is gone or has outlived what it was planned for (0A000 after a migration changed a
 * result type), or a COPY was begun, which nobody serves.
 */
static bool is_connection_spoilt(const struct db *db, const struct err *err)
{
	return db->state == DB_CHECKING || err->class == ERR_UNAVAILABLE ||
		strcmp(err->sqlstate, "0A000") == 0 ||
		PQtransactionStatus(db->conn) == PQTRANS_ACTIVE;
}

/*
 * A primary that is made read-only keeps its sessions, and what only reads or LISTENs would
 * stay with it for good while others have moved to its successor. The server reports the
 * setting beside its answers (from PostgreSQL 14 on).
 */
static bool has_become_read_only(const struct db *db, struct err *err)
{
	const char *setting = PQparameterStatus(db->conn, "default_transaction_read_only");

	if (!setting || strcmp(setting, "on") != 0)
		return false;
	err_set(err, ERR_UNAVAILABLE, "the server has become read-only");
	strcpy(err->sqlstate, "25006");
	return true;
}

/* All results of what was sent have arrived. */
static void finish_step(struct db *db)
{
	PGresult *result = db->result;
	struct err err = ERR_INIT;

	db->result = NULL;
	bool success = db_is_success(db->conn, result, &err);
	if (success && db->preparing) {
		db_prepared_add(&db->prepared, db->running->statement);
		send_running(db);
		PQclear(result);
		return;
	}
	if (success && db->state == DB_UP)
		db->backoff_ms = BACKOFF_MIN_MS; /* not before: a server may only refuse work */
	struct err why = err;
	/* Before the callback, which may send the next query. */
	db->spoilt = (!success && is_connection_spoilt(db, &err)) ||
		has_become_read_only(db, &why);
	finish_running(db, success ? result : NULL, success ? NULL : &err);
	PQclear(result);
	if (!db->conn)
		return;
	if (db->spoilt)
		drop(db, &why);
	else
		run_next(db);
}

static void keep_result(struct db *db, PGresult *result)
{
	if (db->result && !db_is_success(db->conn, db->result, NULL)) {
		PQclear(result);
		return;
	}
	PQclear(db->result);
	db->result = result;
}

static bool is_copy(const PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);
	return status == PGRES_COPY_IN || status == PGRES_COPY_OUT;
}

/* The server says why before it hangs up: that is a better reason than the hang-up. */
static void drop_lost(struct db *db)
{
	struct err err = ERR_INIT;

	if (!db->result || db_is_success(db->conn, db->result, &err))
		db_error(&err, db->conn, NULL);
	drop(db, &err);
}

static void receive(struct db *db)
{
	if (!PQconsumeInput(db->conn)) {
		drop_lost(db);
		return;
	}
	flush(db);
	while (db->conn && db->running && !PQisBusy(db->conn)) {
		PGresult *result = PQgetResult(db->conn);
		if (result)
			keep_result(db, result);
		if (!result || is_copy(result)) /* a COPY would give results without end */
			finish_step(db);
	}
	deliver_notifications(db);
	/* libpq closes the socket itself when it loses track: no event would ever tell. */
	if (db->conn && PQstatus(db->conn) == CONNECTION_BAD)
		drop_lost(db);
}

/* ---- connecting */

static void become_up(struct db *db)
{
	loop_stop_timer(db->loop, &db->timer);
	db->state = DB_UP;
	if (db->options.on_up)
		db->options.on_up(db->options.ctx);
}

/* The callback of the schema check. */
static void on_schema(void *ctx, PGresult *result, const struct err *err)
{
	struct db *db = ctx;
	struct err why = err ? *err : ERR_INIT;

	if (db->state != DB_CHECKING) /* the connection was dropped */
		return;
	if (db_check_schema(result, &why) == 0) {
		db->pooled = db->options.pooled || db_is_behind_pooler(db->conn, result);
		become_up(db);
	} else if (why.class == ERR_CONFIG || why.class == ERR_PERM) {
		give_up(db, &why);
	}
}

static void on_connected(struct db *db)
{
	if (PQsetnonblocking(db->conn, 1) < 0) {
		drop_lost(db);
		return;
	}
	if (db->options.skip_schema_check) {
		become_up(db);
		run_next(db);
		return;
	}
	db->state = DB_CHECKING;
	db->running = db_call_new_command(db_schema_query, on_schema, db);
	send_running(db);
}

static void on_socket(void *ctx, int fd, uint32_t events);

/* Returns whether the connection stands. */
static bool watch_new_socket(struct db *db, uint32_t events)
{
	struct err err = ERR_INIT;

	db->fd = PQsocket(db->conn);
	if (loop_add_fd(db->loop, db->fd, events, on_socket, db, &err) == 0)
		return true;
	db->fd = -1;
	drop(db, &err);
	return false;
}

static void step_connecting(struct db *db)
{
	/* libpq may close the socket and open another, which may get the same number. */
	loop_del_fd(db->loop, db->fd);
	db->fd = -1;
	PostgresPollingStatusType status = PQconnectPoll(db->conn);
	if (status == PGRES_POLLING_FAILED) {
		drop_lost(db);
		return;
	}
	uint32_t events = status == PGRES_POLLING_WRITING ? EPOLLOUT : EPOLLIN;
	if (!watch_new_socket(db, events))
		return;
	loop_set_timer(db->loop, &db->timer, STEP_TIMEOUT_MS * INT64_C(1000));
	if (status == PGRES_POLLING_OK)
		on_connected(db);
}

static void on_socket(void *ctx, int fd, uint32_t events)
{
	struct db *db = ctx;
	(void)fd;
	(void)events;

	hold(db);
	if (db->state == DB_CONNECTING)
		step_connecting(db);
	else
		receive(db);
	release(db);
}

static void ignore_notice(void *ctx, const PGresult *notice)
{
	(void)ctx;
	(void)notice;
}

/* PQconnectStart looks names up, which may block for as long as the resolver takes. */
static void start_connecting(struct db *db)
{
	db->state = DB_CONNECTING;
	db->conn = db_connect_with(PQconnectStartParams, &db->options);
	if (PQstatus(db->conn) == CONNECTION_BAD) {
		drop_lost(db);
		return;
	}
	PQsetNoticeReceiver(db->conn, ignore_notice, NULL);
	if (watch_new_socket(db, EPOLLOUT))
		loop_set_timer(db->loop, &db->timer, STEP_TIMEOUT_MS * INT64_C(1000));
}

static void on_timer(void *ctx)
{
	struct db *db = ctx;
	struct err err = ERR_INIT;

	hold(db);
	if (db->state == DB_DOWN) {
		start_connecting(db);
	} else if (PQstatus(db->conn) == CONNECTION_BAD) {
		drop_lost(db);
	} else {
		err_set(&err, ERR_UNAVAILABLE,
			db->state == DB_UP ? "the connection was given up"
							   : "the server did not answer within %d s",
			STEP_TIMEOUT_MS / 1000);
		drop(db, &err);
	}
	release(db);
}

/* ---- life */

struct db *db_new(struct loop *loop, const struct db_options *options, struct err *err)
{
	if (db_check_conninfo(options->conninfo, err) < 0)
		return NULL;
	struct db *db = mem_alloc(1, sizeof(*db));
	db->loop = loop;
	db->options = *options;
	db->pooled = options->pooled;
	db->state = DB_DOWN;
	db->fd = -1;
	db->backoff_ms = BACKOFF_MIN_MS;
	db->timer.fn = on_timer;
	db->timer.ctx = db;
	loop_set_timer(loop, &db->timer, 0);
	return db;
}

void db_free(struct db *db)
{
	if (!db || db->freed)
		return;
	close_connection(db, DB_OVER);
	db_call_free(db->running);
	db->running = NULL;
	for (struct db_call *call; (call = db_calls_take(&db->waiting));)
		db_call_free(call);
	db->freed = true;
	hold(db);
	release(db);
}

bool db_is_pooled(const struct db *db)
{
	return db->pooled;
}

bool db_is_up(const struct db *db)
{
	return db->state == DB_UP;
}

size_t db_queue_length(const struct db *db)
{
	bool ours = db->state == DB_CHECKING; /* the schema check */
	return db->waiting.count + (db->running && !ours ? 1 : 0);
}

void db_reconnect(struct db *db)
{
	if (db->state == DB_UP)
		drop_soon(db);
	else if (db->state == DB_DOWN)
		loop_set_timer(db->loop, &db->timer, 0);
}

PGconn *db_conn(struct db *db)
{
	return db->state == DB_UP ? db->conn : NULL;
}
