#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buf.h"

struct guard {
	_Atomic pid_t *groups; /* shared with the guard process; 0: none */
	size_t slots;
	pid_t pid;
	int alive; /* open for as long as this process lives; only the guard reads the other end */
};

/* Waits for the end of the runner, however it ends, and kills what it left behind. */
static _Noreturn void guard_main(_Atomic pid_t *groups, size_t slots, int alive)
{
	sigset_t all;
	char byte;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	setsid();
	prctl(PR_SET_NAME, "outbox-guard");
	/* Nothing of the runner's may stay open here: somebody may wait for its end of file. */
	if (dup2(alive, STDIN_FILENO) < 0 || close_range(1, ~0U, 0) != 0 || chdir("/") != 0)
		_exit(1);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	for (size_t i = 0; i < slots; i++) {
		pid_t group = atomic_load(&groups[i]);
		if (group > 0)
			kill(-group, SIGKILL);
	}
	_exit(0);
}

struct guard *guard_start(size_t slots, struct err *err)
{
	size_t bytes = slots * sizeof(_Atomic pid_t);
	void *groups = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);
	if (groups == MAP_FAILED) {
		err_set_errno(err, ERR_OS, errno, "could not map the guard's table");
		return NULL;
	}
	int alive[2];
	if (pipe2(alive, O_CLOEXEC) != 0) {
		err_set_errno(err, ERR_OS, errno, "could not make a pipe for the guard");
		munmap(groups, bytes);
		return NULL;
	}
	pid_t pid = fork();
	if (pid == 0)
		guard_main(groups, slots, alive[0]);
	int errnum = errno;
	close(alive[0]);
	if (pid < 0) {
		err_set_errno(err, ERR_OS, errnum, "could not start the guard");
		close(alive[1]);
		munmap(groups, bytes);
		return NULL;
	}
	struct guard *guard = mem_alloc(1, sizeof(*guard));
	*guard = (struct guard){groups, slots, pid, alive[1]};
	return guard;
}

void guard_note(struct guard *guard, size_t slot, pid_t group)
{
	atomic_store(&guard->groups[slot], group);
}

bool guard_find_slot(const struct guard *guard, size_t first, size_t *slot)
{
	for (*slot = first; *slot < guard->slots; (*slot)++)
		if (atomic_load(&guard->groups[*slot]) == 0)
			return true;
	return false;
}

void guard_stop(struct guard *guard)
{
	if (guard == NULL)
		return;
	for (size_t i = 0; i < guard->slots; i++)
		guard_note(guard, i, 0);
	close(guard->alive);
	while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	munmap((void *)guard->groups, guard->slots * sizeof(*guard->groups));
	free(guard);
}
