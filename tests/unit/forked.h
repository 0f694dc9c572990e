/*
 * For functions that print or exit: runs them in a child process and keeps what they said.
 */
#ifndef OUTBOX_TESTS_FORKED_H
#define OUTBOX_TESTS_FORKED_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * Runs fn(ctx) in a child whose descriptor `fd` is captured into output, which is cut at
 * size and ended with NUL. Returns the exit status, that of a plain return being 0, or 128
 * plus the signal.
 */
static int run_forked(void (*fn)(void *ctx), void *ctx, int fd, char *output, size_t size)
{
	int ends[2], status;
	size_t length = 0;
	ssize_t got;

	if (pipe(ends) < 0)
		abort();
	fflush(NULL);
	pid_t pid = fork();
	if (pid < 0)
		abort();
	if (pid == 0) {
		dup2(ends[1], fd);
		close(ends[0]);
		close(ends[1]);
		fn(ctx);
		fflush(NULL);
		_exit(0);
	}
	close(ends[1]);
	while ((got = read(ends[0], output + length, size - 1 - length)) > 0)
		length += (size_t)got;
	output[length] = '\0';
	close(ends[0]);
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

#endif
