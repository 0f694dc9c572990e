/*
 * One handler: what runs the jobs of a kind, and under which conditions.
 */
#ifndef OUTBOX_HANDLER_H
#define OUTBOX_HANDLER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "child.h"
#include "outcome.h"
#include "redact.h"

#define HANDLER_TIMEOUT_MS 30000
#define HANDLER_GRACE_MS 5000
#define HANDLER_STREAM_WINDOW 64

enum handler_mode {
	HANDLER_EXEC,   /* a process an attempt */
	HANDLER_STREAM, /* resident processes that are given one attempt after the other */
};

struct handler { /* one kind; strings are owned */
	char *kind;
	char *file;  /* that declares it, by its name in the folder: executable or manifest */
	char *path;  /* of the executable: absolute, links resolved */
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
	struct outcome_exits exits;
	struct redactions redactions; /* of this kind … */
	const struct redactions
		*folder_redactions; /* … and of all kinds, or NULL; not owned */
	char *manifest;         /* JSON object for outbox.kind, or NULL */
};

/* The defaults. */
void handler_init(struct handler *handler, const char *kind, const char *file);
void handler_release(struct handler *handler); /* safe twice */

/* Appends a copy to argv. */
void handler_add_argument(struct handler *handler, const char *argument);

/* Sets a variable in envp; one of that name is replaced. */
void handler_set_variable(struct handler *handler, const char *name, const char *value);
bool handler_has_variable(const struct handler *handler, const char *name);

/* What its process is started with; the strings are the handler's and the caller's. */
struct child_spec handler_child_spec(const struct handler *handler, char *const *envp);

/* Whether anything is to be redacted in what the handler says. */
bool handler_redacts(const struct handler *handler);

const char *handler_mode_name(enum handler_mode mode); /* "exec", "stream" */

#endif
