#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "runtime.h"
#include "text.h"

struct program_options program_options = {.ready_fd = -1};
struct program_db_options program_db_options;
struct program_link_options program_link_options;

const struct opt program_opts[] = {
	{
		.name = "log-format",
		.type = OPT_CHOICE,
		.value = &program_options.log_format,
		.argument = "FORMAT",
		.choices = "logfmt|json",
		.default_text = "logfmt",
		.help = "log lines on stderr: logfmt or json",
	},
	{
		.name = "log-level",
		.type = OPT_CHOICE,
		.value = &program_options.log_level,
		.argument = "LEVEL",
		.choices = "debug|info|warning|error",
		.default_text = "info",
		.help = "least level that is logged: debug, info, warning or error",
	},
	{
		.name = "ready-fd",
		.type = OPT_INTEGER,
		.value = &program_options.ready_fd,
		.argument = "FD",
		.environment = "",
		.max = INT_MAX,
		.help = "write a newline to this descriptor when ready, then close it",
	},
	{.name = NULL},
};

const struct opt program_db_opts[] = {
	{
		.name = "db",
		.type = OPT_STRING,
		.value = &program_db_options.conninfo,
		.argument = "CONNINFO",
		.help =
			"connection string or URI of the database; else as libpq's PG* variables say",
	},
	{
		.name = "pooled",
		.type = OPT_FLAG,
		.value = &program_db_options.pooled,
		.help = "the database is behind a transaction pooler: keep no session state",
	},
	{.name = NULL},
};

const struct opt program_link_opts[] = {
	{
		.name = "keys",
		.type = OPT_STRING,
		.value = &program_link_options.keys_dir,
		.argument = "DIR",
		.help = "directory of the CURVE keys for tcp endpoints",
	},
	{
		.name = "insecure",
		.type = OPT_FLAG,
		.value = &program_link_options.insecure,
		.help = "allow tcp endpoints without keys: anyone who can connect is trusted",
	},
	{.name = NULL},
};

struct link *program_open_link(struct loop *loop, const struct link_options *options,
	const char *given, const char *name, struct err *err)
{
	char *own = given == NULL ? runtime_endpoint(name, err) : NULL;
	struct link_options complete = *options;
	struct link *link = NULL;

	complete.endpoint = given == NULL ? own : given;
	complete.keys_dir = program_link_options.keys_dir;
	complete.insecure = program_link_options.insecure;
	if (complete.endpoint != NULL)
		link = link_new(loop, &complete, err);
	free(own);
	return link;
}

struct link *program_open_jobs_link(struct loop *loop, const struct link_options *options,
	const char *given, const char *lane, struct err *err)
{
	char name[128] = "jobs";

	if (!text_is_kind(lane, strlen(lane))) {
		err_set(err, ERR_USAGE, "\"%s\" cannot be the name of a lane", lane);
		return NULL;
	}
	if (strcmp(lane, "default") != 0)
		snprintf(name, sizeof(name), "jobs-%s", lane);
	return program_open_link(loop, options, given, name, err);
}

int program_open_events_link(struct loop *loop, struct link **link, const char *given,
	const char *name, struct err *err)
{
	const struct link_options options = {.pattern = LINK_PUB, .writes = true};

	*link = NULL;
	if (given != NULL && strcmp(given, "none") == 0)
		return 0;
	*link = program_open_link(loop, &options, given, name, err);
	return *link == NULL ? -1 : 0;
}

/* A closed standard descriptor would be handed to the next socket or file. */
static void open_standard_descriptors(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
			exit(EX_OSERR);
}

/* An inherited "ignore" of SIGCHLD would make waiting for children fail. */
static void reset_signals(void)
{
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
}

static _Noreturn void exit_usage(const struct opt_program *program, const struct err *err)
{
	fprintf(stderr, "%s: %s\ntry \"%s --help\"\n", program->name, err->text,
		program->name);
	exit(err_exit_code(err));
}

static const char *started_name;

const char *program_name(void)
{
	return started_name;
}

