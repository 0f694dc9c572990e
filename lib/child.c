#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	PIPES = 4, /* stdin, stdout, stderr, result: the child's descriptors 0-3 */
	CHILD_STACK = 32 * 1024, /* bytes; the child makes system calls only */
	PIPE_BYTES = 64 * 1024,  /* what a pipe holds unless it is told otherwise */
};

#define RESULT_FD 3

/*
 * What parent and child share. The child runs in the parent's memory (CLONE_VM) while the
 * parent waits (CLONE_VFORK), so the child reports a failure by storing it here.
 */
struct launch {
	const struct child_spec *spec;
	pid_t parent;
	int ends[PIPES]; /* the child's ends; -1: none */
	volatile int errnum;
	const char *volatile step; /* what failed; NULL: nothing did */
};

/* ---- the child, before exec: system calls only; it must not touch the parent's state -- */

#define CHILD_SIDE __attribute__((no_sanitize("address")))

/*
 * glibc's setters of ids tell every thread of the process, and the threads it would find
 * here are the parent's: so the bare system calls.
 */
CHILD_SIDE static int become_user(const struct child_spec *spec)
{
	if (syscall(SYS_setgroups, (size_t)0, NULL) != 0 ||
		syscall(SYS_setresgid, spec->gid, spec->gid, spec->gid) != 0)
		return -1;
	return (int)syscall(SYS_setresuid, spec->uid, spec->uid, spec->uid);
}

CHILD_SIDE static int set_limit(__rlimit_resource_t resource, int64_t value)
{
	struct rlimit limit = {(rlim_t)value, (rlim_t)value};

	/* At the hard limit of this one a process gets KILL, like from anybody; before it XCPU. */
	if (resource == RLIMIT_CPU)
		limit.rlim_max++;
	return value == 0 ? 0 : setrlimit(resource, &limit);
}

CHILD_SIDE static int set_limits(const struct child_limits *limits)
{
	if (set_limit(RLIMIT_AS, limits->memory_bytes) != 0 ||
		set_limit(RLIMIT_CPU, limits->cpu_s) != 0 ||
		set_limit(RLIMIT_NOFILE, limits->files) != 0)
		return -1;
	return set_limit(RLIMIT_NPROC, limits->processes);
}

/* The ends go to 0-3 by way of higher numbers, since one may be in the place of another. */
CHILD_SIDE static int place_descriptors(struct launch *launch)
{
	unsigned first_closed = RESULT_FD + (launch->ends[RESULT_FD] >= 0);

	for (int i = 0; i < PIPES; i++) {
		if (launch->ends[i] < 0 || launch->ends[i] >= PIPES)
			continue;
		launch->ends[i] = fcntl(launch->ends[i], F_DUPFD_CLOEXEC, PIPES);
		if (launch->ends[i] < 0)
			return -1;
	}
	for (int i = 0; i < PIPES; i++)
		if (launch->ends[i] >= 0 && dup2(launch->ends[i], i) < 0)
			return -1;
	return close_range(first_closed, ~0U, CLOSE_RANGE_CLOEXEC);
}

