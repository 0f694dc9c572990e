/* Children: exit codes, clean surroundings, failures without leaks, groups and the guard. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "buf.h"
#include "child.h"
#include "clock.h"
#include "guard.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define DEADLINE_MS 10000

static char *const environment[] = {"PATH=/usr/bin:/bin", "ONE=1", NULL};

static struct child_spec shell_spec(char *script, char **argv)
{
	argv[0] = "/bin/sh";
	argv[1] = "-c";
	argv[2] = script;
	argv[3] = NULL;
	return (struct child_spec){.path = "/bin/sh",
		.argv = argv,
		.envp = environment,
		.result_pipe = true};
}

static void spawn_shell(char *script, struct child *child)
{
	char *argv[4];
	struct child_spec spec = shell_spec(script, argv);
	struct err err = ERR_INIT;

	if (child_spawn(&spec, child, &err) != 0)
		fail_msg("%s", err.text);
}

/* Reads one of the child's pipes to its end. */
static void read_all(int fd, struct buf *out)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	char bytes[4096];

	for (;;) {
		assert_int_equal(poll(&wait, 1, DEADLINE_MS), 1);
		ssize_t got = read(fd, bytes, sizeof(bytes));
		assert_true(got >= 0);
		if (got == 0)
			return;
		buf_put(out, bytes, (size_t)got);
	}
}

static void wait_exit(const struct child *child, int *status, int *signal_number)
{
	struct pollfd wait = {.fd = child->pidfd, .events = POLLIN};

	assert_int_equal(poll(&wait, 1, DEADLINE_MS), 1);
	assert_true(child_has_exited(child, status, signal_number));
}

static void run_shell(char *script, struct buf *out, int *status, int *signal_number)
{
	struct child child;

	spawn_shell(script, &child);
	close(child.in);
	child.in = -1;
	buf_init(out, 1 << 20);
	read_all(child.out, out);
	wait_exit(&child, status, signal_number);
	child_reap(&child);
}

static size_t open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

static bool wait_gone(pid_t pid)
{
	int64_t until = clock_ms() + DEADLINE_MS;

	while (kill(pid, 0) == 0 && clock_ms() < until)
		poll(NULL, 0, 5);
	return kill(pid, 0) != 0;
}

/* ---- exits --------------------------------------------------------------------------- */

static void exits_are_told_apart(void **state)
{
	(void)state;
	static const struct {
		char *script;
		int status, signal_number;
	} cases[] = {
		{"exit 0", 0, 0},
		{"exit 3", 3, 0},
		{"exit 137", 137, 0}, /* not a signal */
		{"exit 255", 255, 0},
		{"kill -TERM $$", -1, SIGTERM},
		{"kill -KILL $$", -1, SIGKILL},
		{"ulimit -c 0; kill -SEGV $$", -1, SIGSEGV},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct buf out;
		int status, signal_number;
		run_shell(cases[i].script, &out, &status, &signal_number);
		assert_int_equal(status, cases[i].status);
		assert_int_equal(signal_number, cases[i].signal_number);
		buf_release(&out);
	}
}

static void a_running_child_has_not_exited(void **state)
{
	(void)state;
	struct child child;
	int status, signal_number;

	spawn_shell("read line; exit 4", &child);
	assert_false(child_has_exited(&child, &status, &signal_number));
	assert_int_equal(write(child.in, "x\n", 2), 2);
	wait_exit(&child, &status, &signal_number);
	assert_int_equal(status, 4);
	assert_true(
		child_has_exited(&child, &status, &signal_number)); /* asking does not reap */
	child_reap(&child);
	child_reap(&child);
}

static void closed_stdin_is_an_end_of_file(void **state)
{
	(void)state;
	struct buf out;
	int status, signal_number;

	run_shell("if read line; then exit 1; fi; echo end", &out, &status, &signal_number);
	assert_int_equal(status, 0);
	assert_string_equal(buf_cstr(&out), "end\n");
	buf_release(&out);
}

