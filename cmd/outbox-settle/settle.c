#include "settle.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "settled.h"

#define PARK_FAILED_US \
	INT64_C(30000000) /* settled as settle_failed, and that failed too */
#define PARK_LOCKED_US \
	INT64_C(1000000)   /* something holds or hinders this one, and no other */
#define MAX_TIMEOUTS 3 /* of a result with statements of its own, when it is alone */
#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 5000

void settler_init(struct settler *settler, size_t batch_size, size_t max_queue_bytes)
{
	*settler = (struct settler){.limit = batch_size, .max_queue_bytes = max_queue_bytes};
	queue_init(&settler->queue);
	queue_init(&settler->parked);
	batch_init(&settler->batch, batch_size);
}

void settler_release(struct settler *settler)
{
	loop_stop_timer(settler->loop, &settler->retry_timer);
	batch_release(&settler->batch);
	queue_release(&settler->queue);
	queue_release(&settler->parked);
	peers_release(&settler->peers);
}

bool settler_is_idle(const struct settler *settler)
{
	return !settler->running && settler->queue.count == 0 && settler->parked.count == 0;
}

/* A full queue stops reading; the runners then stop claiming. */
static void pace_input(struct settler *settler)
{
	size_t bytes = settler->queue.bytes + settler->parked.bytes;
	bool full = bytes >
		(settler->paused ? settler->max_queue_bytes / 2 : settler->max_queue_bytes);

	if (full != settler->paused) {
		settler->paused = full;
		link_pause(settler->results, full);
	}
}

void settler_take(struct settler *settler, const void *frame, size_t length,
	struct peer *peer)
{
	static struct log_limit limit;
	struct err err = ERR_INIT;
	struct entry *entry = entry_new(frame, length, peer, &err);

	if (entry == NULL) {
		if (log_allow(&limit, 1000) >= 0)
			log_error(LOG_WARNING, "bad_frame", &err);
		return;
	}
	queue_put(&settler->queue, entry);
	pace_input(settler);
}

static void on_retry(void *ctx)
{
	struct settler *settler = ctx;
	int64_t now_us = loop_now_us(settler->loop);
	struct queue later;
	struct entry *entry;

	settler->waiting = false;
	queue_init(&later);
	while ((entry = queue_take(&settler->parked)) != NULL)
		queue_put(entry->not_before_us <= now_us ? &settler->queue : &later, entry);
	settler->parked = later;
	if (later.count == 0)
		settler->parked.tail = &settler->parked.head;
	else
		loop_set_timer(settler->loop, &settler->retry_timer, PARK_LOCKED_US);
	settler_go(settler);
}

static void try_again_after(struct settler *settler, int64_t after_us)
{
	settler->retry_timer.fn = on_retry;
	settler->retry_timer.ctx = settler;
	loop_set_timer(settler->loop, &settler->retry_timer, after_us);
}

static void park(struct settler *settler, struct entry *entry, int64_t for_us)
{
	entry->not_before_us = loop_now_us(settler->loop) + for_us;
	queue_put(&settler->parked, entry);
	if (settler->retry_timer.at_us == 0)
		try_again_after(settler, for_us);
}

/* ---- what was settled */

static const struct settled *find_end(const struct settled *rows, size_t count,
	const struct frame_result *result)
{
	return settled_find(rows, count, result->job_id, result->attempt);
}

