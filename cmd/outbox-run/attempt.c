#include "attempt.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "clock.h"
#include "excerpt.h"
#include "jobdoc.h"
#include "log.h"
#include "outcome.h"

#define COLLECT_US INT64_C(1000000) /* for outputs that others hold open after the exit */
#define READ_BUDGET \
	((size_t)1 << 18) /* bytes taken from one output before others get a turn */
#define LAST_BUDGET \
	((size_t)4 << 20) /* more than a pipe can hold: what the leader has left */

/* ---- input and outputs --------------------------------------------------------------- */

/* Whether nothing more can be written, or everything has been: a handler need not read its
 * job. */
static bool write_some(struct attempt *attempt)
{
	return child_write(&attempt->child, &attempt->in) != 0;
}

static void on_writable(void *ctx, int fd, uint32_t events)
{
	struct attempt *attempt = ctx;

	(void)fd;
	(void)events;
	if (write_some(attempt))
		loop_close_fd(attempt->options->loop, &attempt->child.in);
}

static void attempt_end(struct attempt *attempt)
{
	loop_stop_timer(attempt->options->loop, &attempt->timer);
	attempt->options->on_end(attempt->options->ctx, attempt);
}

static bool outputs_have_ended(const struct attempt *attempt)
{
	return attempt->child.out < 0 && attempt->child.error < 0;
}

static void drain(struct attempt *attempt, struct capture *capture, int *fd,
	size_t budget)
{
	if (*fd >= 0 && capture_read(capture, *fd, budget) != 0)
		loop_close_fd(attempt->options->loop, fd);
}

static void on_output(void *ctx, int fd, uint32_t events)
{
	struct attempt *attempt = ctx;

	(void)events;
	if (fd == attempt->child.out)
		drain(attempt, &attempt->out, &attempt->child.out, READ_BUDGET);
	else if (fd == attempt->child.error)
		drain(attempt, &attempt->error, &attempt->child.error, READ_BUDGET);
	else
		drain(attempt, &attempt->result, &attempt->child.result, READ_BUDGET);
	if (attempt->exited && outputs_have_ended(attempt))
		attempt_end(attempt);
}

/* ---- the exit ------------------------------------------------------------------------ */

/* The handler's own word is complete now; what others may add to it later does not count. */
static void on_exit_of_leader(void *ctx, int fd, uint32_t events)
{
	struct attempt *attempt = ctx;
	struct child *child = &attempt->child;
	struct loop *loop = attempt->options->loop;

	(void)events;
	if (!child_has_exited(child, &attempt->exit_status, &attempt->signal_number))
		return;
	attempt->exited = true;
	attempt->duration_us = clock_us() - attempt->started_us;
	loop_del_fd(loop, fd);
	loop_close_fd(loop, &child->in);
	drain(attempt, &attempt->result, &child->result, LAST_BUDGET);
	loop_close_fd(loop, &child->result);
	drain(attempt, &attempt->out, &child->out, LAST_BUDGET);
	drain(attempt, &attempt->error, &child->error, LAST_BUDGET);
	if (outputs_have_ended(attempt))
		attempt_end(attempt);
	else
		loop_set_timer(loop, &attempt->timer, COLLECT_US);
}

static void on_timer(void *ctx)
{
	struct attempt *attempt = ctx;

	if (attempt->exited) {
		log_event(LOG_INFO, "leftover_killed", LOG_INT("job", attempt->job->id),
			LOG_TEXT("kind", attempt->handler->kind));
		attempt_end(attempt);
	} else if (attempt->stop == ATTEMPT_NOT_STOPPED) {
		attempt_stop(attempt, ATTEMPT_TIMEOUT);
	} else {
		attempt_kill(attempt, attempt->stop);
	}
}

void attempt_stop(struct attempt *attempt, enum attempt_stop why)
{
	if (attempt->exited || attempt->stop != ATTEMPT_NOT_STOPPED)
		return;
	attempt->stop = why;
	child_kill(&attempt->child, SIGTERM);
	loop_set_timer(attempt->options->loop, &attempt->timer,
		attempt->handler->grace_ms * 1000);
}

