/*
 * outbox-run: executes handlers for the jobs that a claimer sends and tells a settler how
 * they ended. Options, wiring and the orderly end are here; the rest in reading order:
 * handlers (lib) -> catalog; job, jobdoc, lease; attempt -> slots, or resident -> stream ->
 * streams; runner -> capacity -> claimer or input; report, unstarted -> results.
 */
#include <signal.h>
#include <sys/resource.h>

#include "catalog.h"
#include "claimer.h"
#include "handlers.h"
#include "input.h"
#include "log.h"
#include "options.h"
#include "program.h"
#include "runner.h"
#include "streams.h"

#define ACKS_US INT64_C(10000000) /* a draining runner waits so long for the settler */
#define DESCRIPTORS_A_PROCESS 5
#define DESCRIPTORS_OF_OURS 40

/* ---- wiring -------------------------------------------------------------------------- */

struct app {
	struct loop *loop;
	struct guard *guard;
	struct catalog catalog;
	struct jobs held;
	struct results results;
	struct runner runner;
	bool by_pipe;
	struct claimer claimer; /* unless by_pipe */
	struct input input;     /* if by_pipe */
	struct loop_timer acks_timer;
	bool leaving; /* wait for nothing but handlers that are being killed */
};

/* The reader of stdout is gone: what still runs would run for nothing. */
static void on_results_broken(void *ctx, const struct err *err)
{
	struct app *app = ctx;

	program_fail(err);
	app->leaving = true;
	runner_leave(&app->runner);
}

static int open_results(struct app *app, struct err *err)
{
	app->results.loop = app->loop;
	app->results.jobs = &app->held;
	app->results.max_unsettled = (size_t)run_options.max_unsettled;
	app->results.on_broken = on_results_broken;
	app->results.ctx = app;
	return results_open(&app->results, run_options.results, err);
}

static int open_jobs(struct app *app, struct err *err)
{
	if (app->by_pipe) {
		app->input = (struct input){.loop = app->loop,
			.runner = &app->runner,
			.lease_ms = run_options.lease_ms};
		return input_open(&app->input, err);
	}
	app->claimer = (struct claimer){.loop = app->loop,
		.runner = &app->runner,
		.id = program_incarnation(),
		.lane = run_options.lane};
	return claimer_open(&app->claimer, run_options.jobs, err);
}

/* A settler that reads a pipe gives back what this worker holds when the pipe ends. From
 * stdin the claimer's hello comes and is passed on. */
static void introduce_worker(struct app *app)
{
	const struct frame_hello hello = {.role = STR("pipe"),
		.id = str_of(app->results.worker)};
	struct buf frame;

	buf_init(&frame, FRAME_MAX_BYTES);
	frame_put_hello(&frame, &hello);
	results_put(&app->results, &frame);
	buf_release(&frame);
}

static void init_runner(struct app *app)
{
	const struct runner_options runner_options = {
		.slots = (size_t)run_options.slots,
		.window = (size_t)run_options.window,
		.grace_ms = run_options.grace_ms,
		.by_credit = !app->by_pipe,
		.pass_env = &run_options.pass_env,
		.attempts =
			{
				.loop = app->loop,
				.guard = app->guard,
				.max_response_bytes = run_options.max_response,
				.max_error_bytes = run_options.max_error,
			},
	};

	jobs_init(&app->held,
		(size_t)(run_options.max_unsettled + 2 * run_options.slots + run_options.window));
	runner_init(&app->runner, &runner_options, catalog_newest(&app->catalog), &app->held,
		&app->results);
}

/* ---- the end ------------------------------------------------------------------------- */

static bool is_ending(const struct app *app)
{
	return app->runner.draining || (app->by_pipe && app->input.ended);
}

static void say_goodbye(struct app *app)
{
	struct buf frame;
	const struct frame_beat beat = {.id = str_of(app->results.worker),
		.state = FRAME_BEAT_GONE};

	if (!app->by_pipe)
		claimer_say(&app->claimer, FRAME_BEAT_GONE);
	if (link_is_stdio(app->results.link))
		return;
	buf_init(&frame, FRAME_MAX_BYTES);
	frame_put_beat(&frame, &beat);
	results_put(&app->results, &frame);
	buf_release(&frame);
}

static void on_acks_missing(void *ctx)
{
	struct app *app = ctx;

	log_event(LOG_WARNING, "results_unsettled",
		LOG_INT("count", results_unsettled(&app->results)));
	app->leaving = true;
}

