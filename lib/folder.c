#include "folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WRITABLE_BY_OTHERS (S_IWGRP | S_IWOTH)

static int check_not_writable(const char *path, const struct stat *status,
	struct err *err)
{
	if ((status->st_mode & WRITABLE_BY_OTHERS) == 0)
		return 0;
	return err_set(err, ERR_CONFIG,
		"\"%s\" is writable by group or others, who could run what they like", path);
}

int folder_open(const char *directory, char folder[PATH_MAX], struct err *err)
{
	struct stat status;

	if (realpath(directory, folder) == NULL || stat(folder, &status) != 0)
		return err_set_errno(err, ERR_NOINPUT, errno,
			"could not find the handler folder \"%s\"", directory);
	return check_not_writable(folder, &status, err);
}

int folder_find(const char *folder, const char *name, struct folder_file *file,
	struct err *err)
{
	size_t size = sizeof(file->file);

	if ((size_t)snprintf(file->file, size, "%s/%s", folder, name) >= size)
		return err_set(err, ERR_CONFIG, "the path of \"%s\" is too long", name);
	if (realpath(file->file, file->path) == NULL || stat(file->path, &file->status) != 0)
		return err_set_errno(err, ERR_CONFIG, errno, "could not resolve \"%s\"",
			file->file);
	return 0;
}

static bool is_within(const char *folder, const char *path)
{
	size_t length = strlen(folder);

	return strncmp(path, folder, length) == 0 && path[length] == '/';
}

/* Every folder from the one that the file is in up to the handler folder. */
static int check_folders(const char *folder, const char *path, struct err *err)
{
	char parent[PATH_MAX];
	struct stat status;

	snprintf(parent, sizeof(parent), "%s", path);
	for (;;) {
		*strrchr(parent, '/') = '\0';
		if (strlen(parent) < strlen(folder))
			return 0;
		if (stat(parent, &status) != 0)
			return err_set_errno(err, ERR_CONFIG, errno, "could not look at \"%s\"",
				parent);
		if (check_not_writable(parent, &status, err) != 0)
			return -1;
	}
}

int folder_check(const char *folder, const struct folder_file *file, struct err *err)
{
	if (!is_within(folder, file->path))
		return err_set(err, ERR_CONFIG,
			"\"%s\" leads out of the handler folder, to \"%s\"", file->file, file->path);
	if (check_not_writable(file->path, &file->status, err) != 0)
		return -1;
	return check_folders(folder, file->path, err);
}

static int read_all(int fd, const char *path, struct buf *text, struct err *err)
{
	char chunk[4096];
	ssize_t got;

	while ((got = read(fd, chunk, sizeof(chunk))) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_set_errno(err, ERR_CONFIG, errno, "could not read \"%s\"", path);
		if (buf_put(text, chunk, (size_t)got) != 0)
			return err_set(err, ERR_CONFIG, "\"%s\" has more than %zu bytes", path,
				text->max);
	}
	return 0;
}

int folder_read(const char *folder, const char *name, struct buf *text, struct err *err)
{
	struct folder_file file;

	if (folder_find(folder, name, &file, err) != 0 ||
		folder_check(folder, &file, err) != 0)
		return -1;
	if (!S_ISREG(file.status.st_mode))
		return err_set(err, ERR_CONFIG, "\"%s\" is not a file", file.file);
	int fd = open(file.path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_set_errno(err, ERR_CONFIG, errno, "could not open \"%s\"", file.file);
	int result = read_all(fd, file.file, text, err);
	close(fd);
	return result;
}