int program_start(const struct opt_program *program, int argc, char **argv)
{
	struct err err = ERR_INIT;
	int first_operand;

	started_name = program->name;
	open_standard_descriptors();
	reset_signals();
	if (opt_parse(program, argc, argv, &first_operand, &err) < 0)
		exit_usage(program, &err);
	log_init(program->name, (enum log_format)program_options.log_format,
		(enum log_level)program_options.log_level);
	return first_operand;
}

void program_start_no_operands(const struct opt_program *program, int argc, char **argv)
{
	struct err err = ERR_INIT;
	int first_operand = program_start(program, argc, argv);

	if (first_operand < argc) {
		err_set(&err, ERR_USAGE, "unexpected operand \"%s\"", argv[first_operand]);
		exit_usage(program, &err);
	}
}

static struct {
	struct loop *loop;
	void (*drain)(void *ctx);
	void (*leave)(void *ctx);
	void *ctx;
	bool draining;
} stop;

static void on_stop_signal(void *ctx, int signal_number)
{
	void (*act)(void *ctx) = stop.draining ? stop.leave : stop.drain;

	(void)ctx;
	(void)signal_number;
	stop.draining = true;
	if (act != NULL)
		act(stop.ctx);
	else
		loop_stop(stop.loop);
}

int program_handle_signals(struct loop *loop, void (*drain)(void *ctx),
	void (*leave)(void *ctx), void *ctx, struct err *err)
{
	stop.loop = loop;
	stop.drain = drain;
	stop.leave = leave;
	stop.ctx = ctx;
	if (loop_on_signal(loop, SIGTERM, on_stop_signal, NULL, err) < 0)
		return -1;
	return loop_on_signal(loop, SIGINT, on_stop_signal, NULL, err);
}

/* sd_notify(3) without the library: one datagram to the socket that systemd names. A name
 * that begins with "@" is abstract. */
static int send_to_systemd(const char *path, const char *state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(path);

	if (length == 0 || length >= sizeof(address.sun_path)) {
		errno = EINVAL;
		return -1;
	}
	memcpy(address.sun_path, path, length);
	if (path[0] == '@')
		address.sun_path[0] = '\0';

	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
		(struct sockaddr *)&address, size);
	int saved_errno = errno;
	close(fd);
	errno = saved_errno;
	return sent < 0 ? -1 : 0;
}

static void notify_systemd(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");

	if (path == NULL || send_to_systemd(path, state) == 0)
		return;
	struct err err = ERR_INIT;
	err_set_errno(&err, ERR_OS, errno, "could not notify systemd at \"%s\"", path);
	log_error(LOG_WARNING, "notify_failed", &err);
}

static void notify_ready_fd(void)
{
	int fd = (int)program_options.ready_fd;

	if (fd < 0)
		return;
	if (write(fd, "\n", 1) != 1) {
		struct err err = ERR_INIT;
		err_set_errno(&err, ERR_IO, errno, "could not write to --ready-fd %d", fd);
		log_error(LOG_WARNING, "notify_failed", &err);
	}
	if (fd > STDERR_FILENO)
		close(fd);
	program_options.ready_fd = -1;
}

void program_ready(void)
{
	static bool said;

	if (said)
		return;
	said = true;
	notify_ready_fd();
	notify_systemd("READY=1");
	log_event(LOG_INFO, "ready", LOG_INT("pid", getpid()));
}

void program_stopping(void)
{
	notify_systemd("STOPPING=1");
}

static int exit_code;

int program_fail_as(const char *event, const struct err *err)
{
	log_error(LOG_ERROR, event, err);
	if (exit_code == 0)
		exit_code = err_exit_code(err);
	return err_exit_code(err);
}

int program_fail(const struct err *err)
{
	return program_fail_as("failed", err);
}

void program_give_up(const struct err *err)
{
	program_fail(err);
	loop_stop(stop.loop);
}

int program_exit_code(void)
{
	return exit_code;
}

const char *program_incarnation(void)
{
	static char id[72]; /* 40 of the host, 10 of the pid, 8 random, two points */
	char host[HOST_NAME_MAX + 1] = "localhost";

	if (id[0] == '\0') {
		gethostname(host, sizeof(host));
		host[sizeof(host) - 1] = '\0';
		snprintf(id, sizeof(id), "%.40s.%d.%08" PRIx64, host, (int)getpid(),
			random_below(UINT64_C(1) << 32));
	}
	return id;
}