/* As after a parent that was killed: nothing is written once the child runs. */
static void input_is_there_before_the_child(void **state)
{
	(void)state;
	static const size_t sizes[] = {0, 1, 65536, 300000};
	static char input[300000];
	char *argv[4];
	struct child_spec spec = shell_spec("wc -c", argv);

	memset(input, 'x', sizeof(input));
	spec.input = input;
	for (size_t i = 0; i < COUNT(sizes); i++) {
		struct child child;
		struct buf out;
		struct err err = ERR_INIT;
		int status, signal_number;

		spec.input_bytes = sizes[i];
		assert_int_equal(child_spawn(&spec, &child, &err), 0);
		assert_int_equal(child.input_taken, sizes[i]);
		close(child.in);
		child.in = -1;
		buf_init(&out, 1 << 20);
		read_all(child.out, &out);
		assert_int_equal(atoll(buf_cstr(&out)), sizes[i]);
		wait_exit(&child, &status, &signal_number);
		child_reap(&child);
		buf_release(&out);
	}
}

static void a_child_that_closes_its_stdin_gives_epipe(void **state)
{
	(void)state;
	struct child child;
	struct buf out;
	int status, signal_number;

	signal(SIGPIPE, SIG_IGN);
	spawn_shell("exec <&-; echo closed; read line <&2", &child);
	struct pollfd wait = {.fd = child.out, .events = POLLIN};
	assert_int_equal(poll(&wait, 1, DEADLINE_MS), 1);
	assert_int_equal(write(child.in, "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	buf_init(&out, 100);
	child_kill(&child, SIGKILL);
	read_all(child.out, &out);
	wait_exit(&child, &status, &signal_number);
	child_reap(&child);
	buf_release(&out);
	signal(SIGPIPE, SIG_DFL);
}

static void the_result_descriptor_is_3(void **state)
{
	(void)state;
	struct child child;
	struct buf out;
	int status, signal_number;

	spawn_shell("echo result >&3; echo error >&2", &child);
	buf_init(&out, 100);
	read_all(child.result, &out);
	assert_string_equal(buf_cstr(&out), "result\n");
	buf_clear(&out);
	read_all(child.error, &out);
	assert_string_equal(buf_cstr(&out), "error\n");
	wait_exit(&child, &status, &signal_number);
	assert_int_equal(status, 0);
	child_reap(&child);
	buf_release(&out);
}

/* ---- surroundings -------------------------------------------------------------------- */

static void signals_are_clean_whatever_ours_are(void **state)
{
	(void)state;
	sigset_t set, before;
	struct buf out;
	int status, signal_number;

	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGRTMIN + 3, SIG_IGN);
	/* glibc's own, as everything finds it that make has started */
	const unsigned long ignore[4] = {(unsigned long)SIG_IGN};
	assert_int_equal(syscall(SYS_rt_sigaction, 33, ignore, NULL, (size_t)NSIG / 8), 0);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, &before);

	run_shell("exec cat /proc/self/status", &out, &status, &signal_number);
	assert_non_null(strstr(buf_cstr(&out),
		"SigBlk:\t0000000000000000\n"
		"SigIgn:\t0000000000000000\n"
		"SigCgt:\t0000000000000000\n"));
	assert_int_equal(status, 0); /* known although SIGCHLD was ignored */

	sigset_t now;
	sigprocmask(SIG_SETMASK, &before, &now);
	assert_true(sigismember(&now, SIGUSR1));
	assert_false(sigismember(&now, SIGUSR2)); /* our own mask came back */
	signal(SIGPIPE, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGRTMIN + 3, SIG_DFL);
	buf_release(&out);
}

static void only_descriptors_0_to_3_are_open(void **state)
{
	(void)state;
	static const struct {
		bool result_pipe;
		const char *expected;
	} cases[] = {{true, "0\n1\n2\n3\n"}, {false, "0\n1\n2\n"}};
	int leaky = fcntl(STDIN_FILENO, F_DUPFD, 9); /* not close-on-exec */

	for (size_t i = 0; i < COUNT(cases); i++) {
		char *argv[4];
		struct child_spec spec = shell_spec(
			"for fd in $(seq 0 30); do [ ! -e /proc/$$/fd/$fd ] || echo $fd; done", argv);
		struct child child;
		struct buf out;
		int status, signal_number;

		spec.result_pipe = cases[i].result_pipe;
		assert_int_equal(child_spawn(&spec, &child, NULL), 0);
		assert_int_equal(child.result >= 0, cases[i].result_pipe);
		buf_init(&out, 4096);
		read_all(child.out, &out);
		wait_exit(&child, &status, &signal_number);
		assert_string_equal(buf_cstr(&out), cases[i].expected);
		child_reap(&child);
		buf_release(&out);
	}
	close(leaky);
}

