/* The loop: timers, descriptors, signals, sockets, and what callbacks do to them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <zmq.h>

#include "turning.h"

static struct loop *loop;

static int set_up(void **state)
{
	(void)state;
	loop = loop_new(NULL);
	return loop ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	loop_free(loop);
	return 0;
}

static bool flag_is_set(void *ctx)
{
	return *(bool *)ctx;
}

/* ---- timers */

enum { TIMERS = 200 };

struct noted_timer {
	struct loop_timer timer;
	int64_t due_us;
};

static int64_t last_due_us;
static int fired_count;

static void note_fired(void *ctx)
{
	const struct noted_timer *noted = ctx;

	assert_true(clock_us() >= noted->due_us);
	assert_true(noted->due_us >= last_due_us);
	assert_int_equal(noted->timer.at_us, 0);
	last_due_us = noted->due_us;
	fired_count++;
}

static void stop_loop(void *ctx)
{
	(void)ctx;
	loop_stop(loop);
}

static void test_timers_fire_in_order_and_never_early(void **state)
{
	static struct noted_timer timers[TIMERS];
	struct loop_timer end = {.fn = stop_loop};
	int stopped = 0;
	(void)state;

	/* 71 and TIMERS have no common divisor: all delays, mixed up. */
	last_due_us = 0;
	fired_count = 0;
	for (int i = 0; i < TIMERS; i++) {
		struct noted_timer *noted = &timers[i];
		noted->timer = (struct loop_timer){.fn = note_fired, .ctx = noted};
		loop_set_timer(loop, &noted->timer, 500 * (i * 71 % TIMERS));
		noted->due_us = noted->timer.at_us;
	}
	for (int i = 0; i < TIMERS; i += 3, stopped++) {
		loop_stop_timer(loop, &timers[i].timer);
		timers[i].due_us = INT64_MAX; /* so that firing it would fail */
	}
	loop_set_timer(loop, &end, 500 * (TIMERS + 1));
	assert_int_equal(loop_run(loop, NULL), 0);
	assert_int_equal(fired_count, TIMERS - stopped);
}

static struct loop_timer again;
static struct loop_timer other;
static int again_count, hook_count;

static void arm_again(void *ctx)
{
	(void)ctx;
	if (++again_count == 5)
		loop_stop(loop);
	loop_set_timer(loop, &again, 0);
	loop_stop_timer(loop, &other);
}

static void must_not_fire(void *ctx)
{
	(void)ctx;
	fail();
}

static void count_turn(void *ctx)
{
	(void)ctx;
	hook_count++;
}

static void test_timer_armed_by_itself_fires_once_a_turn(void **state)
{
	(void)state;
	again = (struct loop_timer){.fn = arm_again};
	other = (struct loop_timer){.fn = must_not_fire};
	again_count = hook_count = 0;
	loop_on_turn(loop, count_turn, NULL);
	loop_set_timer(loop, &again, 0);
	loop_set_timer(loop, &other, 5000);
	loop_set_timer(loop, &again, 0); /* armed anew, not twice */
	assert_int_equal(loop_run(loop, NULL), 0);
	assert_int_equal(again_count, 5);
	assert_true(hook_count >= 5);
	loop_stop_timer(loop, &again);
	loop_stop_timer(loop, &again);
}

/* ---- descriptors */

static int pipes[3][2];
static bool seen[3];

static void open_pipes(void)
{
	memset(seen, 0, sizeof(seen));
	for (int i = 0; i < 3; i++)
		assert_int_equal(pipe2(pipes[i], O_CLOEXEC | O_NONBLOCK), 0);
}

static void close_pipes(void)
{
	for (int i = 0; i < 3; i++) {
		loop_del_fd(loop, pipes[i][0]);
		close(pipes[i][0]);
		close(pipes[i][1]);
	}
}

static void take_byte(void *ctx, int fd, uint32_t events)
{
	char byte;
	assert_true(events & EPOLLIN);
	assert_int_equal(read(fd, &byte, 1), 1);
	*(bool *)ctx = true;
}

/* Removes the two others, which are ready in the same turn, and takes a number over. */
static void remove_others(void *ctx, int fd, uint32_t events)
{
	size_t self = (size_t)((bool *)ctx - seen);

	take_byte(ctx, fd, events);
	loop_del_fd(loop, fd);
	for (size_t i = 0; i < 3; i++) {
		if (i == self)
			continue;
		assert_false(seen[i]);
		loop_del_fd(loop, pipes[i][0]);
	}
	/* The same number again, for another callback: the old event must not reach it. */
	size_t next = (self + 1) % 3;
	char byte;
	assert_int_equal(read(pipes[next][0], &byte, 1), 1);
	assert_int_equal(loop_add_fd(loop, pipes[next][0], EPOLLIN, take_byte, &seen[next],
						 NULL),
		0);
}

