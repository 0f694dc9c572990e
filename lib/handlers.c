#include "handlers.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "folder.h"
#include "log.h"
#include "manifest.h"
#include "text.h"

#define EXECUTABLE (S_IXUSR | S_IXGRP | S_IXOTH)

static bool has_ending(const char *name, const char *ending)
{
	size_t length = strlen(name), end = strlen(ending);

	return length > end && strcmp(name + length - end, ending) == 0;
}

static bool is_manifest(const char *name)
{
	return has_ending(name, MANIFEST_ENDING) && name[0] != '.';
}

static bool may_be_kind(const char *name)
{
	return text_is_kind(name, strlen(name)) && !has_ending(name, ".so");
}

/* ---- one file ------------------------------------------------------------------------ */

static struct handler *add(struct handlers *handlers)
{
	handlers->items = mem_realloc(handlers->items, handlers->count + 1,
		sizeof(*handlers->items));
	return &handlers->items[handlers->count++];
}

static void pass_over(const char *name, const char *why)
{
	log_event(LOG_DEBUG, "file_ignored", LOG_TEXT("file", name), LOG_TEXT("reason", why));
}

static int add_executable(struct handlers *handlers, const char *folder, const char *name,
	struct err *err)
{
	struct folder_file file;

	if (!may_be_kind(name)) {
		pass_over(name, "its name is not a kind");
		return 0;
	}
	if (folder_find(folder, name, &file, err) != 0)
		return -1;
	if (!S_ISREG(file.status.st_mode) || (file.status.st_mode & EXECUTABLE) == 0) {
		pass_over(name, "it is not an executable file");
		return 0;
	}
	if (folder_check(folder, &file, err) != 0)
		return -1;
	if (access(file.path, X_OK) != 0)
		return err_set_errno(err, ERR_CONFIG, errno, "could not execute \"%s\"",
			file.file);
	struct handler *handler = add(handlers);
	handler_init(handler, name, name);
	handler->path = mem_strdup(file.path);
	handler_add_argument(handler, file.file);
	return 0;
}

static int add_manifest(struct handlers *handlers, const char *folder, const char *name,
	struct err *err)
{
	struct handler handler;

	if (manifest_load(folder, name, &handler, err) != 0)
		return -1;
	*add(handlers) = handler;
	return 0;
}

static int add_file(struct handlers *handlers, const char *folder, const char *name,
	struct err *err)
{
	if (strcmp(name, MANIFEST_OF_FOLDER) == 0)
		return manifest_load_redactions(folder, handlers->redactions, err);
	if (is_manifest(name))
		return add_manifest(handlers, folder, name, err);
	return add_executable(handlers, folder, name, err);
}

/* ---- all of them --------------------------------------------------------------------- */

/* In the order of their names, so that of several mistakes the same one is told. */
static int add_files(struct handlers *handlers, const char *folder, struct err *err)
{
	struct dirent **entries;
	int result = 0;
	int count = scandir(folder, &entries, NULL, alphasort);

	if (count < 0)
		return err_set_errno(err, ERR_NOINPUT, errno,
			"could not read the handler folder \"%s\"", folder);
	for (int i = 0; i < count; i++) {
		if (result == 0)
			result = add_file(handlers, folder, entries[i]->d_name, err);
		free(entries[i]);
	}
	free(entries);
	return result;
}

static bool is_plain(const struct handler *handler)
{
	return handler->manifest == NULL;
}

/* By kind; of one kind the manifests first. */
static int compare(const void *a, const void *b)
{
	const struct handler *x = a, *y = b;
	int order = strcmp(x->kind, y->kind);

	return order != 0 ? order : is_plain(x) - is_plain(y);
}

/* One handler a kind: an executable by itself is the same as a manifest that names it. */
static int merge(struct handlers *handlers, struct err *err)
{
	size_t kept = 0;
	int result = 0;

	qsort(handlers->items, handlers->count, sizeof(*handlers->items), compare);
	for (size_t i = 0; i < handlers->count; i++) {
		struct handler *handler = &handlers->items[i];
		struct handler *before = kept > 0 ? &handlers->items[kept - 1] : NULL;
		if (before == NULL || strcmp(before->kind, handler->kind) != 0) {
			handlers->items[kept++] = *handler;
			continue;
		}
		if (!is_plain(handler) || strcmp(before->path, handler->path) != 0)
			result = err_set(err, ERR_CONFIG,
				"\"%s\" and \"%s\" both declare the kind \"%s\"", before->file,
				handler->file, handler->kind);
		handler_release(handler);
	}
	handlers->count = kept;
	return result;
}

/* All handlers are announced in one frame. */
static int check_size(const struct handlers *handlers, struct err *err)
{
	size_t bytes = 0;

	for (size_t i = 0; i < handlers->count; i++)
		if (!is_plain(&handlers->items[i]))
			bytes += strlen(handlers->items[i].manifest);
	if (handlers->count > HANDLERS_MAX)
		return err_set(err, ERR_CONFIG, "the handler folder has %zu kinds, more than %d",
			handlers->count, HANDLERS_MAX);
	if (bytes > HANDLERS_MAX_MANIFEST_BYTES)
		return err_set(err, ERR_CONFIG, "the manifests together say more than %zu bytes",
			HANDLERS_MAX_MANIFEST_BYTES);
	return 0;
}

static int load(const char *directory, struct handlers *handlers, struct err *err)
{
	char folder[PATH_MAX];

	if (folder_open(directory, folder, err) != 0 ||
		add_files(handlers, folder, err) != 0 || merge(handlers, err) != 0)
		return -1;
	for (size_t i = 0; i < handlers->count; i++)
		handlers->items[i].folder_redactions = handlers->redactions;
	return check_size(handlers, err);
}

int handlers_load(const char *directory, struct handlers *handlers, struct err *err)
{
	*handlers = (struct handlers){
		.items = mem_alloc(1, sizeof(*handlers->items)),
		.redactions = mem_alloc(1, sizeof(*handlers->redactions)),
	};
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
	if (handlers->redactions != NULL)
		redactions_release(handlers->redactions);
	free(handlers->redactions);
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
