#include "pipe.h"

#include <stdlib.h>
#include <unistd.h>

#include "log.h"
#include "program.h"
#include "statements.h"
#include "version.h"

static void write_out(struct pipe *pipe)
{
	struct err err = ERR_INIT;

	if (pipe->frames.len > 0 && link_send(pipe->out, NULL, &pipe->frames, &err) < 0)
		program_give_up(&err);
	buf_clear(&pipe->frames);
}

static void on_bye(void *ctx, PGresult *result, const struct err *err)
{
	struct pipe *pipe = ctx;

	(void)result;
	if (err != NULL)
		log_error(LOG_WARNING, "bye_failed", err);
	loop_stop(pipe->loop);
}

static void on_claimed(void *ctx, PGresult *result, const struct err *err)
{
	struct pipe *pipe = ctx;

	if (result == NULL) {
		program_give_up(err);
		return;
	}
	log_event(LOG_INFO, "claimed", LOG_INT("jobs", PQntuples(result)));
	if (PQntuples(result) == 0) {
		send_bye(pipe->db, str_of(pipe->options.worker), on_bye, pipe);
		return;
	}
	for (int row = 0; row < PQntuples(result); row++) {
		struct frame_job job = get_job(result, row, STR("poll"));

		job.seq = row + 1;
		frame_put_job(&pipe->frames, &job);
		write_out(pipe);
	}
	pipe->is_done = true;
}

static void claim(struct pipe *pipe, const struct str *kinds, size_t count)
{
	struct claim_part *parts = mem_alloc(count + 1, sizeof(*parts));

	for (size_t i = 0; i < count; i++)
		parts[i] = (struct claim_part){.kind = kinds[i],
			.limit = pipe->options.limit,
			.version = INT32_MAX};
	send_claim(pipe->db, str_of(pipe->options.worker), pipe->options.lane, parts, count,
		pipe->options.limit, "poll", on_claimed, pipe);
	free(parts);
}

static void on_kinds_owed(void *ctx, PGresult *result, const struct err *err)
{
	struct pipe *pipe = ctx;

	if (result == NULL) {
		program_give_up(err);
		return;
	}
	size_t count = (size_t)PQntuples(result);
	struct str *kinds = mem_alloc(count + 1, sizeof(*kinds));

	for (size_t i = 0; i < count; i++)
		kinds[i] = db_get_str(result, (int)i, 0);
	claim(pipe, kinds, count);
	free(kinds);
}

/* Whoever reads the pipe hears first in whose name it runs the jobs, and for how long. */
static void write_hello(struct pipe *pipe, int64_t db_now_us)
{
	struct frame_hello hello = {
		.role = STR("pipe"),
		.id = str_of(pipe->options.worker),
		.lease_ms = pipe->options.lease_ms,
		.db_now_us = db_now_us,
		.pid = getpid(),
		.program_version = STR(OUTBOX_VERSION),
		.lane = str_of(pipe->options.lane),
	};

	frame_put_hello(&pipe->frames, &hello);
	write_out(pipe);
}

static void on_registered(void *ctx, PGresult *result, const struct err *err)
{
	struct pipe *pipe = ctx;
	size_t count = pipe->options.kinds_count;

	if (result == NULL) {
		program_give_up(err);
		return;
	}
	write_hello(pipe, get_hello_answer(result).db_now_us);
	if (count == 0) {
		send_kinds_owed(pipe->db, pipe->options.lane, on_kinds_owed, pipe);
		return;
	}
	struct str *kinds = mem_alloc(count, sizeof(*kinds));

	for (size_t i = 0; i < count; i++)
		kinds[i] = str_of(pipe->options.kinds[i]);
	claim(pipe, kinds, count);
	free(kinds);
}

void pipe_run(struct pipe *pipe)
{
	struct frame_hello hello = {
		.id = str_of(pipe->options.worker),
		.host = STR("pipe"),
		.pid = getpid(),
		.program_version = STR(OUTBOX_VERSION),
	};

	buf_init(&pipe->frames, FRAME_MAX_BYTES);
	send_hello(pipe->db, &hello, pipe->options.lane, pipe->options.lease_ms,
		on_registered, pipe);
}

void pipe_turn(struct pipe *pipe)
{
	if (pipe->is_done && link_backlog(pipe->out) == 0)
		loop_stop(pipe->loop);
}