static void test_fds_removed_and_reused_in_a_callback(void **state)
{
	(void)state;
	open_pipes();
	for (int i = 0; i < 3; i++) {
		assert_int_equal(loop_add_fd(loop, pipes[i][0], EPOLLIN, remove_others, &seen[i],
							 NULL),
			0);
		assert_int_equal(write(pipes[i][1], "x", 1), 1);
	}
	turn_for_ms(loop, 20);
	assert_int_equal(seen[0] + seen[1] + seen[2], 1);
	close_pipes();
}

static void test_fd_added_twice_is_refused(void **state)
{
	struct err err = ERR_INIT;
	(void)state;

	open_pipes();
	assert_int_equal(loop_add_fd(loop, pipes[0][0], EPOLLIN, take_byte, &seen[0], NULL),
		0);
	assert_int_equal(loop_add_fd(loop, pipes[0][0], EPOLLIN, take_byte, &seen[0], &err),
		-1);
	assert_int_equal(err.class, ERR_SOFTWARE);
	assert_int_equal(loop_add_fd(loop, -1, EPOLLIN, take_byte, &seen[0], NULL), -1);
	loop_del_fd(loop, -1);
	loop_del_fd(loop, 100000);
	close_pipes();
}

static void test_fd_without_interest_is_silent(void **state)
{
	(void)state;
	open_pipes();
	assert_int_equal(loop_add_fd(loop, pipes[0][0], 0, take_byte, &seen[0], NULL), 0);
	assert_int_equal(write(pipes[0][1], "x", 1), 1);
	turn_for_ms(loop, 10);
	assert_false(seen[0]);
	loop_mod_fd(loop, pipes[0][0], EPOLLIN);
	turn_until(loop, flag_is_set, &seen[0]);
	close_pipes();
}

static int file_calls;

static void read_file(void *ctx, int fd, uint32_t events)
{
	char bytes[4];
	assert_int_equal(events, EPOLLIN);
	file_calls++;
	if (read(fd, bytes, sizeof(bytes)) == 0) {
		loop_mod_fd(loop, fd, 0);
		*(bool *)ctx = true;
	}
}

static void test_regular_file_is_always_ready(void **state)
{
	char name[] = "/tmp/test_loop.XXXXXX";
	bool ended = false;
	int fd = mkstemp(name);
	(void)state;

	assert_true(fd >= 0);
	assert_int_equal(unlink(name), 0);
	assert_int_equal(write(fd, "12345678", 8), 8);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	file_calls = 0;
	assert_int_equal(loop_add_fd(loop, fd, EPOLLIN, read_file, &ended, NULL), 0);
	turn_until(loop, flag_is_set, &ended);
	turn_for_ms(loop, 5);
	assert_int_equal(file_calls, 3);
	loop_del_fd(loop, fd);
	close(fd);
}

/* ---- signals */

static int signals_seen[NSIG];

static void note_signal(void *ctx, int signal_number)
{
	signals_seen[signal_number]++;
	*(bool *)ctx = true;
}

