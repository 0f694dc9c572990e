/*
 * A handler process: vfork + exec, three or four pipes, its own process group, a pidfd.
 *
 * The child starts with default signal dispositions and an empty mask, descriptors 0-3
 * only (3 is the result descriptor), a parent-death signal of KILL, and the environment
 * that it was given and nothing else. argv[0] is resolved by the caller: no PATH, no shell.
 * The child is reaped by child_reap only, after its group has been killed: as long as the
 * leader is a zombie its process group id cannot be taken by somebody else.
 */
#ifndef OUTBOX_CHILD_H
#define OUTBOX_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "err.h"
#include "guard.h"
#include "loop.h"

struct child_limits {     /* 0: not limited */
	int64_t memory_bytes; /* RLIMIT_AS */
	int64_t cpu_s;        /* RLIMIT_CPU: then XCPU, and a second later KILL */
	int64_t files;        /* RLIMIT_NOFILE */
	int64_t processes;    /* RLIMIT_NPROC, of the user */
};

struct child_spec {
	const char *path;      /* absolute */
	char *const *argv;     /* NULL-terminated */
	char *const *envp;     /* NULL-terminated */
	const char *directory; /* working directory, or NULL: unchanged */
	struct child_limits limits;
	bool set_user;
	uid_t uid;
	gid_t gid;
	bool result_pipe; /* make descriptor 3 */
	/*
	 * What stdin starts with. What the pipe can hold of it is there before the child is, so
	 * that a parent killed right after the start leaves no child with an empty stdin.
	 */
	const char *input;
	size_t input_bytes;
};

struct child {
	pid_t pid; /* also the process group id; 0: none */
	int pidfd;
	int in;             /* the child's stdin: write end, non-blocking; -1: closed */
	int out;            /* its stdout: read end, non-blocking */
	int error;          /* its stderr */
	int result;         /* its descriptor 3; -1 without */
	size_t input_taken; /* bytes of the spec's input that went into the pipe */
};

/*
 * ERR_OS (temporary) when the host is out of processes, descriptors or memory: the job was
 * not started. ERR_CONFIG with errnum when exec or the set-up in the child failed (ENOENT,
 * EACCES, E2BIG, …). No descriptor leaks on any path.
 */
int child_spawn(const struct child_spec *spec, struct child *child, struct err *err);

/* Writes what the child's stdin takes of `bytes` and drops it from them. 1: all is written;
 * 0: it would block; -1: nobody reads. */
int child_write(const struct child *child, struct buf *bytes);

/* Sends a signal to the whole group; also reaches members that outlive the leader. */
void child_kill(const struct child *child, int signal_number);

/* Whether the leader has exited (does not reap). exit_status -1 and signal > 0, or the reverse
 * with signal 0. */
bool child_has_exited(const struct child *child, int *exit_status, int *signal_number);

/* Kills what is left of the group, reaps the leader and closes pidfd and pipes (each of
 * which the caller has removed from the loop). Safe twice. */
void child_reap(struct child *child);

/* The same for a child whose descriptors the loop may watch and whose group the guard knows
 * from this slot. */
void child_finish(struct child *child, struct loop *loop, struct guard *guard,
	size_t slot);

#endif
