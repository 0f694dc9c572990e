#include "resident.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "clock.h"
#include "excerpt.h"
#include "jobdoc.h"

#define BACKLOG_BYTES ((size_t)1 << 18) /* not written: it is given no more */
#define CHUNKS_A_TURN 4   /* read from one output before others get a turn */
#define CHUNKS_AT_EXIT 64 /* more than a pipe can hold */
#define STDERR_LINE_BYTES ((size_t)1024) /* of a line, in the log */
#define LOG_INTERVAL_MS 1000

static void close_stdin(struct resident *resident)
{
	loop_close_fd(resident->options->loop, &resident->child.in);
	resident->is_watched = false;
}

static void set_timer_ms(struct resident *resident, int64_t after_ms)
{
	loop_set_timer(resident->options->loop, &resident->timer, after_ms * 1000);
}

/* ---- the end: by its own choice, by TERM, by KILL ------------------------------------ */

static void give_reason(struct resident *resident, enum resident_stop why)
{
	if (resident->stop == RESIDENT_NOT_STOPPED || resident->stop == RESIDENT_DISMISSED)
		resident->stop = why;
}

/* It is expected to exit by itself. */
static void expect_exit(struct resident *resident, enum resident_stop why)
{
	if (resident->step != RESIDENT_RUNNING)
		return;
	give_reason(resident, why);
	resident->step = RESIDENT_LEAVING;
	set_timer_ms(resident, resident->handler->grace_ms);
}

void resident_dismiss(struct resident *resident)
{
	if (resident->step != RESIDENT_RUNNING)
		return;
	close_stdin(resident);
	expect_exit(resident, RESIDENT_DISMISSED);
}

void resident_stop(struct resident *resident, enum resident_stop why)
{
	if (resident->step != RESIDENT_RUNNING && resident->step != RESIDENT_LEAVING)
		return;
	give_reason(resident, why);
	resident->step = RESIDENT_TERMED;
	if (why == RESIDENT_INTERRUPTED)
		close_stdin(resident);
	child_kill(&resident->child, SIGTERM);
	set_timer_ms(resident, resident->handler->grace_ms);
}

void resident_kill(struct resident *resident, enum resident_stop why)
{
	if (resident->step == RESIDENT_OFF || resident->step == RESIDENT_KILLED)
		return;
	give_reason(resident, why);
	resident->step = RESIDENT_KILLED;
	loop_stop_timer(resident->options->loop, &resident->timer);
	child_kill(&resident->child, SIGKILL);
}

static int64_t deadline_us(const struct resident *resident)
{
	return resident->oldest_us + resident->handler->timeout_ms * 1000;
}

/* The timer is not moved with every answer, only looked at when it goes off. */
static void check_deadline(struct resident *resident)
{
	int64_t left_us = deadline_us(resident) - clock_us();

	if (resident->given.first == NULL)
		return;
	if (left_us > 0) {
		loop_set_timer(resident->options->loop, &resident->timer, left_us);
		return;
	}
	resident->late = resident->given.first;
	resident_stop(resident, RESIDENT_TIMEOUT);
}

static void on_timer(void *ctx)
{
	struct resident *resident = ctx;

	if (resident->step == RESIDENT_RUNNING)
		check_deadline(resident);
	else if (resident->step == RESIDENT_LEAVING)
		resident_stop(resident, resident->stop);
	else
		resident_kill(resident, resident->stop);
}

/* ---- what it says -------------------------------------------------------------------- */

static void log_ignored(struct resident *resident, const struct answer *answer,
	const struct err *err)
{
	int64_t suppressed = log_allow(&resident->ignored_limit, LOG_INTERVAL_MS);

	if (suppressed < 0)
		return;
	log_event(LOG_WARNING, "answer_ignored", LOG_TEXT("kind", resident->handler->kind),
		LOG_INT("handler_pid", resident->pid), LOG_INT("job", answer->id),
		LOG_TEXT("error", err->class == ERR_NONE ? "it has no such job" : err->text),
		LOG_INT("suppressed", suppressed));
}

/* Answers in order find their job at the front. */
static struct job *find_given(const struct resident *resident,
	const struct answer *answer)
{
	struct job *job = resident->given.first;

	if (answer->id == 0 || job == NULL)
		return NULL;
	if (job->id != answer->id)
		job = jobs_find_given(resident->options->jobs, answer->id, resident);
	if (job != NULL && answer->attempt != 0 && answer->attempt != job->attempt)
		return NULL;
	return job;
}

static void take_back(struct resident *resident, struct job *job)
{
	if (job == resident->given.first)
		resident->oldest_us = resident->read_us;
	job_list_remove(&resident->given, job);
	job->resident = NULL;
}