void attempt_kill(struct attempt *attempt, enum attempt_stop why)
{
	if (attempt->exited)
		return;
	if (attempt->stop == ATTEMPT_NOT_STOPPED)
		attempt->stop = why;
	loop_stop_timer(attempt->options->loop, &attempt->timer);
	child_kill(&attempt->child, SIGKILL);
}

/* ---- the start ----------------------------------------------------------------------- */

static int watch(struct attempt *attempt, struct err *err)
{
	struct loop *loop = attempt->options->loop;
	const struct child *child = &attempt->child;

	if (loop_add_fd(loop, child->pidfd, EPOLLIN, on_exit_of_leader, attempt, err) != 0 ||
		loop_add_fd(loop, child->out, EPOLLIN, on_output, attempt, err) != 0 ||
		loop_add_fd(loop, child->error, EPOLLIN, on_output, attempt, err) != 0 ||
		loop_add_fd(loop, child->result, EPOLLIN, on_output, attempt, err) != 0)
		return -1;
	if (write_some(attempt)) { /* the usual case: it fits into the pipe */
		loop_close_fd(attempt->options->loop, &attempt->child.in);
		return 0;
	}
	return loop_add_fd(loop, child->in, EPOLLOUT, on_writable, attempt, err);
}

static void init_captures(struct attempt *attempt)
{
	const struct attempt_options *options = attempt->options;
	const struct excerpt response = excerpt_of_response(options->max_response_bytes);
	const struct excerpt error = excerpt_of_error(options->max_error_bytes);

	excerpt_init_capture(&attempt->out, &response, attempt->handler);
	excerpt_init_capture(&attempt->error, &error, attempt->handler);
	capture_init(&attempt->result, OUTCOME_MAX_DOCUMENT, 0);
}

static struct attempt *attempt_alloc(const struct attempt_options *options,
	const struct attempt_start *start)
{
	struct attempt *attempt = mem_alloc(1, sizeof(*attempt));

	attempt->options = options;
	attempt->handler = start->handler;
	attempt->job = start->job;
	attempt->slot = start->slot;
	attempt->started_at_us = start->started_at_us;
	attempt->timer.fn = on_timer;
	attempt->timer.ctx = attempt;
	attempt->exit_status = -1;
	buf_init(&attempt->in, JOBDOC_MAX_BYTES);
	init_captures(attempt);
	jobdoc_put(&attempt->in, &start->job->frame, start->deadline_us);
	return attempt;
}

struct attempt *attempt_new(const struct attempt_options *options,
	const struct attempt_start *start, struct err *err)
{
	struct attempt *attempt = attempt_alloc(options, start);
	struct child_spec spec = handler_child_spec(start->handler, start->envp);

	spec.result_pipe = true;
	spec.input = attempt->in.data;
	spec.input_bytes = attempt->in.len;
	attempt->started_us = clock_us();
	if (child_spawn(&spec, &attempt->child, err) != 0) {
		attempt_free(attempt);
		return NULL;
	}
	guard_note(options->guard, attempt->slot, attempt->child.pid);
	buf_consume(&attempt->in, attempt->child.input_taken);
	if (watch(attempt, err) != 0) {
		attempt_free(attempt);
		return NULL;
	}
	loop_set_timer(options->loop, &attempt->timer, start->handler->timeout_ms * 1000);
	return attempt;
}

void attempt_free(struct attempt *attempt)
{
	const struct attempt_options *options = attempt->options;

	loop_stop_timer(options->loop, &attempt->timer);
	child_finish(&attempt->child, options->loop, options->guard, attempt->slot);
	buf_release(&attempt->in);
	capture_release(&attempt->out);
	capture_release(&attempt->error);
	capture_release(&attempt->result);
	free(attempt->cancel_reason);
	free(attempt);
}
