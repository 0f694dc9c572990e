#include "pipeline.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "buf.h"
#include "clock.h"
#include "command.h"

#define READY_FD 3      /* of a child */
#define STOP_MS 10000   /* a program may take to stop */
#define GRACE_TEXT "5s" /* for handlers that are still running */

/* In the order in which they start. */
enum role { SETTLE, SWEEP, RUN, CLAIM, LISTEN };

static const char *const names[] = {"outbox-settle", "outbox-sweep", "outbox-run",
	"outbox-claim", "outbox-listen"};

/* A runner drains while its claimer still records its beats and its settler takes its
 * results. */
static const enum role stop_order[] = {RUN, CLAIM, SETTLE, SWEEP, LISTEN};

struct program {
	enum role role;
	pid_t pid;
};

struct pipeline {
	char folder[32];
	char bin[PATH_MAX];
	struct program *programs; /* those that run */
	size_t count;
};

/* ---- starting */

static int find_programs(struct pipeline *pipeline, struct err *err)
{
	ssize_t length = readlink("/proc/self/exe", pipeline->bin, sizeof(pipeline->bin) - 1);

	if (length < 0)
		return err_set_errno(err, ERR_OS, errno,
			"could not find the folder of the programs");
	pipeline->bin[length] = '\0';
	*strrchr(pipeline->bin, '/') = '\0';
	return 0;
}

static int make_folder(struct pipeline *pipeline, struct err *err)
{
	/* not in TMPDIR, which may be too long for the path of a socket */
	strcpy(pipeline->folder, "/tmp/outbox-drain-XXXXXX");
	if (mkdtemp(pipeline->folder) == NULL) {
		pipeline->folder[0] = '\0';
		return err_set_errno(err, ERR_OS, errno, "could not make a folder in /tmp");
	}
	return 0;
}

/* What the programs share goes by environment, as does anything else the caller has set. */
static void set_environment(const struct pipeline *pipeline,
	const struct pipeline_options *options)
{
	static const char *const endpoints[] = {"OUTBOX_JOBS", "OUTBOX_RESULTS",
		"OUTBOX_NUDGES", "OUTBOX_EVENTS"};

	for (size_t i = 0; i < sizeof(endpoints) / sizeof(endpoints[0]); i++)
		unsetenv(endpoints[i]);
	setenv("OUTBOX_RUNTIME_DIR", pipeline->folder, 1);
	setenv("OUTBOX_LOG_LEVEL", "warning", 0);
	setenv("OUTBOX_GRACE", GRACE_TEXT, 0);
	if (options->conninfo != NULL)
		setenv("OUTBOX_DB", options->conninfo, 1);
}

/* Never returns. A session of its own, so that ^C reaches only the parent, which stops the
 * programs in their order. Runners have no use for the database. */
static void become(const char *path, const char *const *arguments, enum role role,
	int ready_fd, pid_t parent)
{
	static const char *const secrets[] = {"OUTBOX_DB", "PGPASSWORD", "PGPASSFILE",
		"PGSERVICE"};

	setsid();
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(1);
	if (ready_fd == READY_FD)
		fcntl(READY_FD, F_SETFD, 0);
	else
		dup2(ready_fd, READY_FD);
	for (size_t i = 0; role == RUN && i < sizeof(secrets) / sizeof(secrets[0]); i++)
		unsetenv(secrets[i]);
	execv(path, (char *const *)arguments);
	fprintf(stderr, "could not execute \"%s\": %s\n", path, strerror(errno));
	_exit(127);
}

/* A newline says that it is ready; when the pipe is closed without one, it has ended. */
static int wait_until_ready(int fd, const char *name, struct err *err)
{
	char newline;
	ssize_t count = read(fd, &newline, 1);

	if (count == 1)
		return 0;
	if (count < 0)
		return err_set_errno(err, ERR_TEMP, errno, "could not wait for %s", name);
	return err_set(err, ERR_UNAVAILABLE, "%s did not start", name);
}

static int start(struct pipeline *pipeline, enum role role, const char *const *arguments,
	struct err *err)
{
	char path[PATH_MAX + 32];
	int fds[2];

