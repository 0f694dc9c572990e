#include "db_call.h"

#include <stdlib.h>
#include <string.h>

/* ---- a call */

static const struct db_params no_params;

struct db_call *db_call_new(const struct db_statement *statement,
	const struct db_params *params, db_result_fn *fn, void *ctx)
{
	size_t size = 0;

	if (!params)
		params = &no_params;
	int count = params->count;
	for (int i = 0; i < count; i++)
		size += (size_t)params->lengths[i] + 1;
	struct db_call *call = mem_alloc(1, sizeof(*call) + size);
	call->statement = statement;
	call->fn = fn;
	call->ctx = ctx;
	call->count = count;

	char *copy = call->bytes;
	for (int i = 0; i < count; i++) {
		call->lengths[i] = params->lengths[i];
		call->formats[i] = params->formats[i];
		if (!params->values[i])
			continue;
		/* The allocation is zeroed: each copy ends with the NUL that text format needs. */
		memcpy(copy, params->values[i], (size_t)params->lengths[i]);
		call->values[i] = copy;
		copy += params->lengths[i] + 1;
	}
	return call;
}

struct db_call *db_call_new_command(const char *sql, db_result_fn *fn, void *ctx)
{
	struct db_call *call = db_call_new(NULL, &no_params, fn, ctx);

	call->command = mem_strdup(sql);
	return call;
}

void db_call_free(struct db_call *call)
{
	if (call)
		free(call->command);
	free(call);
}

/* ---- the queue */

void db_calls_append(struct db_calls *calls, struct db_call *call)
{
	call->next = NULL;
	if (calls->last)
		calls->last->next = call;
	else
		calls->first = call;
	calls->last = call;
	calls->count++;
}

void db_calls_prepend(struct db_calls *calls, struct db_call *call)
{
	call->next = calls->first;
	calls->first = call;
	if (!calls->last)
		calls->last = call;
	calls->count++;
}

struct db_call *db_calls_take(struct db_calls *calls)
{
	struct db_call *call = calls->first;

	if (!call)
		return NULL;
	calls->first = call->next;
	if (!calls->first)
		calls->last = NULL;
	calls->count--;
	return call;
}

/* ---- prepared statements */

void db_prepared_add(struct db_prepared *prepared, const struct db_statement *statement)
{
	size_t count = prepared->count + 1;

	prepared->items = mem_realloc(prepared->items, count, sizeof(struct db_statement *));
	prepared->items[prepared->count] = statement;
	prepared->count = count;
}

static bool is_prepared(const struct db_prepared *prepared,
	const struct db_statement *statement)
{
	for (size_t i = 0; i < prepared->count; i++)
		if (prepared->items[i] == statement)
			return true;
	return false;
}

void db_prepared_clear(struct db_prepared *prepared)
{
	prepared->count = 0;
}

void db_prepared_release(struct db_prepared *prepared)
{
	free(prepared->items);
	*prepared = (struct db_prepared){0};
}

/* ---- sending */

int db_call_send(const struct db_call *call, PGconn *conn,
	const struct db_prepared *prepared, bool *preparing)
{
	const struct db_statement *statement = call->statement;
	int sent;

	*preparing = statement && prepared && !is_prepared(prepared, statement);
	if (!statement)
		sent = PQsendQuery(conn, call->command);
	else if (*preparing)
		sent = PQsendPrepare(conn, statement->name, statement->sql, statement->nparams,
			statement->types);
	else if (prepared)
		sent = PQsendQueryPrepared(conn, statement->name, call->count, call->values,
			call->lengths, call->formats, 1);
	else
		sent = PQsendQueryParams(conn, statement->sql, call->count, statement->types,
			call->values, call->lengths, call->formats, 1);
	return sent ? 0 : -1;
}
