/*
 * The handler folder: which kinds can be run, and how.
 *
 * Every executable file whose name is a legal kind is a handler of that kind. Every file
 * NAME.ini is a manifest (manifest.h) and declares one: of the kind NAME unless it says
 * another, run by the executable NAME unless it says another. An executable and a manifest
 * that declare the same kind by the same executable are one handler; any other two of one
 * kind are refused, with the names of both.
 *
 * What cannot be a handler is passed over: names that are not kinds (README, .hidden, k~),
 * .so files, directories, files that are not executable. What could be one and must not be
 * trusted is an error that names it (folder.h). Paths are resolved once, here.
 */
#ifndef OUTBOX_HANDLERS_H
#define OUTBOX_HANDLERS_H

#include <stddef.h>

#include "buf.h"
#include "err.h"
#include "handler.h"

#define HANDLERS_MAX 1000 /* FRAME_MAX_KINDS: all are named in one hello */
#define HANDLERS_MAX_MANIFEST_BYTES ((size_t)8 << 20) /* and described there */

struct handlers {
	struct handler *items; /* sorted by kind */
	size_t count;
	struct redactions *redactions; /* for all of them */
};

/* ERR_NOINPUT: no such folder; ERR_CONFIG: refused; ERR_OS. On an error *handlers is empty. */
int handlers_load(const char *directory, struct handlers *handlers, struct err *err);
void handlers_release(struct handlers *handlers);

/* Forgets the handlers of other lanes. */
void handlers_keep_lane(struct handlers *handlers, const char *lane);

/* The handler of a kind, or NULL. */
const struct handler *handlers_find(const struct handlers *handlers, struct str kind);

#endif
