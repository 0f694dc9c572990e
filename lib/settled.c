#include "settled.h"

#include <stdlib.h>

#include "db.h"
#include "frame.h"
#include "log.h"

static int compare(const void *left, const void *right)
{
	const struct settled *a = left, *b = right;

	if (a->job_id != b->job_id)
		return a->job_id < b->job_id ? -1 : 1;
	if (a->attempt != b->attempt)
		return a->attempt < b->attempt ? -1 : 1;
	return (a->outcome.s == NULL) - (b->outcome.s == NULL);
}

struct settled *settled_rows(const PGresult *result, size_t *count)
{
	*count = (size_t)PQntuples(result);
	struct settled *rows = mem_alloc(*count + 1, sizeof(*rows));

	for (int i = 0; i < (int)*count; i++)
		rows[i] = (struct settled){
			.job_id = db_get_int8(result, i, 0),
			.attempt = db_get_int2(result, i, 1),
			.kind = db_get_str(result, i, 2),
			.outcome = db_get_str(result, i, 3),
			.code = db_get_str(result, i, 4),
			.duration_ms = db_get_int4(result, i, 5),
			.worker = db_get_str(result, i, 6),
			.warning = db_get_str(result, i, 7),
			.at_us = db_get_int8(result, i, 8),
		};
	qsort(rows, *count, sizeof(*rows), compare);
	return rows;
}

const struct settled *settled_find(const struct settled *rows, size_t count,
	int64_t job_id, int64_t attempt)
{
	const struct settled key = {.job_id = job_id,
		.attempt = attempt,
		.outcome = STR("any")};
	size_t first = 0, end = count;

	while (first < end) {
		size_t middle = first + (end - first) / 2;

		if (compare(&rows[middle], &key) < 0)
			first = middle + 1;
		else
			end = middle;
	}
	return first < count && rows[first].job_id == job_id && rows[first].attempt == attempt
		? &rows[first]
		: NULL;
}

/* The end of an attempt as an event: its name and the state that the job is in then. */
static const struct transition {
	const char *outcome;
	const char *event;
	const char *to_state;
} transitions[] = {
	{"succeeded", "succeeded", "succeeded"},
	{"failed", "retrying", "retrying"},
	{"dead", "dead", "dead"},
	{"cancelled", "cancelled", "cancelled"},
	{"lost", "lost", "retrying"},
	{"released", "released", "retrying"},
	{NULL, NULL, NULL},
};

static const struct transition *find_transition(struct str outcome)
{
	const struct transition *t = transitions;

	while (t->outcome != NULL && !str_equal(outcome, str_of(t->outcome)))
		t++;
	return t;
}

void settled_publish(struct link *events, const struct settled *rows, size_t count)
{
	struct err err = ERR_INIT;
	struct buf frames;

	if (events == NULL || count == 0)
		return;
	buf_init(&frames, FRAME_MAX_BYTES);
	for (size_t i = 0; i < count; i++) {
		const struct transition *t = find_transition(rows[i].outcome);
		struct frame_event event;

		if (rows[i].outcome.s == NULL)
			continue;
		event = (struct frame_event){
			.at_us = rows[i].at_us,
			.name = str_of(t->event),
			.job_id = rows[i].job_id,
			.attempt = rows[i].attempt,
			.kind = rows[i].kind,
			.from_state = STR("running"),
			.to_state = str_of(t->to_state),
			.code = rows[i].code,
			.duration_ms = rows[i].duration_ms,
			.worker = rows[i].worker,
		};
		/* events are news, not a record: what does not fit is left out */
		frame_put_event(&frames, &event);
	}
	link_send(events, NULL, &frames, &err);
	buf_release(&frames);
}

void settled_log(const struct settled *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct settled *row = &rows[i];

		if (str_equal(row->outcome, STR("dead")))
			log_event(LOG_ERROR, "job_dead", LOG_INT("job", row->job_id),
				LOG_STR("kind", row->kind), LOG_INT("attempt", row->attempt),
				LOG_STR("code", row->code));
		if (row->warning.s != NULL)
			log_event(LOG_WARNING, "job_failing", LOG_INT("job", row->job_id),
				LOG_STR("kind", row->kind), LOG_INT("attempt", row->attempt),
				LOG_STR("code", row->warning));
	}
}
