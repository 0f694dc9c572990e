/*
 * spawn: how many processes a second this machine can start, feed, listen to and reap. It
 * is the yardstick of exec handlers, and uses nothing of outbox: vfork and exec, a document
 * to stdin, stdout and stderr read to their ends, a process group and a pidfd for each.
 *
 * usage: spawn [-j N] COUNT COMMAND [ARGUMENT ...]
 *
 * Prints the rate, in processes a second.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "die.h"

#define MAX_SLOTS 1000

static const char document[] =
	"{\"id\":\"4711\",\"kind\":\"bench.noop\",\"payload\":{\"id\":1000000,\"kind\":"
	"\"welcome_email\",\"to\":\"user.name@example.com\",\"ref\":\"0b9f6a52-7c1e-4d7a-9a55-"
	"2f8f3f0c1d11\"},\"attempt\":1,\"max_attempts\":8,\"idempotency_key\":\"4711\","
	"\"created_at\":\"2026-11-29T15:59:56.123456Z\",\"trigger\":\"automatic\"}\n";

enum end { OUT, ERROR, EXIT, ENDS };

struct slot {
	struct watch {
		struct slot *slot;
		int fd; /* -1: closed */
	} watches[ENDS];
	int open; /* of the watches */
};

static int poller;
static char *const no_environment[] = {"PATH=/usr/local/bin:/usr/bin:/bin", NULL};

static void make_pipe(int ends[2])
{
	if (pipe2(ends, O_CLOEXEC) != 0)
		die(EX_OSERR, "could not make a pipe: %m");
}

/* In the child of a vfork: nothing here may touch what the parent will go on using. */
static void become(char **argv, const int in[2], const int out[2], const int error[2],
	const sigset_t *signals)
{
	setpgid(0, 0);
	dup2(in[0], STDIN_FILENO);
	dup2(out[1], STDOUT_FILENO);
	dup2(error[1], STDERR_FILENO);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, signals, NULL);
	execve(argv[0], argv, no_environment);
	_exit(127);
}

static void watch(struct slot *slot, enum end end, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &slot->watches[end]};

	slot->watches[end] = (struct watch){.slot = slot, .fd = fd};
	slot->open++;
	if (fd < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) != 0)
		die(EX_OSERR, "could not watch a child: %m");
}

static void start(struct slot *slot, char **argv)
{
	int in[2], out[2], error[2];
	sigset_t all, before;

	make_pipe(in);
	make_pipe(out);
	make_pipe(error);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid_t pid = vfork();
	if (pid == 0)
		become(argv, in, out, error, &before);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (pid < 0)
		die(EX_OSERR, "could not start a process: %m");
	close(in[0]);
	close(out[1]);
	close(error[1]);
	/* it need not read this */
	if (write(in[1], document, sizeof(document) - 1) < 0 && errno != EPIPE)
		die(EX_OSERR, "could not write to a child: %m");
	close(in[1]);
	watch(slot, OUT, out[0]);
	watch(slot, ERROR, error[0]);
	watch(slot, EXIT, pidfd_open(pid, 0));
}

static void reap(int pidfd)
{
	siginfo_t info;

	if (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED) != 0)
		die(EX_OSERR, "could not wait for a child: %m");
	if (info.si_code != CLD_EXITED || info.si_status != 0)
		die(EX_SOFTWARE, "a child ended with status %d", info.si_status);
}

/* Returns whether the process is gone with all that it has said. */
static bool attend(struct watch *watched)
{
	struct slot *slot = watched->slot;
	char bytes[4096];

	if (watched == &slot->watches[EXIT])
		reap(watched->fd);
	else if (read(watched->fd, bytes, sizeof(bytes)) > 0)
		return false;
	epoll_ctl(poller, EPOLL_CTL_DEL, watched->fd, NULL);
	close(watched->fd);
	watched->fd = -1;
	return --slot->open == 0;
}

static void run(long count, int slots_count, char **argv)
{
	static struct slot slots[MAX_SLOTS];
	long started = 0, ended = 0;

	for (int i = 0; i < slots_count && started < count; i++, started++)
		start(&slots[i], argv);
	while (ended < count) {
		struct epoll_event events[64];
		int ready = epoll_wait(poller, events, 64, -1);

		for (int i = 0; i < ready; i++) {
			struct watch *watched = events[i].data.ptr;

			if (!attend(watched))
				continue;
			ended++;
			if (started++ < count)
				start(watched->slot, argv);
		}
	}
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	int slots = 4, option;

	while ((option = getopt(argc, argv, "+j:")) == 'j')
		slots = atoi(optarg);
	long count = optind < argc ? atol(argv[optind]) : 0;
	if (option != -1 || argc - optind < 2 || count < 1 || slots < 1 || slots > MAX_SLOTS)
		die(EX_USAGE, "usage: spawn [-j N] COUNT COMMAND [ARGUMENT ...]");
	signal(SIGPIPE, SIG_IGN);
	poller = epoll_create1(EPOLL_CLOEXEC);
	if (poller < 0)
		die(EX_OSERR, "could not make an epoll: %m");
	double begin = seconds();
	run(count, slots, argv + optind + 1);
	printf("%.0f\n", (double)count / (seconds() - begin));
	return 0;
}
