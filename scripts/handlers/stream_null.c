/*
 * A stream handler in C that does nothing: shows the loop. It reads what is there, answers all
 * whole lines of it, and writes the answers at once.
 *
 * Build it into the handler folder, and say in KIND.ini that it is one:
 *
 *	cc -O2 -o handlers.d/example.null stream_null.c
 *	printf '[handler]\nmode = stream\n' >handlers.d/example.null.ini
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BYTES (8 << 20) /* of input that is held; a payload has at most 256 KiB */

static void write_all(const char *bytes, size_t count)
{
	while (count > 0) {
		ssize_t written = write(STDOUT_FILENO, bytes, count);
		if (written < 0)
			exit(1);
		bytes += written;
		count -= (size_t)written;
	}
}

/* The runner writes the id first: {"id":"4711",… Returns the length of the answer. */
static size_t answer(const char *line, char *out)
{
	size_t digits = strspn(line + strlen("{\"id\":\""), "0123456789");

	return (size_t)sprintf(out, "{\"id\":\"%.*s\"}\n", (int)digits,
		line + strlen("{\"id\":\""));
}

int main(void)
{
	static char in[MAX_BYTES + 1], out[MAX_BYTES]; /* an answer is shorter than its line */
	size_t held = 0;
	ssize_t got;

	while ((got = read(STDIN_FILENO, in + held, MAX_BYTES - held)) > 0) {
		char *line = in, *end;
		size_t answered = 0;
		held += (size_t)got;
		in[held] = '\0';
		while ((end = memchr(line, '\n', held - (size_t)(line - in))) != NULL) {
			answered += answer(line, out + answered);
			line = end + 1;
		}
		write_all(out, answered);
		held -= (size_t)(line - in);
		memmove(in, line, held);
	}
	return got < 0;
}
