/*
 * stream: a stream handler that does nothing: one JSON document a line comes in, one with
 * the same id goes out. Reads what there is and answers all of it with one write. Says in a
 * FIFO what it does, as noop does.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "die.h"

#define INPUT_BYTES (1 << 20) /* no line of this benchmark is longer */

static const char id_key[] = "\"id\":\"";

static void write_all(int fd, const char *bytes, size_t count)
{
	while (count > 0) {
		ssize_t written = write(fd, bytes, count);

		if (written < 0)
			die(EX_IOERR, "could not write: %m");
		bytes += written;
		count -= (size_t)written;
	}
}

static void stamp(int fd, const char *id, int length)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	dprintf(fd, "%.*s %jd\n", length, id,
		(intmax_t)now.tv_sec * 1000000000 + now.tv_nsec);
}

/* Returns how many bytes of the line's answer were put into out. The runner writes the id
 * first, before anything that a payload could imitate. */
static size_t answer(const char *line, size_t length, char *out, int stamps)
{
	const char *id = memmem(line, length, id_key, sizeof(id_key) - 1);

	if (id == NULL)
		die(EX_DATAERR, "a line has no id");
	id += sizeof(id_key) - 1;
	int digits = (int)strspn(id, "0123456789");
	if (stamps >= 0)
		stamp(stamps, id, digits);
	return (size_t)sprintf(out, "{\"id\":\"%.*s\",\"outcome\":\"ok\"}\n", digits, id);
}

/* Answers the whole lines at the front of in, and returns how many bytes those are. */
static size_t answer_lines(const char *in, size_t held, int stamps, int counter)
{
	/* an answer is shorter than the line that it is to */
	static char out[INPUT_BYTES], ticks[INPUT_BYTES];
	size_t line = 0, out_length = 0, count = 0;
	const char *end;

	while ((end = memchr(in + line, '\n', held - line)) != NULL) {
		out_length += answer(in + line, (size_t)(end - (in + line)), out + out_length,
			stamps);
		line = (size_t)(end + 1 - in);
		count++;
	}
	if (counter >= 0)
		write_all(counter, ticks, count);
	write_all(STDOUT_FILENO, out, out_length);
	return line;
}

static int open_fifo(const char *variable)
{
	const char *path = getenv(variable);
	int fd = path != NULL ? open(path, O_WRONLY) : -1;

	if (path != NULL && fd < 0)
		die(EX_NOINPUT, "could not open \"%s\": %m", path);
	return fd;
}

int main(void)
{
	static char in[INPUT_BYTES];
	const int stamps = open_fifo("BENCH_STAMPS"), counter = open_fifo("BENCH_COUNT");
	size_t held = 0;
	ssize_t got;

	while ((got = read(STDIN_FILENO, in + held, INPUT_BYTES - held)) > 0) {
		held += (size_t)got;
		size_t done = answer_lines(in, held, stamps, counter);
		held -= done;
		memmove(in, in + done, held);
	}
	if (got < 0)
		die(EX_IOERR, "could not read: %m");
	return 0;
}