static void take_answer(struct resident *resident, struct str line)
{
	struct answer answer;
	struct err err = ERR_INIT;

	answer_parse(&answer, line, &err);
	struct job *job = find_given(resident, &answer);
	if (job != NULL && job == resident->late) {
		err_set(&err, ERR_DATA, "it comes too late");
		job = NULL;
	}
	if (job != NULL) {
		resident->has_answered = true;
		take_back(resident, job);
		resident->on_answer(resident, job, &answer, &err);
	} else if (err.class == ERR_NONE && answer.wants_cancels) {
		resident->wants_cancels = true;
	} else {
		log_ignored(resident, &answer, &err);
	}
	answer_release(&answer);
}

static void take_answers(struct resident *resident)
{
	struct str line;

	/* One that is too long is no JSON, but may tell whose it is. */
	while (lines_next(&resident->out, &line) != LINES_NONE)
		take_answer(resident, line);
}

static void log_stderr(struct resident *resident, struct str line)
{
	const struct excerpt excerpt = excerpt_of_message(STDERR_LINE_BYTES);
	int64_t suppressed = log_allow(&resident->stderr_limit, LOG_INTERVAL_MS);
	struct buf text;

	if (suppressed < 0)
		return;
	buf_init(&text, STDERR_LINE_BYTES);
	excerpt_put_text(&text, line, &excerpt, resident->handler);
	log_event(LOG_INFO, "handler_stderr", LOG_TEXT("kind", resident->handler->kind),
		LOG_INT("handler_pid", resident->pid),
		LOG_STR("text", ((struct str){text.data, text.len})),
		LOG_INT("suppressed", suppressed));
	buf_release(&text);
}

/* Keeps the end for the jobs that a crash ends, and lets the log have a line a second. */
static void take_errors(struct resident *resident)
{
	struct str line;

	while (lines_next(&resident->error_lines, &line) != LINES_NONE) {
		capture_add(&resident->error, line.s, line.n);
		capture_add(&resident->error, "\n", 1);
		log_stderr(resident, line);
	}
}

static void read_output(struct resident *resident, struct lines *lines, int *fd,
	void take(struct resident *resident), int chunks)
{
	int status = 1;

	for (; *fd >= 0 && status > 0 && chunks > 0; chunks--) {
		status = lines_read(lines, *fd);
		resident->read_us = clock_us();
		take(resident);
	}
	if (status < 0)
		loop_close_fd(resident->options->loop, fd);
}

static void on_output(void *ctx, int fd, uint32_t events)
{
	struct resident *resident = ctx;
	struct child *child = &resident->child;

	(void)events;
	if (fd == child->error) {
		read_output(resident, &resident->error_lines, &child->error, take_errors,
			CHUNKS_A_TURN);
		return;
	}
	read_output(resident, &resident->out, &child->out, take_answers, CHUNKS_A_TURN);
	if (child->out < 0)
		expect_exit(resident, RESIDENT_MUTE);
}

/* ---- what it is told ----------------------------------------------------------------- */

bool resident_is_open(const struct resident *resident)
{
	return resident->step == RESIDENT_RUNNING && resident->in.len < BACKLOG_BYTES;
}

void resident_put(struct resident *resident, struct job *job, int64_t now_us,
	int64_t document_deadline_us)
{
	size_t before = resident->in.len;

	jobdoc_put_line(&resident->in, &job->frame, document_deadline_us);
	job->line_start = resident->put_bytes;
	resident->put_bytes += (int64_t)(resident->in.len - before);
	job->resident = resident;
	job->started_us = now_us;
	job_list_append(&resident->given, job);
	if (resident->given.first == job)
		resident->oldest_us = now_us;
	if (resident->timer.at_us == 0)
		set_timer_ms(resident, resident->handler->timeout_ms);
}

void resident_cancel(struct resident *resident, const struct job *job)
{
	size_t before = resident->in.len;

	if (!resident->wants_cancels || resident->step != RESIDENT_RUNNING)
		return;
	buf_printf(&resident->in, "{\"cancel\":\"%" PRId64 "\"}\n", job->id);
	resident->put_bytes += (int64_t)(resident->in.len - before);
}

static void on_writable(void *ctx, int fd, uint32_t events)
{
	(void)fd;
	(void)events;
	struct resident *resident = ctx;

	loop_del_fd(resident->options->loop, resident->child.in);
	resident->is_watched = false;
	resident_flush(resident);
}