static void test_signals_reach_their_callbacks(void **state)
{
	bool first = false, second = false;
	sigset_t before;
	(void)state;

	sigprocmask(SIG_BLOCK, NULL, &before);
	memset(signals_seen, 0, sizeof(signals_seen));
	assert_int_equal(loop_on_signal(loop, SIGUSR1, note_signal, &first, NULL), 0);
	assert_int_equal(loop_on_signal(loop, SIGUSR2, note_signal, &second, NULL), 0);
	assert_int_equal(loop_on_signal(loop, NSIG, note_signal, &second, NULL), -1);
	assert_int_equal(raise(SIGUSR2), 0);
	turn_until(loop, flag_is_set, &second);
	assert_false(first);
	assert_int_equal(raise(SIGUSR1), 0);
	turn_until(loop, flag_is_set, &first);
	assert_int_equal(signals_seen[SIGUSR1], 1);
	assert_int_equal(signals_seen[SIGUSR2], 1);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

/* ---- sockets */

static void *context, *sender, *receiver;
static int64_t received;
static int turns, most_a_turn, this_turn;

static void open_sockets(void)
{
	context = zmq_ctx_new();
	sender = zmq_socket(context, ZMQ_PAIR);
	receiver = zmq_socket(context, ZMQ_PAIR);
	assert_int_equal(zmq_bind(receiver, "inproc://test"), 0);
	assert_int_equal(zmq_connect(sender, "inproc://test"), 0);
	received = 0;
	turns = most_a_turn = this_turn = 0;
}

static void close_sockets(void)
{
	loop_del_socket(loop, receiver);
	zmq_close(sender);
	zmq_close(receiver);
	zmq_ctx_term(context);
}

static bool receive_one(void *ctx)
{
	char byte;
	(void)ctx;
	if (zmq_recv(receiver, &byte, 1, ZMQ_DONTWAIT) < 0)
		return false;
	received++;
	this_turn++;
	return true;
}

static void refill(void *ctx)
{
	(void)ctx;
	turns++;
	most_a_turn = this_turn > most_a_turn ? this_turn : most_a_turn;
	this_turn = 0;
	while (zmq_send(sender, "x", 1, ZMQ_DONTWAIT) == 1)
		continue;
}

static void test_flood_does_not_starve_timers(void **state)
{
	bool tick_seen = false;
	(void)state;

	open_sockets();
	open_pipes();
	assert_int_equal(loop_add_socket(loop, receiver, receive_one, NULL, NULL), 0);
	assert_int_equal(loop_add_socket(loop, receiver, receive_one, NULL, NULL), -1);
	assert_int_equal(loop_add_fd(loop, pipes[0][0], EPOLLIN, take_byte, &tick_seen, NULL),
		0);
	assert_int_equal(write(pipes[0][1], "x", 1), 1);
	loop_on_turn(loop, refill, NULL);
	turn_for_ms(loop, 50);
	assert_true(tick_seen);
	assert_true(turns > 10); /* a turn that never ended would be one */
	assert_true(received > 1000);
	assert_int_equal(most_a_turn, 64);
	close_pipes();
	close_sockets();
}

static bool has_received(void *ctx)
{
	return received >= *(int *)ctx;
}

static void test_paused_socket_keeps_its_messages(void **state)
{
	int expected = 1;
	(void)state;

	open_sockets();
	assert_int_equal(loop_add_socket(loop, receiver, receive_one, NULL, NULL), 0);
	loop_pause_socket(loop, receiver, true);
	assert_int_equal(zmq_send(sender, "x", 1, 0), 1);
	turn_for_ms(loop, 10);
	assert_int_equal(received, 0);
	loop_pause_socket(loop, receiver, false);
	turn_until(loop, has_received, &expected);
	close_sockets();
}

static bool receive_and_replace(void *ctx)
{
	receive_one(ctx);
	loop_del_socket(loop, receiver);
	assert_int_equal(loop_add_socket(loop, receiver, receive_one, NULL, NULL), 0);
	return true;
}

static void test_socket_removed_and_added_in_its_callback(void **state)
{
	int expected = 200;
	(void)state;

	open_sockets();
	assert_int_equal(loop_add_socket(loop, receiver, receive_and_replace, NULL, NULL), 0);
	for (int i = 0; i < 200; i++)
		assert_int_equal(zmq_send(sender, "x", 1, 0), 1);
	turn_until(loop, has_received, &expected);
	close_sockets();
}

static void add_hook_and_stop(void *ctx)
{
	(void)ctx;
	loop_on_turn(loop, count_turn, NULL);
	loop_stop(loop);
}

static void test_stop_ends_after_the_turn(void **state)
{
	struct loop_timer timer = {.fn = add_hook_and_stop};
	(void)state;

	hook_count = 0;
	loop_set_timer(loop, &timer, 1000);
	assert_int_equal(loop_run(loop, NULL), 0);
	assert_int_equal(hook_count, 1); /* the hooks of that turn still ran */
	loop_stop(loop);
	assert_int_equal(loop_run(loop, NULL), 0); /* stopped beforehand: at once */
	assert_int_equal(hook_count, 1);
	assert_true(loop_now_us(loop) <= clock_us());
}

#define loop_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		loop_test(test_timers_fire_in_order_and_never_early),
		loop_test(test_timer_armed_by_itself_fires_once_a_turn),
		loop_test(test_fds_removed_and_reused_in_a_callback),
		loop_test(test_fd_added_twice_is_refused),
		loop_test(test_fd_without_interest_is_silent),
		loop_test(test_regular_file_is_always_ready),
		loop_test(test_signals_reach_their_callbacks),
		loop_test(test_flood_does_not_starve_timers),
		loop_test(test_paused_socket_keeps_its_messages),
		loop_test(test_socket_removed_and_added_in_its_callback),
		loop_test(test_stop_ends_after_the_turn),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
