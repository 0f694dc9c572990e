#include "input.h"

#include "capacity.h"
#include "clock.h"
#include "log.h"
#include "program.h"

#define FRAME_DROPPED_INTERVAL_MS 10000

static void begin_lease(struct input *input, int64_t lease_ms)
{
	struct lease *lease = &input->runner->lease;

	lease_set_length(lease, lease_ms);
	lease_begin(lease, clock_us());
	runner_lease_changed(input->runner);
}

/* Passed on, so that the settler knows whose jobs are left when the results end. */
static void on_hello(struct input *input, const struct frame_hello *hello,
	const void *frame, size_t length)
{
	struct runner *runner = input->runner;
	struct buf copy;

	if (hello->id.n > 0)
		results_set_worker(runner->results, hello->id);
	bool has_lease = hello->lease_ms > 0 && hello->lease_ms <= LEASE_MAX_MS;
	lease_set_clock(&runner->lease, hello->db_now_us, clock_us());
	begin_lease(input, has_lease ? hello->lease_ms : input->lease_ms);
	if (!link_is_stdio(runner->results->link))
		return;
	buf_init(&copy, FRAME_MAX_BYTES);
	buf_put(&copy, frame, length);
	results_put(runner->results, &copy);
	buf_release(&copy);
}

static void on_frame(void *ctx, const struct link_peer *peer, const void *frame,
	size_t length, int64_t version, int64_t type)
{
	static struct log_limit limit;
	struct input *input = ctx;
	struct frame_hello hello;

	(void)peer;
	if (version == FRAME_VERSION && type == FRAME_JOB) {
		runner_accept(input->runner, frame, length);
		if (capacity_is_used_up(input->runner))
			link_pause(input->link, true);
	} else if (version == FRAME_VERSION && type == FRAME_HELLO &&
		frame_get_hello(frame, length, &hello, NULL, 0, NULL, 0, NULL) == 0) {
		on_hello(input, &hello, frame, length);
	} else if (log_allow(&limit, FRAME_DROPPED_INTERVAL_MS) >= 0) {
		log_event(LOG_WARNING, "frame_dropped", LOG_TEXT("link", "jobs"),
			LOG_INT("version", version), LOG_INT("type", type));
	}
}

static void on_end(void *ctx, const struct err *err)
{
	struct input *input = ctx;

	input->ended = true;
	if (err != NULL)
		program_fail(err);
}

int input_open(struct input *input, struct err *err)
{
	const struct link_options options = {
		.pattern = LINK_DEALER,
		.endpoint = "-",
		.on_frame = on_frame,
		.on_end = on_end,
		.ctx = input,
	};

	input->link = link_new(input->loop, &options, err);
	if (input->link == NULL)
		return -1;
	begin_lease(input, input->lease_ms);
	return 0;
}

void input_close(struct input *input)
{
	link_free(input->link);
	input->link = NULL;
}

void input_turn(struct input *input)
{
	if (!input->ended)
		link_pause(input->link, capacity_is_used_up(input->runner));
}
