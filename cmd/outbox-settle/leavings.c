#include "leavings.h"

#include <stdlib.h>

#include "log.h"

void leavings_note_worker(struct leavings *leavings, struct str worker)
{
	if (worker.s != NULL && leavings->count < LEAVINGS_MAX_WORKERS)
		leavings->workers[leavings->count++] = mem_strndup(worker.s, worker.n);
}

void leavings_release(struct leavings *leavings)
{
	for (size_t i = 0; i < leavings->count; i++)
		free(leavings->workers[i]);
	leavings->count = 0;
}

static void on_recovered(void *ctx, PGresult *result, const struct err *err)
{
	struct leavings *leavings = ctx;

	if (result == NULL)
		log_error(LOG_WARNING, "recover_failed", err);
	else if (PQntuples(result) > 0)
		log_event(LOG_WARNING, "recovered", LOG_INT("jobs", PQntuples(result)));
	if (--leavings->recovering == 0)
		leavings->on_done(leavings->ctx);
}

void leavings_recover(struct leavings *leavings, struct db *db)
{
	static const struct db_statement statement = {
		.name = "recover",
		.sql = "select job_id from outbox.recover($1)",
		.nparams = 1,
	};

	if (leavings->recovering > 0)
		return;
	if (leavings->count == 0) {
		leavings->on_done(leavings->ctx);
		return;
	}
	leavings->recovering = leavings->count;
	for (size_t i = 0; i < leavings->count; i++) {
		struct db_params params;

		db_params_init(&params);
		db_bind_text(&params, str_of(leavings->workers[i]));
		db_query(db, &statement, &params, on_recovered, leavings);
	}
}