/* One acknowledgement a peer, with all of its results in this batch. */
static void acknowledge(struct settler *settler, struct frame_ack_item *items,
	const struct settled *rows, size_t rows_count)
{
	struct batch *batch = &settler->batch;
	struct buf frames;

	buf_init(&frames, FRAME_MAX_BYTES);
	for (struct peer *peer = settler->peers.first; peer != NULL; peer = peer->next) {
		struct frame_ack ack = {.items = items};
		struct err err = ERR_INIT;

		for (size_t i = 0; i < batch->count; i++) {
			const struct frame_result *result = &batch->entries[i]->result;
			const struct settled *end;

			if (batch->entries[i]->peer != peer)
				continue;
			end = find_end(rows, rows_count, result);
			items[ack.count++] = (struct frame_ack_item){
				.job_id = result->job_id,
				.attempt = result->attempt,
				.accepted = end == NULL || end->outcome.s != NULL,
			};
		}
		buf_clear(&frames);
		if (ack.count == 0 || frame_put_ack(&frames, &ack) < 0)
			continue;
		/* a peer that misses it sends its results again when it is back */
		if (link_send(settler->results, &peer->address, &frames, &err) < 0 &&
			err.class == ERR_UNAVAILABLE)
			peer->gone = true;
	}
	buf_release(&frames);
}

/* Results that did not come back were recorded as the successes that they say. */
static void publish_successes(struct settler *settler, const struct settled *rows,
	size_t rows_count)
{
	struct batch *batch = &settler->batch;
	struct settled *ends = mem_alloc(batch->count, sizeof(*ends));
	size_t count = 0;

	for (size_t i = 0; i < batch->count; i++) {
		const struct frame_result *result = &batch->entries[i]->result;

		if (find_end(rows, rows_count, result) == NULL)
			ends[count++] = (struct settled){
				.job_id = result->job_id,
				.attempt = result->attempt,
				.kind = result->kind,
				.outcome = STR("succeeded"),
				.duration_ms = result->duration_ms,
				.worker = result->worker,
				.at_us = result->started_at_us + result->duration_ms * 1000,
			};
	}
	settled_publish(settler->events, ends, count);
	free(ends);
}

static void finish_batch(struct settler *settler, const PGresult *result)
{
	struct batch *batch = &settler->batch;
	size_t count, refused = 0;
	struct settled *rows = settled_rows(result, &count);
	struct frame_ack_item *items = mem_alloc(batch->count, sizeof(*items));

	acknowledge(settler, items, rows, count);
	if (settler->events != NULL)
		publish_successes(settler, rows, count);
	settled_publish(settler->events, rows, count);
	settled_log(rows, count);
	for (size_t i = 0; i < count; i++)
		refused += rows[i].outcome.s == NULL;
	if (refused > 0)
		log_event(LOG_INFO, "stale_results", LOG_INT("count", refused));
	free(items);
	free(rows);
	for (size_t i = 0; i < batch->count; i++)
		entry_free(batch->entries[i]);
	batch->count = 0;
	peers_prune(&settler->peers);
	settler->backoff_ms = 0;
	if (settler->limit < batch->capacity)
		settler->limit *= 2;
}

/* ---- what was refused */

static void log_delay(const struct settler *settler, const struct err *err)
{
	static struct log_limit limit;
	int64_t suppressed = log_allow(&limit, 10000);

	if (suppressed >= 0)
		log_event(err_is_temporary(err) ? LOG_WARNING : LOG_ERROR, "settle_delayed",
			LOG_TEXT("error", err->text), LOG_TEXT("sqlstate", err->sqlstate),
			LOG_INT("queued", settler->queue.count),
			LOG_INT("parked", settler->parked.count), LOG_INT("suppressed", suppressed));
}

static void back_off(struct settler *settler)
{
	settler->backoff_ms = settler->backoff_ms == 0 ? BACKOFF_MIN_MS
		: settler->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS
												   : settler->backoff_ms * 2;
	settler->waiting = true;
	try_again_after(settler, settler->backoff_ms * 1000);
}

/* The only entry of a batch that cannot be settled as it is. */
static void fail_entry(struct settler *settler, struct entry *entry,
	const struct err *err)
{
	bool again = entry->failure != NULL;

	log_event(LOG_ERROR, "settle_failed", LOG_INT("job", entry->result.job_id),
		LOG_STR("kind", entry->result.kind), LOG_INT("attempt", entry->result.attempt),
		LOG_TEXT("error", err->text), LOG_TEXT("sqlstate", err->sqlstate));
	if (again) {
		park(settler, entry, PARK_FAILED_US);
		return;
	}
	entry->failure = mem_strdup(err->text);
	queue_put(&settler->queue, entry);
}

