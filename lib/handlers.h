/*
 * The handler folder: which kinds can be run, and how.
 *
 * Every executable file whose name is a legal kind is the handler of that kind. What cannot
 * be one is passed over: names that are not kinds (README, .hidden, k~), .ini and .so files,
 * directories, files that are not executable. What could be one and must not be trusted is
 * an error that names it: writable by group or others (the file, or a folder between), a
 * link that leaves the folder, a broken link. Paths are resolved once, here.
 */
#ifndef OUTBOX_HANDLERS_H
#define OUTBOX_HANDLERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "child.h"
#include "err.h"

#define HANDLER_TIMEOUT_MS 30000
#define HANDLER_GRACE_MS 5000
#define HANDLER_STREAM_WINDOW 64

enum handler_mode {
	HANDLER_EXEC,   /* a process an attempt */
	HANDLER_STREAM, /* resident processes that are given one attempt after the other */
};

struct handler { /* one kind; strings are owned */
	char *kind;
	char *path;  /* absolute, links resolved */
	char **argv; /* NULL-terminated; argv[0] is the file in the folder */
	char **envp; /* NULL-terminated "NAME=value" beside what every handler gets */
	char *lane;
	int64_t version;
	int64_t timeout_ms; /* of one attempt: then TERM to the group … */
	int64_t grace_ms;   /* … and after this KILL */
	int64_t
		concurrency; /* most attempts at once in one runner; 0: as many as it has slots */
	enum handler_mode mode;
	int64_t processes; /* HANDLER_STREAM: so many */
	int64_t window;    /* HANDLER_STREAM: most attempts in one of them at once */
	struct child_limits limits;
	bool set_user;
	uid_t uid;
	gid_t gid;
	char *manifest; /* JSON object for outbox.kind, or NULL */
};

struct handlers {
	struct handler *items; /* sorted by kind */
	size_t count;
};

/* ERR_NOINPUT: no such folder; ERR_CONFIG: refused; ERR_OS. On an error *handlers is empty. */
int handlers_load(const char *directory, struct handlers *handlers, struct err *err);
void handlers_release(struct handlers *handlers);

/* Forgets the handlers of other lanes. */
void handlers_keep_lane(struct handlers *handlers, const char *lane);

/* The handler of a kind, or NULL. */
const struct handler *handlers_find(const struct handlers *handlers, struct str kind);

#endif
