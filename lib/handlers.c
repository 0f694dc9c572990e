#include "handlers.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "text.h"

#define WRITABLE_BY_OTHERS (S_IWGRP | S_IWOTH)
#define EXECUTABLE (S_IXUSR | S_IXGRP | S_IXOTH)

static void handler_init(struct handler *handler, const char *kind, const char *path)
{
	*handler = (struct handler){
		.kind = mem_strdup(kind),
		.path = mem_strdup(path),
		.argv = mem_alloc(2, sizeof(char *)),
		.envp = mem_alloc(1, sizeof(char *)),
		.lane = mem_strdup("default"),
		.timeout_ms = HANDLER_TIMEOUT_MS,
		.grace_ms = HANDLER_GRACE_MS,
		.mode = HANDLER_EXEC,
		.processes = 1,
		.window = HANDLER_STREAM_WINDOW,
	};
}

static void free_strings(char **strings)
{
	for (size_t i = 0; strings[i] != NULL; i++)
		free(strings[i]);
	free(strings);
}

static void handler_release(struct handler *handler)
{
	free(handler->kind);
	free(handler->path);
	free_strings(handler->argv);
	free_strings(handler->envp);
	free(handler->lane);
	free(handler->manifest);
}

static int compare_kinds(const void *a, const void *b)
{
	return strcmp(((const struct handler *)a)->kind, ((const struct handler *)b)->kind);
}

/* ---- what may be trusted ------------------------------------------------------------- */

static int check_not_writable(const char *path, const struct stat *status,
	struct err *err)
{
	if ((status->st_mode & WRITABLE_BY_OTHERS) == 0)
		return 0;
	return err_set(err, ERR_CONFIG,
		"\"%s\" is writable by group or others, who could run what they like", path);
}

/* Every folder from the handler folder down to the one that the file is in. */
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

static bool is_within(const char *folder, const char *path)
{
	size_t length = strlen(folder);

	return strncmp(path, folder, length) == 0 && path[length] == '/';
}

static bool has_ending(const char *name, const char *ending)
{
	size_t length = strlen(name), end = strlen(ending);

	return length > end && strcmp(name + length - end, ending) == 0;
}

static bool may_be_kind(const char *name)
{
	return text_is_kind(name, strlen(name)) && !has_ending(name, ".ini") &&
		!has_ending(name, ".so");
}

/* ---- the folder ---------------------------------------------------------------------- */

static void pass_over(const char *name, const char *why)
{
	log_event(LOG_DEBUG, "file_ignored", LOG_TEXT("file", name), LOG_TEXT("reason", why));
}

static void add(struct handlers *handlers, const char *kind, const char *file,
	const char *path)
{
	handlers->items = mem_realloc(handlers->items, handlers->count + 1,
		sizeof(*handlers->items));
	struct handler *handler = &handlers->items[handlers->count++];
	handler_init(handler, kind, path);
	handler->argv[0] = mem_strdup(file);
}

static int add_file(struct handlers *handlers, const char *folder, const char *name,
	struct err *err)
{
	char file[PATH_MAX], path[PATH_MAX];
	struct stat status;

	if (!may_be_kind(name)) {
		pass_over(name, "its name is not a kind");
		return 0;
	}
	if ((size_t)snprintf(file, sizeof(file), "%s/%s", folder, name) >= sizeof(file))
		return err_set(err, ERR_CONFIG, "the path of \"%s\" is too long", name);
	if (realpath(file, path) == NULL || stat(path, &status) != 0)
		return err_set_errno(err, ERR_CONFIG, errno, "could not resolve \"%s\"", file);
	if (!S_ISREG(status.st_mode) || (status.st_mode & EXECUTABLE) == 0) {
		pass_over(name, "it is not an executable file");
		return 0;
	}
	if (!is_within(folder, path))
		return err_set(err, ERR_CONFIG,
			"\"%s\" leads out of the handler folder, to \"%s\"", file, path);
	if (check_not_writable(path, &status, err) != 0 ||
		check_folders(folder, path, err) != 0)
		return -1;
	if (access(path, X_OK) != 0)
		return err_set_errno(err, ERR_CONFIG, errno, "could not execute \"%s\"", file);
	add(handlers, name, file, path);
	return 0;
}

static int add_files(struct handlers *handlers, const char *folder, struct err *err)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	int result = 0;

	if (dir == NULL)
		return err_set_errno(err, ERR_NOINPUT, errno,
			"could not read the handler folder \"%s\"", folder);
	while (result == 0 && (errno = 0, entry = readdir(dir)) != NULL)
		result = add_file(handlers, folder, entry->d_name, err);
	if (result == 0 && errno != 0)
		result = err_set_errno(err, ERR_IO, errno,
			"could not read the handler folder \"%s\"", folder);
	closedir(dir);
	return result;
}

static int load(const char *directory, struct handlers *handlers, struct err *err)
{
	char folder[PATH_MAX];
	struct stat status;

	if (realpath(directory, folder) == NULL || stat(folder, &status) != 0)
		return err_set_errno(err, ERR_NOINPUT, errno,
			"could not find the handler folder \"%s\"", directory);
	if (check_not_writable(folder, &status, err) != 0)
		return -1;
	if (add_files(handlers, folder, err) != 0)
		return -1;
	qsort(handlers->items, handlers->count, sizeof(*handlers->items), compare_kinds);
	return 0;
}

int handlers_load(const char *directory, struct handlers *handlers, struct err *err)
{
	*handlers = (struct handlers){0};
	handlers->items = mem_alloc(1, sizeof(*handlers->items));
	if (load(directory, handlers, err) == 0)
		return 0;
	handlers_release(handlers);
	return -1;
}

void handlers_release(struct handlers *handlers)
{
	for (size_t i = 0; i < handlers->count; i++)
		handler_release(&handlers->items[i]);
	free(handlers->items);
	*handlers = (struct handlers){0};
}

void handlers_keep_lane(struct handlers *handlers, const char *lane)
{
	size_t kept = 0;

	for (size_t i = 0; i < handlers->count; i++) {
		if (strcmp(handlers->items[i].lane, lane) == 0)
			handlers->items[kept++] = handlers->items[i];
		else
			handler_release(&handlers->items[i]);
	}
	handlers->count = kept;
}

const struct handler *handlers_find(const struct handlers *handlers, struct str kind)
{
	size_t low = 0, high = handlers->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct handler *handler = &handlers->items[middle];
		size_t length = strlen(handler->kind);
		size_t common = length < kind.n ? length : kind.n;
		int order = common > 0 ? memcmp(kind.s, handler->kind, common) : 0;
		if (order == 0 && kind.n == length)
			return handler;
		if (order < 0 || (order == 0 && kind.n < length))
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}