	snprintf(path, sizeof(path), "%s/%s", pipeline->bin, names[role]);
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_set_errno(err, ERR_OS, errno, "could not make a pipe");
	pid_t parent = getpid(), pid = fork();
	if (pid == 0)
		become(path, arguments, role, fds[1], parent);
	close(fds[1]);
	int rc = -1;
	if (pid < 0) {
		err_set_errno(err, ERR_OS, errno, "could not start %s", names[role]);
	} else {
		pipeline->programs[pipeline->count++] = (struct program){role, pid};
		rc = wait_until_ready(fds[0], names[role], err);
	}
	close(fds[0]);
	return rc;
}

static int start_in_lanes(struct pipeline *pipeline, enum role role,
	const struct pipeline_options *options, struct err *err)
{
	for (size_t i = 0; i < options->lanes_count; i++) {
		const char *const arguments[] = {names[role], "--ready-fd", "3", "--lane",
			options->lanes[i], role == RUN ? "--handlers" : NULL, options->handlers,
			NULL};

		if (start(pipeline, role, arguments, err) < 0)
			return -1;
	}
	return 0;
}

static int start_all(struct pipeline *pipeline, const struct pipeline_options *options,
	struct err *err)
{
	const char *const settle[] = {names[SETTLE], "--ready-fd", "3", NULL};
	const char *const sweep[] = {names[SWEEP], "--ready-fd", "3", "--no-retention", NULL};
	const char *const listener[] = {names[LISTEN], "--ready-fd", "3", NULL};

	if (start(pipeline, SETTLE, settle, err) < 0 ||
		start(pipeline, SWEEP, sweep, err) < 0 ||
		start_in_lanes(pipeline, RUN, options, err) < 0 ||
		start_in_lanes(pipeline, CLAIM, options, err) < 0)
		return -1;
	return start(pipeline, LISTEN, listener, err);
}

struct pipeline *pipeline_start(const struct pipeline_options *options, struct err *err)
{
	struct pipeline *pipeline = mem_alloc(1, sizeof(*pipeline));

	pipeline->programs = mem_alloc(2 * options->lanes_count + 3,
		sizeof(*pipeline->programs));
	if (find_programs(pipeline, err) < 0 || make_folder(pipeline, err) < 0) {
		pipeline_stop(pipeline);
		return NULL;
	}
	set_environment(pipeline, options);
	if (start_all(pipeline, options, err) < 0) {
		pipeline_stop(pipeline);
		return NULL;
	}
	return pipeline;
}

int pipeline_check(const struct pipeline *pipeline, struct err *err)
{
	for (size_t i = 0; i < pipeline->count; i++) {
		siginfo_t info = {.si_pid = 0};

		if (waitid(P_PID, (id_t)pipeline->programs[i].pid, &info,
				WEXITED | WNOHANG | WNOWAIT) == 0 &&
			info.si_pid != 0)
			return err_set(err, ERR_UNAVAILABLE, "%s has ended too early",
				names[pipeline->programs[i].role]);
	}
	return 0;
}

/* ---- stopping */

static void reap(pid_t pid)
{
	int64_t kill_at_ms = clock_ms() + STOP_MS;
	pid_t ended;

	while ((ended = waitpid(pid, NULL, WNOHANG)) == 0 && clock_ms() < kill_at_ms)
		command_pause_ms(5);
	if (ended != 0)
		return;
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static void stop_role(struct pipeline *pipeline, enum role role)
{
	for (size_t i = 0; i < pipeline->count; i++)
		if (pipeline->programs[i].role == role)
			kill(pipeline->programs[i].pid, SIGTERM);
	for (size_t i = 0; i < pipeline->count; i++)
		if (pipeline->programs[i].role == role)
			reap(pipeline->programs[i].pid);
}

/* Sockets and lock files; there are no folders in it. */
static void remove_folder(const char *path)
{
	DIR *folder = opendir(path);
	const struct dirent *entry;

	if (folder == NULL)
		return;
	while ((entry = readdir(folder)) != NULL)
		unlinkat(dirfd(folder), entry->d_name, 0);
	closedir(folder);
	rmdir(path);
}

void pipeline_stop(struct pipeline *pipeline)
{
	if (pipeline == NULL)
		return;
	for (size_t i = 0; i < sizeof(stop_order) / sizeof(stop_order[0]); i++)
		stop_role(pipeline, stop_order[i]);
	if (pipeline->folder[0] != '\0')
		remove_folder(pipeline->folder);
	free(pipeline->programs);
	free(pipeline);
}
