#include "db.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "clock.h"
#include "db_connect.h"

enum {
	BACKOFF_MIN_MS = 100,
	BACKOFF_MAX_MS = 10000,
	/* For each step of connecting. More than TCP_USER_TIMEOUT (db_connect_with), after which
	 * libpq goes on to the next host; a host that accepts and stays mute ends the attempt. */
	STEP_TIMEOUT_MS = 15000,
};

enum db_state {
	DB_DOWN,       /* the timer runs until the next attempt */
	DB_CONNECTING, /* PQconnectPoll wants the socket; the timer runs against a mute server */
	DB_CHECKING, /* the schema check is the running query; the timer runs */
	DB_UP,       /* the timer is armed only to drop the connection */
	DB_OVER,     /* after on_fatal, and while being freed */
};

/* One call, in one allocation with the copies of its parameters. */
struct query {
	struct query *next;
	const struct db_statement *statement; /* NULL: a command */
	char *command;
	db_result_fn *fn;
	void *ctx;
	int count;
	const char *values[DB_MAX_PARAMS];
	int lengths[DB_MAX_PARAMS];
	int formats[DB_MAX_PARAMS];
	char bytes[];
};

struct db {
	struct loop *loop;
	struct db_options options;
	enum db_state state;
	PGconn *conn; /* NULL while DB_DOWN or DB_OVER */
	int fd;       /* of conn, as the loop knows it; -1: not there */
	struct loop_timer timer;
	int64_t backoff_ms;

	const struct db_statement **prepared; /* on this connection */
	size_t prepared_count;

	struct query *running;      /* sent, no longer in the queue */
	bool preparing;             /* what was sent of it, if anything, is its PREPARE */
	PGresult *result;           /* of running: its first error, else its last result */
	struct query *first, *last; /* waiting */
	size_t waiting;

	int holds;  /* callbacks of ours that are running */
	bool freed; /* while they were: the last one frees */
};

/* ---- the queue */

static void push_last(struct db *db, struct query *query)
{
	query->next = NULL;
	if (db->last)
		db->last->next = query;
	else
		db->first = query;
	db->last = query;
	db->waiting++;
}

static void push_first(struct db *db, struct query *query)
{
	query->next = db->first;
	db->first = query;
	if (!db->last)
		db->last = query;
	db->waiting++;
}

static struct query *pop_first(struct db *db)
{
	struct query *query = db->first;
	if (!query)
		return NULL;
	db->first = query->next;
	if (!db->first)
		db->last = NULL;
	db->waiting--;
	return query;
}

static void free_query(struct query *query)
{
	if (query)
		free(query->command);
	free(query);
}

static const struct db_params no_params;

static struct query *new_query(const struct db_statement *statement,
	const struct db_params *params, db_result_fn *fn, void *ctx)
{
	size_t size = 0;
	int count = params->count;

	for (int i = 0; i < count; i++)
		size += (size_t)params->lengths[i] + 1;
	struct query *query = mem_alloc(1, sizeof(*query) + size);
	query->statement = statement;
	query->fn = fn;
	query->ctx = ctx;
	query->count = count;

	char *copy = query->bytes;
	for (int i = 0; i < count; i++) {
		query->lengths[i] = params->lengths[i];
		query->formats[i] = params->formats[i];
		if (!params->values[i])
			continue;
		/* The allocation is zeroed: each copy ends with the NUL that text format needs. */
		memcpy(copy, params->values[i], (size_t)params->lengths[i]);
		query->values[i] = copy;
		copy += params->lengths[i] + 1;
	}
	return query;
}

static struct query *new_command(const char *sql, db_result_fn *fn, void *ctx)
{
	struct query *query = new_query(NULL, &no_params, fn, ctx);

	query->command = mem_strdup(sql);
	return query;
}

/* ---- holding on while callbacks run */

static void hold(struct db *db)
{
	db->holds++;
}

static void release(struct db *db)
{
	if (--db->holds > 0 || !db->freed)
		return;
	free(db->prepared);
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
	db->prepared_count = 0;
	db->state = state;
}

static void arm_reconnect(struct db *db)
{
	/* Within [half, whole], so that programs that lost one server do not return as one. */
	int64_t half_ms = db->backoff_ms / 2;
	int64_t wait_ms = half_ms + (int64_t)random_below((uint64_t)half_ms + 1);

	db->backoff_ms *= 2;
	if (db->backoff_ms > BACKOFF_MAX_MS)
		db->backoff_ms = BACKOFF_MAX_MS;
	loop_set_timer(db->loop, &db->timer, wait_ms * 1000);
}

