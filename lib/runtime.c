#include "runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "buf.h"

#define IPC_PREFIX "ipc://"
#define IPC_MAX_PATH (sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1)

/* Puts the path of the runtime directory. */
static int put_directory(struct buf *path, struct err *err)
{
	const char *own = getenv("OUTBOX_RUNTIME_DIR");
	const char *session = getenv("XDG_RUNTIME_DIR");

	if (own != NULL && own[0] != '\0')
		buf_put_str(path, str_of(own));
	else if (session != NULL && session[0] != '\0')
		buf_printf(path, "%s/outbox", session);
	else
		buf_put_str(path, STR("/run/outbox"));
	if (path->data[0] != '/')
		return err_set(err, ERR_CONFIG,
			"runtime directory \"%s\" is not an absolute path", buf_cstr(path));
	return 0;
}

char *runtime_endpoint(const char *name, struct err *err)
{
	struct buf path, endpoint;
	char *result = NULL;

	buf_init(&path, SIZE_MAX);
	buf_init(&endpoint, SIZE_MAX);
	if (put_directory(&path, err) == 0) {
		buf_printf(&path, "/%s", name);
		buf_printf(&endpoint, IPC_PREFIX "%s", buf_cstr(&path));
		if (path.len > IPC_MAX_PATH)
			err_set(err, ERR_CONFIG,
				"path \"%s\" is longer than %zu bytes, the most that an "
				"ipc endpoint can have",
				buf_cstr(&path), IPC_MAX_PATH);
		else
			result = mem_strdup(buf_cstr(&endpoint));
	}
	buf_release(&path);
	buf_release(&endpoint);
	return result;
}

/* Whether `path` is a file directly in `directory`. */
static bool lies_in(const char *path, const char *directory)
{
	const char *slash = strrchr(path, '/');
	size_t length = strlen(directory);

	while (length > 1 && directory[length - 1] == '/')
		length--;
	return slash != NULL && (size_t)(slash - path) == length &&
		memcmp(path, directory, length) == 0;
}

/* Makes the directory unless it is there, and refuses one in which others could put or
 * replace a socket. */
static int make_directory(const char *directory, struct err *err)
{
	struct stat status;

	if (mkdir(directory, 0700) < 0 && errno != EEXIST)
		return err_set_errno(err, ERR_CONFIG, errno,
			"could not make runtime directory \"%s\"", directory);
	if (lstat(directory, &status) < 0)
		return err_set_errno(err, ERR_OS, errno,
			"could not look at runtime directory \"%s\"", directory);
	if (!S_ISDIR(status.st_mode))
		return err_set(err, ERR_CONFIG, "runtime directory \"%s\" is not a directory",
			directory);
	if (status.st_uid != geteuid())
		return err_set(err, ERR_CONFIG,
			"runtime directory \"%s\" belongs to user %u, not to user %u", directory,
			status.st_uid, geteuid());
	if ((status.st_mode & 077) != 0)
		return err_set(err, ERR_CONFIG,
			"runtime directory \"%s\" has mode %04o, and must not be open to group or others",
			directory, (unsigned)status.st_mode & 07777);
	return 0;
}

static int lock_is_held(int fd, const char *endpoint, struct err *err)
{
	char holder[32];
	ssize_t length = pread(fd, holder, sizeof(holder) - 1, 0);

	holder[length > 0 ? length : 0] = '\0';
	holder[strcspn(holder, "\n")] = '\0';
	return err_set(err, ERR_TEMP, "endpoint \"%s\" is in use by process %s", endpoint,
		holder[0] != '\0' ? holder : "(unknown)");
}

/* The lock file stays when the process ends: removing it would race with the next one. */
static int take_lock(const char *lock_path, const char *endpoint, struct err *err)
{
	int fd = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return err_set_errno(err, ERR_CONFIG, errno, "could not open lock file \"%s\"",
			lock_path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno == EWOULDBLOCK)
			lock_is_held(fd, endpoint, err);
		else
			err_set_errno(err, ERR_OS, errno, "could not lock \"%s\"", lock_path);
		close(fd);
		return -1;
	}
	if (ftruncate(fd, 0) < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0) {
		err_set_errno(err, ERR_IO, errno, "could not write \"%s\"", lock_path);
		close(fd);
		return -1;
	}
	return fd;
}

int runtime_guard(const char *endpoint, struct err *err)
{
	const char *path = endpoint + strlen(IPC_PREFIX);
	struct buf directory, lock_path;
	int fd = -1;

	if (strncmp(endpoint, IPC_PREFIX, strlen(IPC_PREFIX)) != 0 || path[0] == '@' ||
		path[0] == '*' || path[0] == '\0')
		return -2; /* not a path in the file system: a second bind fails by itself */

	buf_init(&directory, SIZE_MAX);
	buf_init(&lock_path, SIZE_MAX);
	buf_printf(&lock_path, "%s.lock", path);
	if (put_directory(&directory, err) == 0 &&
		(!lies_in(path, buf_cstr(&directory)) ||
			make_directory(buf_cstr(&directory), err) == 0))
		fd = take_lock(buf_cstr(&lock_path), endpoint, err);
	buf_release(&directory);
	buf_release(&lock_path);
	return fd;
}