/* Handlers would be reset by exec; ignored signals stay ignored unless told otherwise. */
CHILD_SIDE static void reset_signals(void)
{
	/* The kernel's struct sigaction, of SIG_DFL. By the bare system call, because glibc's
	 * refuses its own signals 32 and 33, which posix_spawn leaves ignored in what it starts:
	 * in all that make runs, for one. */
	static const unsigned long by_default[4];

	for (int number = 1; number < NSIG; number++)
		syscall(SYS_rt_sigaction, number, by_default, NULL, (size_t)NSIG / 8);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

CHILD_SIDE static const char *child_prepare(struct launch *launch)
{
	const struct child_spec *spec = launch->spec;

	if (setpgid(0, 0) != 0)
		return "make a process group for";
	if (place_descriptors(launch) != 0)
		return "set the descriptors of";
	if (spec->directory != NULL && chdir(spec->directory) != 0)
		return "change the directory for";
	if (set_limits(&spec->limits) != 0)
		return "set the limits of";
	if (spec->set_user && become_user(spec) != 0)
		return "change the user of";
	/* After the change of user, which would clear it. A parent that died before is missed by
	 * the signal and found by its number. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
		return "tie to this process";
	if (getppid() != launch->parent)
		_exit(127);
	reset_signals();
	return NULL;
}

CHILD_SIDE static int child_main(void *argument)
{
	struct launch *launch = argument;
	const char *step = child_prepare(launch);

	if (step == NULL) {
		execve(launch->spec->path, launch->spec->argv, launch->spec->envp);
		step = "execute";
	}
	launch->errnum = errno;
	launch->step = step;
	_exit(127);
}

/* ---- the parent ---------------------------------------------------------------------- */

static void close_if_open(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_all(int fds[PIPES])
{
	for (int i = 0; i < PIPES; i++)
		close_if_open(&fds[i]);
}

static bool is_shortage(int errnum)
{
	return errnum == EAGAIN || errnum == ENOMEM || errnum == EMFILE || errnum == ENFILE;
}

/* The limit behind an error, with its value: the operator's next question. */
static void describe_limit(int errnum, char *text, size_t size)
{
	struct rlimit limit;

	if (errnum == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0)
		snprintf(text, size, "RLIMIT_NOFILE is %ju", (uintmax_t)limit.rlim_cur);
	else if (errnum == EAGAIN && getrlimit(RLIMIT_NPROC, &limit) == 0 &&
		limit.rlim_cur != RLIM_INFINITY)
		snprintf(text, size, "RLIMIT_NPROC is %ju, or pids.max of the control group",
			(uintmax_t)limit.rlim_cur);
	else if (errnum == EAGAIN)
		snprintf(text, size, "pids.max of the control group or kernel.threads-max");
	else if (errnum == ENFILE)
		snprintf(text, size, "fs.file-max of the host");
	else
		snprintf(text, size, "memory of the host or the control group");
}

static int shortage(struct err *err, int errnum, const char *what)
{
	char limit[96];

	describe_limit(errnum, limit, sizeof(limit));
	err_set(err, ERR_OS, "could not %s: %s (%s)", what, strerror(errnum), limit);
	if (err != NULL)
		err->errnum = errnum;
	return -1;
}

/* mine[i] is the runner's end of pipe i, non-blocking; theirs[i] the child's. */
static int pipes_open(bool result_pipe, int mine[PIPES], int theirs[PIPES],
	struct err *err)
{
	int count = result_pipe ? PIPES : PIPES - 1;

	for (int i = 0; i < PIPES; i++)
		mine[i] = theirs[i] = -1;
	for (int i = 0; i < count; i++) {
		int ends[2];
		if (pipe2(ends, O_CLOEXEC) != 0) {
			int errnum = errno;
			close_all(mine);
			close_all(theirs);
			return shortage(err, errnum, "make a pipe for a handler");
		}
		mine[i] = ends[i == STDIN_FILENO ? 1 : 0];
		theirs[i] = ends[i == STDIN_FILENO ? 0 : 1];
		fcntl(mine[i], F_SETFL, O_NONBLOCK);
	}
	return 0;
}

/* Returns how much of the input the pipe has taken. A larger pipe may be refused. */
static size_t fill_input(int fd, const struct child_spec *spec)
{
	if (spec->input_bytes > PIPE_BYTES && spec->input_bytes <= INT_MAX)
		fcntl(fd, F_SETPIPE_SZ, (int)spec->input_bytes);
	ssize_t written = write(fd, spec->input, spec->input_bytes);
	return written > 0 ? (size_t)written : 0;
}

/* Exit statuses are lost where SIGCHLD is ignored, as a parent may have left it to us. */
static void keep_exit_statuses(void)
{
	struct sigaction action;

	sigaction(SIGCHLD, NULL, &action);
	if (action.sa_handler == SIG_IGN || (action.sa_flags & SA_NOCLDWAIT) != 0)
		signal(SIGCHLD, SIG_DFL);
}

/*
 * vfork, by clone(2), so that the child has a stack of its own and the pidfd exists from the
 * same instant: when descriptors run out nothing has been started. Signals are blocked: no
 * handler of the parent's may run in the child.
 */
static pid_t launch_clone(struct launch *launch, int *pidfd)
{
	_Alignas(16) char stack[CHILD_STACK];
	sigset_t all, before;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid_t pid = clone(child_main, stack + sizeof(stack),
		CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, launch, pidfd);
	int errnum = errno;
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = errnum;
	return pid;
}

static pid_t wait_for(pid_t pid)
{
	pid_t waited;

	do
		waited = waitpid(pid, NULL, 0);
	while (waited < 0 && errno == EINTR);
	return waited;
}

static int launch_error(const struct launch *launch, struct err *err)
{
	if (is_shortage(launch->errnum))
		return shortage(err, launch->errnum, "start a handler");
	err_set(err, ERR_CONFIG, "could not %s \"%s\": %s (%s)", launch->step,
		launch->spec->path, strerror(launch->errnum), strerrorname_np(launch->errnum));
	if (err != NULL)
		err->errnum = launch->errnum;
	return -1;
}

int child_spawn(const struct child_spec *spec, struct child *child, struct err *err)
{
	struct launch launch = {.spec = spec, .parent = getpid()};
	int mine[PIPES];
	int pidfd = -1;

	*child = (struct child){.pidfd = -1, .in = -1, .out = -1, .error = -1, .result = -1};
	keep_exit_statuses();
	if (pipes_open(spec->result_pipe, mine, launch.ends, err) != 0)
		return -1;
	size_t input_taken = fill_input(mine[STDIN_FILENO], spec);
	int theirs[PIPES];
	memcpy(theirs, launch.ends, sizeof(theirs)); /* the child renumbers its own */
	pid_t pid = launch_clone(&launch, &pidfd);
	int clone_errnum = errno;
	close_all(theirs);
	if (pid < 0) {
		close_all(mine);
		return shortage(err, clone_errnum, "start a process for a handler");
	}
	if (launch.step != NULL) {
		wait_for(pid);
		close(pidfd);
		close_all(mine);
		return launch_error(&launch, err);
	}
	*child = (struct child){pid, pidfd, mine[0], mine[1], mine[2], mine[RESULT_FD],
		input_taken};
	return 0;
}

int child_write(const struct child *child, struct buf *bytes)
{
	while (bytes->len > 0) {
		ssize_t written = write(child->in, bytes->data, bytes->len);
		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			return errno == EAGAIN ? 0 : -1;
		buf_consume(bytes, (size_t)written);
	}
	return 1;
}

void child_kill(const struct child *child, int signal_number)
{
	if (child->pid <= 0)
		return;
	/* A leader that moved itself into another group is still ours. */
	if (kill(-child->pid, signal_number) != 0)
		syscall(SYS_pidfd_send_signal, child->pidfd, signal_number, NULL, 0);
}

bool child_has_exited(const struct child *child, int *exit_status, int *signal_number)
{
	siginfo_t info = {0};
	int waited;

	do
		waited = waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT);
	while (waited != 0 && errno == EINTR);
	if (waited != 0 || info.si_pid == 0)
		return false;
	bool exited = info.si_code == CLD_EXITED;
	*exit_status = exited ? info.si_status : -1;
	*signal_number = exited ? 0 : info.si_status;
	return true;
}

void child_reap(struct child *child)
{
	if (child->pid > 0) {
		child_kill(child, SIGKILL);
		wait_for(child->pid);
	}
	child->pid = 0;
	close_if_open(&child->pidfd);
	close_if_open(&child->in);
	close_if_open(&child->out);
	close_if_open(&child->error);
	close_if_open(&child->result);
}

void child_finish(struct child *child, struct loop *loop, struct guard *guard,
	size_t slot)
{
	loop_close_fd(loop, &child->in);
	loop_close_fd(loop, &child->out);
	loop_close_fd(loop, &child->error);
	loop_close_fd(loop, &child->result);
	loop_del_fd(loop, child->pidfd);
	if (child->pid > 0) {
		/* The guard may forget the group once it is dead, and must before its number is free. */
		child_kill(child, SIGKILL);
		guard_note(guard, slot, 0);
	}
	child_reap(child);
}
