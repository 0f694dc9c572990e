/*
 * noop: an exec handler that does nothing. For those who want to know, it first says so in a
 * FIFO: with BENCH_STAMPS naming one, when it was started, as a line "JOB NANOSECONDS" of
 * CLOCK_MONOTONIC; with BENCH_COUNT, one byte.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int stamp(const char *fifo, const struct timespec *now)
{
	const char *job = getenv("OUTBOX_JOB_ID");
	int fd = open(fifo, O_WRONLY);

	if (fd < 0 || job == NULL)
		return EXIT_FAILURE;
	return dprintf(fd, "%s %jd\n", job,
			   (intmax_t)now->tv_sec * 1000000000 + now->tv_nsec) < 0;
}

static int count(const char *fifo)
{
	int fd = open(fifo, O_WRONLY);

	return fd < 0 || write(fd, "x", 1) != 1;
}

int main(void)
{
	const char *stamps = getenv("BENCH_STAMPS"), *counter = getenv("BENCH_COUNT");
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (stamps != NULL)
		return stamp(stamps, &now);
	return counter != NULL ? count(counter) : 0;
}