static bool is_state(const struct err *err, const char *sqlstate)
{
	return strcmp(err->sqlstate, sqlstate) == 0;
}

/*
 * Whether one result of a batch may be what all of it waits for: one that somebody has locked
 * (55P03), whose statements run into a timeout of the server, or that meets a conflict again as
 * soon as it is tried again. It must not hold up the others.
 */
static bool may_be_of_one(const struct settler *settler, const struct err *err)
{
	return is_state(err, "55P03") || err_is_timeout(err) ||
		(settler->backoff_ms > 0 && (is_state(err, "40001") || is_state(err, "40P01")));
}

/* After a timeout: results with statements of their own are the first suspects.
 * Returns whether there are any among several. */
static bool set_suspects_apart(struct batch *batch)
{
	bool any = false;

	for (size_t i = 0; batch->count > 1 && i < batch->count; i++) {
		struct entry *entry = batch->entries[i];

		entry->apart = entry->apart || entry_has_effects(entry);
		any = any || entry->apart;
	}
	return any;
}

static void split(struct settler *settler, const struct err *err)
{
	if (!err_is_timeout(err) || !set_suspects_apart(&settler->batch))
		settler->limit = settler->batch.count / 2;
	batch_return(&settler->batch, &settler->queue);
}

/* Its own statements always take too long, which is not to be told from a slow server at once. */
static bool takes_too_long(struct entry *entry, const struct err *err)
{
	if (!err_is_timeout(err) || entry->failure != NULL || !entry_has_effects(entry))
		return false;
	return ++entry->timeouts >= MAX_TIMEOUTS;
}

static void retry_alone(struct settler *settler, struct entry *entry,
	const struct err *err)
{
	settler->batch.count = 0;
	if (err_is_temporary(err) && !takes_too_long(entry, err))
		park(settler, entry, PARK_LOCKED_US);
	else
		fail_entry(settler, entry, err);
}

/* What the server has trouble with, or our rights there: no result is to blame for it. (What
 * its own statements lack the rights for does not come here, but is commit_failed.) */
static bool is_of_all(const struct settler *settler, const struct err *err)
{
	return !may_be_of_one(settler, err) &&
		(err_is_temporary(err) || err->class == ERR_PERM || err->class == ERR_CONFIG);
}

static void retry_batch(struct settler *settler, const struct err *err)
{
	struct batch *batch = &settler->batch;

	for (size_t i = 0; i < batch->count; i++)
		claims_uncount(&settler->claims, batch->entries[i]->result.claim_id,
			batch->entries[i]->result.claim_size);
	if (err->class == ERR_UNAVAILABLE && !err_is_timeout(err)) {
		batch_return(batch, &settler->queue);
		return;
	}
	if (err_is_temporary(err) || is_of_all(settler, err))
		log_delay(settler, err);
	if (is_of_all(settler, err)) {
		batch_return(batch, &settler->queue);
		back_off(settler);
	} else if (batch->count > 1) {
		split(settler, err);
	} else {
		retry_alone(settler, batch->entries[0], err);
	}
}

static void on_settled(void *ctx, PGresult *result, const struct err *err)
{
	struct settler *settler = ctx;

	settler->running = false;
	if (result != NULL)
		finish_batch(settler, result);
	else
		retry_batch(settler, err);
	settler_go(settler);
	pace_input(settler);
	if (settler_is_idle(settler))
		settler->on_idle(settler->ctx);
}

void settler_go(struct settler *settler)
{
	if (settler->running || settler->waiting || settler->queue.count == 0 ||
		!db_is_up(settler->db))
		return;
	batch_fill(&settler->batch, &settler->queue, settler->limit);
	settler->running = true;
	batch_send(&settler->batch, settler->db, &settler->claims, on_settled, settler);
}
