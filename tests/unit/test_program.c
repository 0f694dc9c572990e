#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cmocka.h>

#include "forked.h"
#include "program.h"

static const struct opt_program program = {
	.name = "outbox-test",
	.summary = "tests the start of programs",
	.usage = "[option ...]",
	.tables = {program_opts, program_db_opts, program_link_opts},
};

static char name[] = "outbox-test";

/* ---- start */

static void start_prepares_the_process(void *ctx)
{
	char log_level[] = "--log-level=debug", operand[] = "operand";
	char *argv[] = {name, operand, log_level, NULL};
	struct sigaction pipe_action, child_action;

	(void)ctx;
	signal(SIGCHLD, SIG_IGN);
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	int first = program_start(&program, 3, argv);
	sigaction(SIGPIPE, NULL, &pipe_action);
	sigaction(SIGCHLD, NULL, &child_action);
	int next = open("/dev/null", O_RDONLY);
	fprintf(stderr, "operand %s, level %d, pipe %d, child %d, next %s", argv[first],
		program_options.log_level, pipe_action.sa_handler == SIG_IGN,
		child_action.sa_handler == SIG_DFL, next > 2 ? "above" : "low");
}

static void processes_start_with_clean_signals_and_descriptors(void **state)
{
	char said[500];

	(void)state;
	assert_int_equal(run_forked(start_prepares_the_process, NULL, STDERR_FILENO, said,
						 sizeof(said)),
		0);
	assert_string_equal(said, "operand operand, level 0, pipe 1, child 1, next above");
}

static void start_with(void *ctx)
{
	char *argv[] = {name, ctx, NULL};

	program_start_no_operands(&program, 2, argv);
}

static void wrong_command_lines_end_the_program(void **state)
{
	static const struct {
		const char *word, *text;
	} rows[] = {
		{"--wrong",
			"outbox-test: unknown option \"--wrong\"\ntry \"outbox-test --help\"\n"},
		{"operand",
			"outbox-test: unexpected operand \"operand\"\ntry \"outbox-test --help\"\n"},
	};
	char said[500];

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		int status = run_forked(start_with, (void *)rows[i].word, STDERR_FILENO, said,
			sizeof(said));
		assert_int_equal(status, 64);
		assert_string_equal(said, rows[i].text);
	}
}

/* ---- readiness */

static struct sockaddr_un notify_address(const char *path, socklen_t *size)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	memcpy(address.sun_path, path, strlen(path));
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	*size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
	return address;
}

static void be_ready(void *ctx)
{
	(void)ctx;
	program_ready();
	program_ready(); /* says nothing more */
	program_stopping();
}

static void check_notification(const char *path)
{
	socklen_t size;
	struct sockaddr_un address = notify_address(path, &size);
	char datagram[100], said[500];
	int ready[2];

	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
	assert_int_equal(pipe(ready), 0);
	setenv("NOTIFY_SOCKET", path, 1);
	program_options.ready_fd = ready[1];
	assert_int_equal(run_forked(be_ready, NULL, STDERR_FILENO, said, sizeof(said)), 0);
	unsetenv("NOTIFY_SOCKET");
	program_options.ready_fd = -1;

	const char *event = strstr(said, "event=ready pid=");
	assert_non_null(event);
	assert_null(strstr(event + 1, "event="));
	close(ready[1]);
	assert_int_equal(read(ready[0], datagram, sizeof(datagram)), 1);
	assert_int_equal(datagram[0], '\n');
	close(ready[0]);
	assert_int_equal(recv(fd, datagram, sizeof(datagram), MSG_DONTWAIT), 7);
	assert_memory_equal(datagram, "READY=1", 7);
	assert_int_equal(recv(fd, datagram, sizeof(datagram), MSG_DONTWAIT), 10);
	assert_memory_equal(datagram, "STOPPING=1", 10);
	assert_int_equal(recv(fd, datagram, sizeof(datagram), MSG_DONTWAIT), -1);
	close(fd);
}

static void readiness_is_said_once_to_everyone(void **state)
{
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "/tmp/outbox-unit-notify-%d", getpid());
	check_notification(path);
	unlink(path);
	path[0] = '@';
	check_notification(path);
}

static void nobody_to_notify_is_only_logged(void **state)
{
	char said[1000];

	(void)state;
	setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
	assert_int_equal(run_forked(be_ready, NULL, STDERR_FILENO, said, sizeof(said)), 0);
	unsetenv("NOTIFY_SOCKET");
	assert_non_null(strstr(said, "event=notify_failed"));
	assert_non_null(strstr(said, "event=ready"));
}

/* ---- signals */

struct stop_log {
	struct loop *loop;
	struct loop_timer again; /* sends the second signal */
	int drained, left;
};

static void send_int(void *ctx)
{
	(void)ctx;
	raise(SIGINT);
}

static void note_drain(void *ctx)
{
	struct stop_log *log = ctx;

	log->drained++;
	log->again.fn = send_int;
	loop_set_timer(log->loop, &log->again, 1000);
}

static void note_leave(void *ctx)
{
	struct stop_log *log = ctx;

	log->left++;
	loop_stop(log->loop);
}