static void end_when_done(struct app *app)
{
	if (!is_ending(app) || !runner_is_idle(&app->runner) || !runner_dismiss(&app->runner))
		return;
	if (app->leaving || results_are_settled(&app->results)) {
		say_goodbye(app);
		loop_stop(app->loop);
	} else if (app->runner.draining && app->acks_timer.at_us == 0) {
		loop_set_timer(app->loop, &app->acks_timer, ACKS_US);
	}
}

static void on_turn(void *ctx)
{
	struct app *app = ctx;

	runner_turn(&app->runner);
	results_turn(&app->results, runner_is_idle(&app->runner));
	if (app->by_pipe)
		input_turn(&app->input);
	else
		claimer_turn(&app->claimer);
	end_when_done(app);
}

static void on_drain(void *ctx)
{
	struct app *app = ctx;

	program_stopping();
	runner_drain(&app->runner);
	if (!app->by_pipe)
		claimer_say(&app->claimer, FRAME_BEAT_DRAINING);
}

/* The second TERM kills handlers; one more does not even wait for that. */
static void on_leave(void *ctx)
{
	struct app *app = ctx;

	if (app->leaving)
		loop_stop(app->loop);
	app->leaving = true;
	runner_leave(&app->runner);
}

/* ---- main ---------------------------------------------------------------------------- */

static void warn_of_few_descriptors(size_t processes)
{
	struct rlimit limit;
	int64_t needed = (int64_t)processes * DESCRIPTORS_A_PROCESS + DESCRIPTORS_OF_OURS;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < (rlim_t)needed)
		log_event(LOG_WARNING, "few_descriptors", LOG_INT("needed", needed),
			LOG_INT("limit", limit.rlim_cur));
}

static bool is_used(void *ctx, const struct handlers *handlers)
{
	return runner_uses(ctx, handlers);
}

/* A folder in which something is wrong changes nothing. */
static void on_hangup(void *ctx, int signal_number)
{
	struct app *app = ctx;
	struct err err = ERR_INIT;

	(void)signal_number;
	if (catalog_load(&app->catalog, run_options.handlers, run_options.lane, &err) != 0) {
		log_error(LOG_ERROR, "reload_failed", &err);
		return;
	}
	runner_reload(&app->runner, catalog_newest(&app->catalog));
	if (!app->by_pipe)
		claimer_reload(&app->claimer);
	catalog_prune(&app->catalog, is_used, &app->runner);
}

/* The guard is forked before ZeroMQ starts its threads. */
static int start(struct app *app, struct err *err)
{
	if (catalog_load(&app->catalog, run_options.handlers, run_options.lane, err) != 0)
		return -1;
	size_t processes = (size_t)run_options.slots +
		streams_processes(catalog_newest(&app->catalog));
	warn_of_few_descriptors(processes);
	app->guard = guard_start((size_t)run_options.slots + STREAMS_MAX_PROCESSES, err);
	if (app->guard == NULL)
		return -1;
	app->loop = loop_new(err);
	if (app->loop == NULL ||
		program_handle_signals(app->loop, on_drain, on_leave, app, err) != 0 ||
		loop_on_signal(app->loop, SIGHUP, on_hangup, app, err) != 0)
		return -1;
	app->by_pipe = run_options.jobs != NULL && link_is_stdio_endpoint(run_options.jobs);
	init_runner(app);
	app->acks_timer.fn = on_acks_missing;
	app->acks_timer.ctx = app;
	if (open_results(app, err) != 0 || open_jobs(app, err) != 0)
		return -1;
	if (!app->by_pipe && link_is_stdio(app->results.link))
		introduce_worker(app);
	loop_on_turn(app->loop, on_turn, app);
	return 0;
}

static void stop(struct app *app)
{
	loop_stop_timer(app->loop, &app->acks_timer);
	runner_release(&app->runner);
	if (app->by_pipe)
		input_close(&app->input);
	else
		claimer_close(&app->claimer);
	results_close(&app->results);
	jobs_release(&app->held);
	catalog_release(&app->catalog);
	loop_free(app->loop);
	guard_stop(app->guard);
	opt_list_release(&run_options.pass_env);
}

int main(int argc, char **argv)
{
	static struct app app;
	struct err err = ERR_INIT;

	program_start_no_operands(&run_program, argc, argv);
	if (run_options.check)
		return catalog_check(run_options.handlers, &err) == 0 ? 0 : program_fail(&err);
	run_options_complete();
	if (start(&app, &err) != 0)
		return program_fail(&err);
	program_ready();
	if (loop_run(app.loop, &err) != 0)
		program_fail(&err);
	stop(&app);
	return program_exit_code();
}