/* Pipe ends that have the numbers 0-3 themselves must not be overwritten by one another. */
static void works_when_low_descriptors_are_free(void **state)
{
	(void)state;
	int saved[4];
	struct child child;
	struct buf out;
	int status, signal_number;

	fflush(NULL);
	for (int i = 0; i < 4; i++) {
		saved[i] = fcntl(i, F_DUPFD_CLOEXEC, 20);
		close(i);
	}
	char *argv[4];
	struct child_spec spec = shell_spec("read a; echo out $a; echo err >&2; echo res >&3",
		argv);
	int spawned = child_spawn(&spec, &child, NULL);
	for (int i = 0; i < 4; i++) { /* move our ends away from where the old ones belong */
		int *mine[] = {&child.in, &child.out, &child.error, &child.result, &child.pidfd};
		for (size_t j = 0; j < COUNT(mine); j++)
			if (*mine[j] == i)
				*mine[j] = fcntl(i, F_DUPFD_CLOEXEC, 20);
	}
	for (int i = 0; i < 4; i++) {
		close(i);
		if (saved[i] >= 0) {
			dup2(saved[i], i);
			close(saved[i]);
		}
	}
	assert_int_equal(spawned, 0);
	assert_int_equal(write(child.in, "in\n", 3), 3);
	buf_init(&out, 100);
	read_all(child.out, &out);
	read_all(child.error, &out);
	read_all(child.result, &out);
	assert_string_equal(buf_cstr(&out), "out in\nerr\nres\n");
	wait_exit(&child, &status, &signal_number);
	child_reap(&child);
	buf_release(&out);
}

static void group_environment_and_directory(void **state)
{
	(void)state;
	char *argv[4];
	struct child_spec spec = shell_spec("env | sort; pwd; "
										"echo $$ $(cut -d' ' -f5 /proc/$$/stat)",
		argv);
	struct child child;
	struct buf out;
	int status, signal_number;
	char expected[200];

	spec.directory = "/usr";
	assert_int_equal(child_spawn(&spec, &child, NULL), 0);
	buf_init(&out, 4096);
	read_all(child.out, &out);
	wait_exit(&child, &status, &signal_number);
	/* PWD is the shell's own */
	snprintf(expected, sizeof(expected),
		"ONE=1\nPATH=/usr/bin:/bin\nPWD=/usr\n/usr\n%d %d\n", child.pid, child.pid);
	assert_string_equal(buf_cstr(&out), expected);
	child_reap(&child);
	buf_release(&out);
}

static void limits_hold(void **state)
{
	(void)state;
	char *argv[4];
	struct child_spec spec = shell_spec("ulimit -n; ulimit -t; ulimit -v", argv);
	struct child child;
	struct buf out;
	int status, signal_number;

	spec.limits = (struct child_limits){.memory_bytes = 100 << 20,
		.cpu_s = 7,
		.files = 33};
	assert_int_equal(child_spawn(&spec, &child, NULL), 0);
	buf_init(&out, 100);
	read_all(child.out, &out);
	wait_exit(&child, &status, &signal_number);
	assert_string_equal(buf_cstr(&out), "33\n7\n102400\n");
	child_reap(&child);
	buf_release(&out);
}

static void another_user_when_we_may(void **state)
{
	(void)state;
	char *argv[4];
	struct child_spec spec = shell_spec("id -u; id -g; id -G", argv);
	struct child child;
	struct err err = ERR_INIT;
	struct buf out;
	int status, signal_number;

	spec.set_user = true;
	spec.uid = spec.gid = 65534;
	if (geteuid() != 0) {
		assert_int_equal(child_spawn(&spec, &child, &err), -1);
		assert_int_equal(err.class, ERR_CONFIG);
		return;
	}
	assert_int_equal(child_spawn(&spec, &child, &err), 0);
	buf_init(&out, 100);
	read_all(child.out, &out);
	wait_exit(&child, &status, &signal_number);
	assert_string_equal(buf_cstr(&out), "65534\n65534\n65534\n");
	assert_int_equal(geteuid(), 0);
	child_reap(&child);
	buf_release(&out);
}