void resident_flush(struct resident *resident)
{
	struct child *child = &resident->child;

	if (resident->in.len == 0 || child->in < 0 || resident->is_watched ||
		resident->stop == RESIDENT_MUTE)
		return;
	int status = child_write(child, &resident->in);
	if (status == 0)
		status = loop_add_fd(resident->options->loop, child->in, EPOLLOUT, on_writable,
			resident, NULL);
	resident->is_watched = status == 0 && resident->in.len > 0;
	if (status < 0) /* the pipe stays open to tell what has been read from it */
		expect_exit(resident, RESIDENT_MUTE);
}

/* ---- the exit ------------------------------------------------------------------------ */

bool resident_has_seen(const struct resident *resident, const struct job *job)
{
	return job->line_start < resident->read_bytes;
}

/* What is still in the pipe belongs to nobody. */
static int64_t count_read_bytes(const struct resident *resident)
{
	int in_pipe = 0;

	if (resident->child.in >= 0)
		ioctl(resident->child.in, FIONREAD, &in_pipe);
	return resident->put_bytes - (int64_t)resident->in.len - in_pipe;
}

/* The last line may lack its newline; one that was cut off is no JSON and is nobody's. */
static void take_last_answer(struct resident *resident)
{
	struct str rest = lines_rest(&resident->out);
	struct answer answer;

	if (answer_parse(&answer, rest, NULL) == 0)
		take_answer(resident, rest);
	answer_release(&answer);
}

static void turn_off(struct resident *resident)
{
	const struct resident_options *options = resident->options;

	loop_stop_timer(options->loop, &resident->timer);
	child_finish(&resident->child, options->loop, options->guard, resident->slot);
	resident->step = RESIDENT_OFF;
}

static void on_exit_of_leader(void *ctx, int fd, uint32_t events)
{
	struct resident *resident = ctx;
	struct child *child = &resident->child;

	(void)fd;
	(void)events;
	if (!child_has_exited(child, &resident->exit_status, &resident->signal_number))
		return;
	read_output(resident, &resident->out, &child->out, take_answers, CHUNKS_AT_EXIT);
	take_last_answer(resident);
	read_output(resident, &resident->error_lines, &child->error, take_errors,
		CHUNKS_AT_EXIT);
	struct str rest = lines_rest(&resident->error_lines);
	capture_add(&resident->error, rest.s, rest.n);
	resident->read_bytes = count_read_bytes(resident);
	turn_off(resident);
	resident->on_exit(resident);
}

/* ---- the start ----------------------------------------------------------------------- */

static void forget_last(struct resident *resident)
{
	buf_clear(&resident->in);
	lines_release(&resident->out);
	lines_release(&resident->error_lines);
	capture_release(&resident->error);
}

static int watch(struct resident *resident, struct err *err)
{
	struct loop *loop = resident->options->loop;
	const struct child *child = &resident->child;

	if (loop_add_fd(loop, child->pidfd, EPOLLIN, on_exit_of_leader, resident, err) != 0 ||
		loop_add_fd(loop, child->out, EPOLLIN, on_output, resident, err) != 0)
		return -1;
	return loop_add_fd(loop, child->error, EPOLLIN, on_output, resident, err);
}

int resident_start(struct resident *resident, char *const *envp, struct err *err)
{
	const struct resident_options *options = resident->options;
	const struct handler *handler = resident->handler;
	const struct excerpt tail = excerpt_of_tail(options->max_error_bytes);
	const struct child_spec spec = handler_child_spec(handler, envp);

	forget_last(resident);
	if (!guard_find_slot(options->guard, options->first_slot, &resident->slot))
		return err_set(err, ERR_OS, "too many stream handlers are running");
	if (child_spawn(&spec, &resident->child, err) != 0)
		return -1;
	resident->pid = resident->child.pid;
	guard_note(options->guard, resident->slot, resident->pid);
	if (watch(resident, err) != 0) {
		turn_off(resident);
		return -1;
	}
	excerpt_init_capture(&resident->error, &tail, handler);
	resident->put_bytes = 0;
	resident->is_watched = false;
	resident->has_answered = false;
	resident->wants_cancels = false;
	resident->stop = RESIDENT_NOT_STOPPED;
	resident->step = RESIDENT_RUNNING;
	resident->late = NULL;
	return 0;
}

void resident_init(struct resident *resident)
{
	resident->timer.fn = on_timer;
	resident->timer.ctx = resident;
	buf_init(&resident->in, BACKLOG_BYTES + JOBDOC_MAX_BYTES);
	lines_init(&resident->out, ANSWER_MAX_BYTES);
	lines_init(&resident->error_lines, STDERR_LINE_BYTES);
	capture_init(&resident->error, 0, 0);
}

void resident_release(struct resident *resident)
{
	if (resident->step != RESIDENT_OFF)
		turn_off(resident);
	forget_last(resident);
	buf_release(&resident->in);
}