/* The running query leaves before its callback runs, which may start another. */
static void finish_running(struct db *db, PGresult *result, const struct err *err)
{
	struct query *query = db->running;

	db->running = NULL;
	query->fn(query->ctx, result, err);
	free_query(query);
}

/* The connection is lost or unusable: close it, tell everybody, come again later. */
static void drop(struct db *db, const struct err *why)
{
	struct err err = *why;

	close_connection(db, DB_DOWN);
	arm_reconnect(db);
	if (db->running && db->preparing) {
		push_first(db, db->running);
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

static bool is_prepared(const struct db *db, const struct db_statement *statement)
{
	for (size_t i = 0; i < db->prepared_count; i++)
		if (db->prepared[i] == statement)
			return true;
	return false;
}

static void note_prepared(struct db *db, const struct db_statement *statement)
{
	size_t count = db->prepared_count + 1;

	db->prepared = mem_realloc(db->prepared, count, sizeof(struct db_statement *));
	db->prepared[db->prepared_count] = statement;
	db->prepared_count = count;
}

/* Sends the running query, or first what prepares it. */
static void send_running(struct db *db)
{
	const struct query *query = db->running;
	const struct db_statement *statement = query->statement;
	int sent;

	db->preparing = statement && !db->options.pooled && !is_prepared(db, statement);
	if (!statement)
		sent = PQsendQuery(db->conn, query->command);
	else if (db->options.pooled)
		sent = PQsendQueryParams(db->conn, statement->sql, query->count, statement->types,
			query->values, query->lengths, query->formats, 1);
	else if (db->preparing)
		sent = PQsendPrepare(db->conn, statement->name, statement->sql,
			statement->nparams, statement->types);
	else
		sent = PQsendQueryPrepared(db->conn, statement->name, query->count, query->values,
			query->lengths, query->formats, 1);
	if (sent) {
		flush(db);
	} else {
		db->preparing = true;
		drop_soon(db);
	}
}

static void run_next(struct db *db)
{
	if (db->state != DB_UP || db->running)
		return;
	db->running = pop_first(db);
	if (db->running)
		send_running(db);
}

void db_query(struct db *db, const struct db_statement *statement,
	const struct db_params *params, db_result_fn *fn, void *ctx)
{
	push_last(db, new_query(statement, params ? params : &no_params, fn, ctx));
	run_next(db);
}

void db_command(struct db *db, const char *sql, db_result_fn *fn, void *ctx)
{
	push_last(db, new_command(sql, fn, ctx));
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
 * statement has outlived what it was planned for (0A000 after a migration changed a result
 * type, 26000 when something deallocated it), or a COPY was begun, which nobody serves.
 */
static bool is_connection_spoilt(const struct db *db, const struct err *err)
{
	return db->state == DB_CHECKING || err->class == ERR_UNAVAILABLE ||
		strcmp(err->sqlstate, "0A000") == 0 || strcmp(err->sqlstate, "26000") == 0 ||
		PQtransactionStatus(db->conn) == PQTRANS_ACTIVE;
}

/* All results of what was sent have arrived. */
static void finish_step(struct db *db)
{
	PGresult *result = db->result;
	struct err err = ERR_INIT;

	db->result = NULL;
	bool success = db_is_success(db->conn, result, &err);
	if (success && db->preparing) {
		note_prepared(db, db->running->statement);
		send_running(db);
		PQclear(result);
		return;
	}
	if (success && db->state == DB_UP)
		db->backoff_ms = BACKOFF_MIN_MS; /* not before: a server may only refuse work */
	finish_running(db, success ? result : NULL, success ? NULL : &err);
	PQclear(result);
	if (!db->conn)
		return;
	if (!success && is_connection_spoilt(db, &err))
		drop(db, &err);
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
	if (db_check_schema(result, &why) == 0)
		become_up(db);
	else if (why.class == ERR_CONFIG || why.class == ERR_PERM)
		give_up(db, &why);
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
	db->running = new_command(db_schema_query, on_schema, db);
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
	free_query(db->running);
	db->running = NULL;
	for (struct query *query; (query = pop_first(db));)
		free_query(query);
	db->freed = true;
	hold(db);
	release(db);
}

bool db_is_up(const struct db *db)
{
	return db->state == DB_UP;
}

size_t db_queue_length(const struct db *db)
{
	bool ours = db->state == DB_CHECKING; /* the schema check */
	return db->waiting + (db->running && !ours ? 1 : 0);
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