static void stop_in_two_steps(void *ctx)
{
	struct stop_log log = {0};
	struct err err = ERR_INIT;

	(void)ctx;
	log.loop = loop_new(&err);
	if (program_handle_signals(log.loop, note_drain, note_leave, &log, &err) < 0)
		exit(1);
	raise(SIGTERM);
	if (loop_run(log.loop, &err) < 0)
		exit(1);
	loop_free(log.loop);
	printf("drained %d, left %d", log.drained, log.left);
}

static void stop_without_callbacks(void *ctx)
{
	struct err err = ERR_INIT;
	struct loop *loop = loop_new(&err);

	(void)ctx;
	if (program_handle_signals(loop, NULL, NULL, NULL, &err) < 0)
		exit(1);
	raise(SIGINT);
	if (loop_run(loop, &err) < 0)
		exit(1);
	loop_free(loop);
}

static void first_signal_drains_second_leaves(void **state)
{
	char said[100];

	(void)state;
	assert_int_equal(run_forked(stop_in_two_steps, NULL, STDOUT_FILENO, said,
						 sizeof(said)),
		0);
	assert_string_equal(said, "drained 1, left 1");
	assert_int_equal(run_forked(stop_without_callbacks, NULL, STDOUT_FILENO, said,
						 sizeof(said)),
		0);
}

/* ---- failing */

static void fail_with_an_error(void *ctx)
{
	struct err err = {.class = ERR_CONFIG, .text = "schema version 3 is not spoken here"};

	(void)ctx;
	exit(program_fail(&err));
}

static void failing_logs_and_gives_the_exit_code(void **state)
{
	char said[500];

	(void)state;
	assert_int_equal(run_forked(fail_with_an_error, NULL, STDERR_FILENO, said,
						 sizeof(said)),
		78);
	assert_non_null(
		strstr(said, "level=error program=outbox event=failed error=\"schema version 3"));
}

static void give_up_in_a_callback(void *ctx)
{
	const struct err protocol = {.class = ERR_PROTOCOL, .text = "it speaks in tongues"};
	(void)ctx;

	program_fail_as("input_broken", &protocol);
	program_give_up(&(struct err){.class = ERR_CONFIG, .text = "there is no schema"});
}

static void give_up_and_run_to_the_end(void *ctx)
{
	struct err err = ERR_INIT;
	struct loop *loop = loop_new(&err);
	struct loop_timer timer = {.fn = give_up_in_a_callback};

	(void)ctx;
	if (program_handle_signals(loop, NULL, NULL, NULL, &err) < 0 ||
		program_exit_code() != 0)
		exit(1);
	loop_set_timer(loop, &timer, 0);
	if (loop_run(loop, &err) < 0)
		exit(1);
	loop_free(loop);
	exit(program_exit_code());
}

static void giving_up_stops_the_loop_and_the_first_failure_decides(void **state)
{
	char said[1000];

	(void)state;
	assert_int_equal(run_forked(give_up_and_run_to_the_end, NULL, STDERR_FILENO, said,
						 sizeof(said)),
		76);
	assert_non_null(strstr(said, "event=input_broken error=\"it speaks in tongues\""));
	assert_non_null(strstr(said, "event=failed error=\"there is no schema\""));
}

/* ---- links */

static void lanes_that_cannot_be_have_no_link(void **state)
{
	static const char *const lanes[] = {"", "Bulk", "a/b", "../run",
		"a-name-of-more-than-a-hundred-characters-a-name-of-more-than-a-hundred-characters"
		"-a-name-of-more-than-a-hun"};
	const struct link_options options = {.pattern = LINK_DEALER};
	struct err err = ERR_INIT;
	struct loop *loop = loop_new(&err);

	(void)state;
	for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
		assert_null(program_open_jobs_link(loop, &options, NULL, lanes[i], &err));
		assert_int_equal(err.class, ERR_USAGE);
	}
	loop_free(loop);
}

/* ---- the rest */

static void incarnations_name_host_and_process(void **state)
{
	const char *id = program_incarnation();
	char pid[20];

	(void)state;
	assert_ptr_equal(id, program_incarnation());
	size_t length = strlen(id);
	assert_in_range(length, 12, 71);
	assert_int_equal(strspn(id + length - 8, "0123456789abcdef"), 8);
	snprintf(pid, sizeof(pid), ".%d.", getpid());
	assert_memory_equal(id + length - 8 - strlen(pid), pid, strlen(pid));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes_start_with_clean_signals_and_descriptors),
		cmocka_unit_test(wrong_command_lines_end_the_program),
		cmocka_unit_test(readiness_is_said_once_to_everyone),
		cmocka_unit_test(nobody_to_notify_is_only_logged),
		cmocka_unit_test(first_signal_drains_second_leaves),
		cmocka_unit_test(failing_logs_and_gives_the_exit_code),
		cmocka_unit_test(giving_up_stops_the_loop_and_the_first_failure_decides),
		cmocka_unit_test(lanes_that_cannot_be_have_no_link),
		cmocka_unit_test(incarnations_name_host_and_process),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
