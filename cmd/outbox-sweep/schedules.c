#include "schedules.h"

#include <string.h>

#include "frame.h"
#include "json.h"
#include "log.h"
#include "program.h"
#include "program_db.h"
#include "sweep.h"

#define LOOK_US INT64_C(60000000) /* without a tick to wait for */
#define RETRY_US INT64_C(1000000) /* after an error, or while another sweeper is at it */

/* What became of a tick, as the database says it. */
static const struct outcome {
	const char *word;
	const char *event;
	enum log_level level;
	const char *to_state; /* of the job, in events */
} outcomes[] = {
	{"fired", "schedule_fired", LOG_DEBUG, "pending"},
	{"exists", "schedule_exists", LOG_DEBUG, NULL},
	{"skipped", "schedule_skipped", LOG_WARNING, NULL},
	{"failed", "schedule_failed", LOG_ERROR, NULL},
	{"retrying", "schedule_retrying", LOG_WARNING, NULL},
	{NULL, "schedule_unknown", LOG_ERROR, NULL}, /* of a newer schema */
};

static const struct outcome *find_outcome(struct str word)
{
	const struct outcome *outcome = outcomes;

	while (outcome->word != NULL && !str_equal(word, str_of(outcome->word)))
		outcome++;
	return outcome;
}

/* ---- telling */

struct tick { /* views into the result */
	struct str name;
	const struct outcome *outcome;
	struct str nominal;
	int64_t job_id;
	struct str kind;
	struct str detail;
	int64_t at_us;
};

static struct tick get_tick(const PGresult *result, int row)
{
	return (struct tick){
		.name = db_get_str(result, row, 0),
		.outcome = find_outcome(db_get_str(result, row, 1)),
		.nominal = db_get_str(result, row, 2),
		.job_id = db_get_int8(result, row, 3),
		.kind = db_get_str(result, row, 4),
		.detail = db_get_str(result, row, 5),
		.at_us = db_get_int8(result, row, 6),
	};
}

static void log_tick(const struct tick *tick)
{
	struct log_field fields[] = {
		LOG_STR("schedule", tick->name),
		LOG_STR("nominal", tick->nominal),
		LOG_STR("detail", tick->detail),
		LOG_INT("job", tick->job_id),
	};
	size_t count = sizeof(fields) / sizeof(fields[0]);

	log_write(tick->outcome->level, tick->outcome->event, fields,
		tick->job_id != 0 ? count : count - 1);
}

static void put_event(struct buf *frames, const struct tick *tick)
{
	struct json_object object;
	struct buf detail;

	buf_init(&detail, FRAME_MAX_BYTES);
	json_begin(&object, &detail);
	json_str(&object, "schedule", tick->name);
	json_str(&object, "nominal", tick->nominal);
	if (tick->detail.s != NULL)
		json_str(&object, "detail", tick->detail);
	if (json_end(&object) == 0) {
		struct frame_event event = {
			.at_us = tick->at_us,
			.name = str_of(tick->outcome->event),
			.job_id = tick->job_id,
			.kind = tick->kind,
			.to_state = str_of(tick->outcome->to_state),
			.detail = {detail.data, detail.len},
		};
		/* events are news, not a record: what does not fit is left out */
		frame_put_event(frames, &event);
	}
	buf_release(&detail);
}

/* Returns whether any schedule has moved on. */
static bool tell(struct schedules *schedules, const PGresult *result)
{
	struct buf frames;
	bool moved = false;

	buf_init(&frames, FRAME_MAX_BYTES);
	for (int row = 0; row < PQntuples(result); row++) {
		struct tick tick = get_tick(result, row);

		log_tick(&tick);
		put_event(&frames, &tick);
		if (strcmp(tick.outcome->event, "schedule_retrying") != 0)
			moved = true;
	}
	if (schedules->events != NULL && frames.len > 0)
		link_send(schedules->events, NULL, &frames, NULL);
	buf_release(&frames);
	return moved;
}

/* ---- a round: when is the next tick? fire; when is the next? … */

