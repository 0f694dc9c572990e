/*
 * Preloaded into a program: its results socket gets high-water marks of 10 messages instead
 * of ZeroMQ's own, and each message that the socket did not take is noted.
 *
 * environment: HWM_NOTES  the file that gets a line for each
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

static void *results;

static void *next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static void limit(void *socket, const char *address)
{
	static const int messages = 10;
	const char *name = strrchr(address, '/');

	if (name == NULL || strcmp(name, "/results") != 0)
		return;
	results = socket;
	zmq_setsockopt(socket, ZMQ_SNDHWM, &messages, sizeof(messages));
	zmq_setsockopt(socket, ZMQ_RCVHWM, &messages, sizeof(messages));
}

int zmq_bind(void *socket, const char *address)
{
	int (*real)(void *, const char *) = next("zmq_bind");

	limit(socket, address);
	return real(socket, address);
}

int zmq_connect(void *socket, const char *address)
{
	int (*real)(void *, const char *) = next("zmq_connect");

	limit(socket, address);
	return real(socket, address);
}

static void note(void)
{
	const char *path = getenv("HWM_NOTES");
	int fd = path == NULL ? -1
						  : open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);

	if (fd < 0)
		return;
	if (write(fd, "full\n", 5) != 5)
		abort();
	close(fd);
}

int zmq_send(void *socket, const void *bytes, size_t count, int flags)
{
	int (*real)(void *, const void *, size_t, int) = next("zmq_send");
	int rc = real(socket, bytes, count, flags);
	int errnum = errno;

	if (rc < 0 && errnum == EAGAIN && socket == results)
		note();
	errno = errnum;
	return rc;
}
