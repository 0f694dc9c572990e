#include "workers.h"

#include <stdlib.h>

#include "clock.h"
#include "log.h"
#include "settled.h"
#include "sweep.h"

#define CLAIMERS_RETURN_US \
	(DB_BACKOFF_MAX_MS * INT64_C(1000)) /* and take beats again, after an outage */

struct watched { /* a worker, as this process has seen it */
	char *id;
	int64_t beat;
	int64_t still_us; /* how long the beat has been watched standing still */
	bool present;     /* in the look that is being read */
};

void workers_release(struct workers *workers)
{
	for (size_t i = 0; i < workers->watched_count; i++)
		free(workers->watched[i].id);
	free(workers->watched);
}

void workers_db_down(struct workers *workers)
{
	workers->is_cut_off = true;
}

void workers_db_up(struct workers *workers)
{
	workers->looked_at_us = 0;
	workers->count_from_us = workers->is_cut_off ? clock_us() + CLAIMERS_RETURN_US : 0;
	workers->is_cut_off = false;
	for (size_t i = 0; i < workers->watched_count; i++)
		workers->watched[i].still_us = 0;
}

static void query_is_back(struct workers *workers)
{
	if (--workers->running == 0)
		workers->on_done(workers->ctx);
}

static struct watched *find_watched(struct workers *workers, struct str id)
{
	for (size_t i = 0; i < workers->watched_count; i++)
		if (str_equal(str_of(workers->watched[i].id), id))
			return &workers->watched[i];

	size_t count = workers->watched_count + 1;
	workers->watched = mem_realloc(workers->watched, count, sizeof(struct watched));
	workers->watched[count - 1] = (struct watched){.id = mem_strndup(id.s, id.n),
		.beat = -1};
	workers->watched_count = count;
	return &workers->watched[count - 1];
}

/* A worker that is being recovered. */
struct recovery {
	struct workers *workers;
	char *id;
};

/* It may register again under the same id; how long its beat stood still is of its last life. */
static void forget(struct workers *workers, const char *id)
{
	struct watched *watched = find_watched(workers, str_of(id));

	watched->beat = -1;
	watched->still_us = 0;
}

static void on_recovered(void *ctx, PGresult *result, const struct err *err)
{
	struct recovery *recovery = ctx;
	struct workers *workers = recovery->workers;

	if (result == NULL) {
		sweep_log_failure("recover_failed", err);
	} else {
		size_t count;
		struct settled *rows = settled_rows(result, &count);

		settled_publish(workers->events, rows, count);
		settled_log(rows, count);
		if (count > 0)
			log_event(LOG_WARNING, "recovered", LOG_STR("worker", rows[0].worker),
				LOG_INT("jobs", count));
		free(rows);
		forget(workers, recovery->id);
	}
	free(recovery->id);
	free(recovery);
	query_is_back(workers);
}

static void recover(struct workers *workers, struct str worker)
{
	static const struct db_statement statement = {
		.name = "recover",
		.sql = "select " SETTLED_COLUMNS " from outbox.recover($1)",
		.nparams = 1,
	};
	struct recovery *recovery = mem_alloc(1, sizeof(*recovery));
	struct db_params params;

	*recovery = (struct recovery){workers, mem_strndup(worker.s, worker.n)};
	db_params_init(&params);
	db_bind_text(&params, worker);
	workers->running++;
	db_query(workers->db, &statement, &params, on_recovered, recovery);
}

static void forget_absent(struct workers *workers)
{
	size_t kept = 0;

	for (size_t i = 0; i < workers->watched_count; i++) {
		if (workers->watched[i].present)
			workers->watched[kept++] = workers->watched[i];
		else
			free(workers->watched[i].id);
	}
	workers->watched_count = kept;
	for (size_t i = 0; i < kept; i++)
		workers->watched[i].present = false;
}

/* The time since the last look, unless that was so long ago that nobody was watching. */
static int64_t watched_for_us(struct workers *workers)
{
	int64_t now_us = clock_us();
	int64_t most_us = workers->interval_ms * 2000;
	int64_t elapsed_us = workers->looked_at_us == 0 ? 0 : now_us - workers->looked_at_us;

	workers->looked_at_us = now_us;
	if (now_us < workers->count_from_us)
		return 0;
	return elapsed_us < most_us ? elapsed_us : most_us;
}

static void look_at(struct workers *workers, const PGresult *result, int row, int64_t us)
{
	struct str id = db_get_str(result, row, 0);
	struct watched *watched = find_watched(workers, id);
	int64_t beat = db_get_int8(result, row, 1);

	watched->present = true;
	if (PQgetisnull(result, row, 1)) {
		recover(workers, id); /* not registered: dead already */
		return;
	}
	if (watched->beat != beat) {
		watched->beat = beat;
		watched->still_us = 0;
		return;
	}
	watched->still_us += us;
	if (watched->still_us >= db_get_int8(result, row, 2) * 1000) {
		log_event(LOG_WARNING, "worker_dead", LOG_STR("worker", id),
			LOG_INT("still_ms", watched->still_us / 1000));
		recover(workers, id);
	}
}

static void on_workers(void *ctx, PGresult *result, const struct err *err)
{
	struct workers *workers = ctx;

	if (result == NULL) {
		sweep_log_failure("watch_failed", err);
	} else {
		int64_t us = watched_for_us(workers);

		for (int row = 0; row < PQntuples(result); row++)
			look_at(workers, result, row, us);
		forget_absent(workers);
	}
	query_is_back(workers);
}

void workers_look(struct workers *workers)
{
	static const struct db_statement statement = {
		.name = "watch",
		.sql = "select worker, beat, lease_ms from outbox.workers_to_watch()",
	};
	struct db_params none;

	db_params_init(&none);
	workers->running++;
	db_query(workers->db, &statement, &none, on_workers, workers);
}