/* ---- failures ------------------------------------------------------------------------ */

static void what_cannot_be_executed_says_why(void **state)
{
	(void)state;
	static char *const argv[] = {"x", NULL};
	char *huge = test_malloc(140000);
	char *big_environment[] = {huge, NULL};
	const struct {
		const char *path;
		char *const *envp;
		const char *directory;
		int errnum;
	} cases[] = {
		{"/nonexistent/handler", environment, NULL, ENOENT},
		{"/etc/passwd", environment, NULL, EACCES},
		{"/bin/true", environment, "/nonexistent", ENOENT},
		{"/bin/true", big_environment, NULL,
			E2BIG}, /* one string of 128 KiB is too long */
	};

	memset(huge, 'x', 139999);
	huge[1] = '=';
	huge[139999] = '\0';
	size_t before = open_descriptors();
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct child_spec spec = {.path = cases[i].path,
			.argv = argv,
			.envp = cases[i].envp,
			.directory = cases[i].directory,
			.result_pipe = true};
		struct child child;
		struct err err = ERR_INIT;
		assert_int_equal(child_spawn(&spec, &child, &err), -1);
		assert_int_equal(err.class, ERR_CONFIG);
		assert_int_equal(err.errnum, cases[i].errnum);
		assert_non_null(strstr(err.text, cases[i].path));
		assert_int_equal(child.pid, 0);
		assert_int_equal(child.out, -1);
	}
	assert_int_equal(open_descriptors(), before);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing left to reap */
	assert_int_equal(errno, ECHILD);
	test_free(huge);
}

