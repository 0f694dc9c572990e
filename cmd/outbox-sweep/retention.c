#include "retention.h"

#include "frame.h"
#include "json.h"
#include "log.h"
#include "sweep.h"

#define TELL_INTERVAL_US INT64_C(60000000) /* while there is always more */
#define REST_US INT64_C(60000000)
#define LONG_US INT64_C(500000) /* a step that takes longer is too much at once */

/* What outbox.retain counts: states of jobs, and what is not a job. */
static const char *const names[RETENTION_KINDS] = {
	"succeeded",
	"cancelled",
	"dead",
	"attempts",
	"attempts_per_job",
	"dedupe_keys",
};

static void count(struct retention *retention, struct str what, int64_t deleted)
{
	for (size_t i = 0; i < RETENTION_KINDS; i++)
		if (str_equal(what, str_of(names[i])))
			retention->deleted[i] += deleted;
}

static void publish(struct retention *retention, struct str detail)
{
	const struct frame_event event = {
		.at_us = retention->at_us,
		.name = STR("retained"),
		.detail = detail,
	};
	struct buf frame;

	buf_init(&frame, FRAME_MAX_BYTES);
	if (retention->events != NULL && frame_put_event(&frame, &event) == 0)
		link_send(retention->events, NULL, &frame, NULL); /* news, not a record */
	buf_release(&frame);
}

/* One line and one event with the counts since the last ones, if there is anything to tell. */
static void tell(struct retention *retention)
{
	struct log_field fields[RETENTION_KINDS];
	struct json_object object;
	struct buf detail;
	size_t told = 0;

	buf_init(&detail, 1024);
	json_begin(&object, &detail);
	for (size_t i = 0; i < RETENTION_KINDS; i++) {
		if (retention->deleted[i] == 0)
			continue;
		fields[told++] = LOG_INT(names[i], retention->deleted[i]);
		json_int(&object, names[i], retention->deleted[i]);
		retention->deleted[i] = 0;
	}
	if (told > 0) {
		log_write(LOG_INFO, "retained", fields, told);
		if (json_end(&object) == 0)
			publish(retention, (struct str){detail.data, detail.len});
	}
	buf_release(&detail);
	retention->told_us = loop_now_us(retention->loop);
}

static void end(struct retention *retention)
{
	retention->running = false;
	retention->ended_us = loop_now_us(retention->loop);
	retention->on_done(retention->ctx);
}

static void go_on(struct retention *retention, int64_t after_us)
{
	loop_set_timer(retention->loop, &retention->timer, after_us);
}

static void halve(struct retention *retention)
{
	if (retention->rows > 1)
		retention->rows /= 2;
}

static void adapt(struct retention *retention, int64_t took_us)
{
	if (took_us > LONG_US)
		halve(retention);
	else if (took_us < LONG_US / 4)
		retention->rows *= 2;
	if (retention->rows > retention->batch)
		retention->rows = retention->batch;
}

static void on_failed_step(struct retention *retention, int64_t took_us,
	const struct err *err)
{
	sweep_log_failure("retain_failed", err);
	if (!err_is_timeout(err) || retention->rows == 1 || retention->stopping) {
		end(retention);
		return;
	}
	halve(retention);
	go_on(retention, took_us);
}

static void on_step(void *ctx, PGresult *result, const struct err *err)
{
	struct retention *retention = ctx;
	int64_t now_us = loop_now_us(retention->loop);
	int64_t took_us = now_us - retention->step_began_us;
	bool more = false;

	retention->asking = false;
	if (result == NULL) {
		on_failed_step(retention, took_us, err);
		return;
	}
	adapt(retention, took_us);
	for (int row = 0; row < PQntuples(result); row++) {
		count(retention, db_get_str(result, row, 0), db_get_int8(result, row, 1));
		more = more || db_get_bool(result, row, 2);
		retention->at_us = db_get_int8(result, row, 3);
	}
	more = more && !retention->stopping;
	if (!more || now_us - retention->told_us >= TELL_INTERVAL_US)
		tell(retention);
	if (more)
		go_on(retention, took_us);
	else
		end(retention);
}

static void step(void *ctx)
{
	static const struct db_statement statement = {
		.name = "retain",
		.sql = "select what, deleted, more, outbox.clock_us() from outbox.retain($1)",
		.nparams = 1,
	};
	struct retention *retention = ctx;
	struct db_params params;

	db_params_init(&params);
	if (retention->rows == 0)
		retention->rows = retention->batch;
	db_bind_int4(&params, (int32_t)retention->rows);
	retention->asking = true;
	retention->step_began_us = loop_now_us(retention->loop);
	db_query(retention->db, &statement, &params, on_step, retention);
}

void retention_start(struct retention *retention)
{
	int64_t now_us = loop_now_us(retention->loop);

	if (retention->running ||
		(retention->ended_us != 0 && now_us - retention->ended_us < REST_US))
		return;
	retention->running = true;
	retention->timer = (struct loop_timer){.fn = step, .ctx = retention};
	retention->told_us = now_us;
	step(retention);
}

bool retention_stop(struct retention *retention)
{
	retention->stopping = true;
	if (retention->running && !retention->asking) {
		loop_stop_timer(retention->loop, &retention->timer);
		retention->running = false;
		tell(retention);
	}
	return !retention->running;
}