static void look(void *ctx);

static void end_round(struct schedules *schedules, int64_t wait_us)
{
	schedules->running = false;
	if (schedules->again && !schedules->stopping) {
		schedules->again = false;
		look(schedules);
		return;
	}
	loop_set_timer(schedules->loop, &schedules->timer, wait_us);
	schedules->on_done(schedules->ctx);
}

static void ask_next(struct schedules *schedules);

static void on_fired(void *ctx, PGresult *result, const struct err *err)
{
	struct schedules *schedules = ctx;

	if (result == NULL) {
		sweep_log_failure("schedules_failed", err);
		end_round(schedules, RETRY_US);
		return;
	}
	schedules->stuck = !tell(schedules, result);
	ask_next(schedules);
}

static void fire(struct schedules *schedules)
{
	static const struct db_statement statement = {
		.name = "fire",
		.sql = "select name, event, outbox.utc_text(nominal), job_id, kind, detail,"
			   " outbox.clock_us() from outbox.schedule_fire()",
	};
	struct db_params none;

	db_params_init(&none);
	db_query(schedules->db, &statement, &none, on_fired, schedules);
}

static int64_t longest_wait_us(const struct schedules *schedules)
{
	return db_is_pooled(schedules->db) ? schedules->interval_ms * 1000 : LOOK_US;
}

static void on_next(void *ctx, PGresult *result, const struct err *err)
{
	struct schedules *schedules = ctx;
	int64_t wait_us = longest_wait_us(schedules);

	if (result == NULL) {
		sweep_log_failure("schedules_failed", err);
		end_round(schedules, RETRY_US);
		return;
	}
	if (!PQgetisnull(result, 0, 0) && db_get_int8(result, 0, 0) < wait_us)
		wait_us = db_get_int8(result, 0, 0);
	if (wait_us > 0 || schedules->stopping)
		end_round(schedules, wait_us);
	else if (schedules->stuck)
		end_round(schedules, RETRY_US);
	else
		fire(schedules);
}

static void ask_next(struct schedules *schedules)
{
	static const struct db_statement statement = {
		.name = "next_due",
		.sql = "select ceil(extract(epoch from outbox.schedules_next_due()"
			   " - outbox.now()) * 1000000)::bigint",
	};
	struct db_params none;

	db_params_init(&none);
	db_query(schedules->db, &statement, &none, on_next, schedules);
}

static void look(void *ctx)
{
	struct schedules *schedules = ctx;

	if (schedules->stopping || !db_is_up(schedules->db))
		return; /* connecting looks, too */
	if (schedules->running) {
		schedules->again = true;
		return;
	}
	schedules->running = true;
	schedules->stuck = false;
	ask_next(schedules);
}

/* ---- the connection */

static void on_listening(void *ctx, PGresult *result, const struct err *err)
{
	(void)ctx;
	if (result == NULL)
		sweep_log_failure("listen_failed", err);
}

static void on_up(void *ctx)
{
	struct schedules *schedules = ctx;

	if (!db_is_pooled(schedules->db))
		db_command(schedules->db, "listen outbox_schedule", on_listening, schedules);
	look(schedules);
}

static void on_notify(void *ctx, const char *channel, const char *payload)
{
	(void)channel;
	(void)payload;
	look(ctx);
}

int schedules_open(struct schedules *schedules, struct err *err)
{
	const struct db_options options = {
		.on_up = on_up,
		.on_notify = on_notify,
		.ctx = schedules,
	};

	schedules->timer = (struct loop_timer){.fn = look, .ctx = schedules};
	schedules->db = program_open_db(schedules->loop, &options, err);
	return schedules->db == NULL ? -1 : 0;
}

void schedules_look(struct schedules *schedules)
{
	look(schedules);
}

void schedules_close(struct schedules *schedules)
{
	db_free(schedules->db);
}

bool schedules_stop(struct schedules *schedules)
{
	schedules->stopping = true;
	return !schedules->running || !db_is_up(schedules->db);
}