/* Four pipes and a pidfd need nine: with room for fewer, what was made is closed again. */
static void running_out_of_descriptors_leaks_none(void **state)
{
	(void)state;
	struct rlimit before, limit;
	int lowest = dup(STDIN_FILENO);

	close(lowest);
	getrlimit(RLIMIT_NOFILE, &before);
	for (rlim_t room = 0; room <= 8; room++) {
		char *argv[4];
		struct child_spec spec = shell_spec("exit 0", argv);
		struct child child;
		struct err err = ERR_INIT;
		limit = (struct rlimit){(rlim_t)lowest + room, before.rlim_max};
		setrlimit(RLIMIT_NOFILE, &limit);
		int spawned = child_spawn(&spec, &child, &err);
		setrlimit(RLIMIT_NOFILE, &before);
		assert_int_equal(spawned, -1);
		assert_int_equal(err.class, ERR_OS);
		assert_int_equal(err.errnum, EMFILE);
		assert_non_null(strstr(err.text, "RLIMIT_NOFILE is"));
		int now_lowest = dup(STDIN_FILENO);
		assert_int_equal(now_lowest, lowest);
		close(now_lowest);
	}
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* In a process of another user: root is not bound by RLIMIT_NPROC. */
static void running_out_of_processes_is_temporary(void **state)
{
	(void)state;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		char *argv[4];
		struct child_spec spec = shell_spec("exit 0", argv);
		struct child child;
		struct err err = ERR_INIT;
		struct rlimit none = {0, 0};
		if (geteuid() == 0 && setresuid(64999, 64999, 64999) != 0)
			_exit(2);
		setrlimit(RLIMIT_NPROC, &none);
		if (child_spawn(&spec, &child, &err) != -1)
			_exit(3);
		_exit(err.class == ERR_OS && err.errnum == EAGAIN &&
					strstr(err.text, "RLIMIT_NPROC is 0") != NULL
				? 0
				: 4);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void nothing_leaks_over_many_children(void **state)
{
	(void)state;
	size_t before = open_descriptors();

	for (int i = 0; i < 50; i++) {
		struct buf out;
		int status, signal_number;
		run_shell("echo $ONE", &out, &status, &signal_number);
		assert_string_equal(buf_cstr(&out), "1\n");
		buf_release(&out);
	}
	assert_int_equal(open_descriptors(), before);
}

/* ---- groups and the guard ------------------------------------------------------------ */

static pid_t read_pid(int fd)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	char text[32] = "";

	assert_int_equal(poll(&wait, 1, DEADLINE_MS), 1);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	return (pid_t)atoi(text);
}

static void the_group_dies_after_its_leader(void **state)
{
	(void)state;
	struct child child;
	int status, signal_number;

	spawn_shell("trap '' TERM; sleep 600 & echo $!; exit 5", &child);
	pid_t member = read_pid(child.out);
	wait_exit(&child, &status, &signal_number);
	assert_int_equal(status, 5);
	child_kill(&child, SIGTERM);
	assert_int_equal(kill(member, 0), 0); /* ignores TERM, has outlived its leader */
	child_reap(&child);
	assert_true(wait_gone(member));
}

/* A runner in miniature: starts a guard and one handler with a member, tells their pids,
 * and waits for its own end. */
static _Noreturn void miniature_runner(int report, bool orderly)
{
	struct child child;
	struct guard *guard = guard_start(3, NULL);
	pid_t pids[2];

	spawn_shell("sleep 600 >&- 2>&- 3>&- & echo $!; exec sleep 600", &child);
	guard_note(guard, 2, child.pid);
	pids[0] = child.pid;
	pids[1] = read_pid(child.out);
	if (orderly)
		guard_stop(guard);
	if (write(report, pids, sizeof(pids)) != sizeof(pids))
		_exit(1);
	if (orderly)
		_exit(0);
	for (;;)
		pause();
}

static void run_miniature(bool orderly, pid_t pids[2])
{
	int report[2], status;

	assert_int_equal(pipe2(report, O_CLOEXEC), 0);
	pid_t runner = fork();
	assert_true(runner >= 0);
	if (runner == 0)
		miniature_runner(report[1], orderly);
	close(report[1]);
	assert_int_equal(read(report[0], pids, 2 * sizeof(pid_t)), 2 * sizeof(pid_t));
	if (!orderly)
		kill(runner, SIGKILL);
	assert_int_equal(waitpid(runner, &status, 0), runner);
	char byte;
	assert_int_equal(read(report[0], &byte, 1), 0); /* the guard holds nothing open */
	close(report[0]);
}

static void the_guard_kills_groups_of_a_killed_runner(void **state)
{
	(void)state;
	pid_t pids[2];

	run_miniature(false, pids);
	assert_true(wait_gone(pids[0]));
	assert_true(wait_gone(pids[1]));
}

static void a_stopped_guard_kills_nothing(void **state)
{
	(void)state;
	pid_t pids[2];

	run_miniature(true, pids);
	assert_true(wait_gone(pids[0])); /* its parent-death signal */
	assert_int_equal(kill(pids[1], 0), 0);
	kill(pids[1], SIGKILL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exits_are_told_apart),
		cmocka_unit_test(a_running_child_has_not_exited),
		cmocka_unit_test(closed_stdin_is_an_end_of_file),
		cmocka_unit_test(input_is_there_before_the_child),
		cmocka_unit_test(a_child_that_closes_its_stdin_gives_epipe),
		cmocka_unit_test(the_result_descriptor_is_3),
		cmocka_unit_test(signals_are_clean_whatever_ours_are),
		cmocka_unit_test(only_descriptors_0_to_3_are_open),
		cmocka_unit_test(works_when_low_descriptors_are_free),
		cmocka_unit_test(group_environment_and_directory),
		cmocka_unit_test(limits_hold),
		cmocka_unit_test(another_user_when_we_may),
		cmocka_unit_test(what_cannot_be_executed_says_why),
		cmocka_unit_test(running_out_of_descriptors_leaks_none),
		cmocka_unit_test(running_out_of_processes_is_temporary),
		cmocka_unit_test(nothing_leaks_over_many_children),
		cmocka_unit_test(the_group_dies_after_its_leader),
		cmocka_unit_test(the_guard_kills_groups_of_a_killed_runner),
		cmocka_unit_test(a_stopped_guard_kills_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
