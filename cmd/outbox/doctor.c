/*
 * outbox doctor: what one would check by hand. Most of it the database knows, in
 * outbox.doctor(); this adds what only a client can see: whether a pooler is in between,
 * whether the clocks agree, and whether the listener on this host hears.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "command.h"
#include "frame.h"
#include "json.h"
#include "loop.h"
#include "program.h"
#include "runtime.h"
#include "transaction.h"

enum severity { SEVERITY_OK, SEVERITY_WARNING, SEVERITY_CRITICAL };

#define BEATS_WAIT_US INT64_C(5000000) /* a listener that hears beats every 2 seconds */
#define CLOCK_SKEW_US INT64_C(1000000)

static const char *nudges_endpoint;

static const struct opt opts[] = {
	{
		.name = "nudges",
		.type = OPT_STRING,
		.value = &nudges_endpoint,
		.argument = "ENDPOINT",
		.help = "where to hear the listener's beats, or none; default: nudges in the "
				"runtime directory, if it is there",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox doctor",
	.summary =
		"Checks the outbox and its database; exits with 1 for warnings, 2 when it is "
		"critical.",
	.usage = "[option ...]",
	.tables = {opts, output_opts, program_db_opts, program_link_opts},
};

struct report {
	enum severity worst;
};

/* ---- what is found */

static enum severity severity_of(const char *name)
{
	return strcmp(name, "critical") == 0 ? SEVERITY_CRITICAL
		: strcmp(name, "warning") == 0   ? SEVERITY_WARNING
										 : SEVERITY_OK;
}

static void print_json(const char *check, const char *severity, const char *detail)
{
	struct json_object object;
	struct buf line;

	buf_init(&line, SIZE_MAX);
	json_begin(&object, &line);
	json_str(&object, "check", str_of(check));
	json_str(&object, "severity", str_of(severity));
	json_str(&object, "detail", str_of(detail));
	json_end(&object);
	puts(buf_cstr(&line));
	buf_release(&line);
}

static void find(struct report *report, const char *check, const char *severity,
	const char *detail)
{
	if (severity_of(severity) > report->worst)
		report->worst = severity_of(severity);
	if (output_options.json)
		print_json(check, severity, detail);
	else
		printf("%-8s  %-21s  %s\n", severity, check, detail);
}

static void findf(struct report *report, const char *check, bool is_ok,
	const char *format, ...) __attribute__((format(printf, 4, 5)));

static void findf(struct report *report, const char *check, bool is_ok,
	const char *format, ...)
{
	char detail[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(detail, sizeof(detail), format, arguments);
	va_end(arguments);
	find(report, check, is_ok ? "ok" : "warning", detail);
}

/* ---- the database's part */

static int ask_database(PGconn *conn, struct report *report, struct err *err)
{
	const struct params none = {0};
	PGresult *result = transaction_read(conn, "select * from outbox.doctor()", &none,
		err);

	if (result == NULL)
		return -1;
	for (int row = 0; row < PQntuples(result); row++)
		find(report, PQgetvalue(result, row, 0), PQgetvalue(result, row, 1),
			PQgetvalue(result, row, 2));
	PQclear(result);
	return 0;
}

/* ---- the client's part */

/* The clocks of clients stamp log lines and decide nothing. */
static int check_session(PGconn *conn, struct report *report, struct err *err)
{
	int64_t before_us = clock_wall_us();
	PGresult *result = command_query(conn,
		"select (extract(epoch from clock_timestamp()) * 1000000)::bigint, pg_backend_pid()",
		0, NULL, err);

	if (result == NULL)
		return -1;
	int64_t after_us = clock_wall_us();
	int64_t server_us = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	int64_t ahead_us = server_us - (before_us + after_us) / 2;
	bool is_pooled = atoi(PQgetvalue(result, 0, 1)) != PQbackendPID(conn);

	findf(report, "clock", llabs(ahead_us) < CLOCK_SKEW_US,
		"the server's differs from this host's by %+.3f s, give or take %.3f s",
		(double)ahead_us / 1e6, (double)(after_us - before_us) / 2e6);
	findf(report, "pooler", !is_pooled || program_db_options.pooled,
		is_pooled
			? "a pooler is in between, which the programs get on with, but outbox-listen "
			  "needs a direct connection"
			: "the connection is direct");
	PQclear(result);
	return 0;
}

struct ear {
	struct loop *loop;
	struct loop_timer timer;
	int64_t since_us;
	int64_t heard_us; /* 0: nothing yet */
};

static void on_frame(void *ctx, const struct link_peer *peer, const void *frame,
	size_t length, int64_t version, int64_t type)
{
	struct ear *ear = ctx;

	(void)peer, (void)frame, (void)length, (void)version;
	if (type != FRAME_BEAT)
		return;
	ear->heard_us = loop_now_us(ear->loop);
	loop_stop(ear->loop);
}

static void on_time_out(void *ctx)
{
	struct ear *ear = ctx;

	loop_stop(ear->loop);
}

static int listen_for_beats(struct ear *ear, struct err *err)
{
	const struct link_options options = {
		.pattern = LINK_SUB,
		.on_frame = on_frame,
		.ctx = ear,
	};
	struct link *link;
	int rc = -1;

	ear->loop = loop_new(err);
	if (ear->loop == NULL)
		return -1;
	link = program_open_link(ear->loop, &options, nudges_endpoint, "nudges", err);
	if (link != NULL) {
		ear->timer = (struct loop_timer){.fn = on_time_out, .ctx = ear};
		loop_set_timer(ear->loop, &ear->timer, BEATS_WAIT_US);
		ear->since_us = loop_now_us(ear->loop);
		rc = loop_run(ear->loop, err);
	}
	link_free(link);
	loop_free(ear->loop);
	return rc;
}

/* Whether there is an endpoint to listen at: a default one may be on another host. */
static bool have_endpoint(void)
{
	static const char scheme[] = "ipc://";
	char *endpoint;
	bool found;

	if (nudges_endpoint != NULL)
		return strcmp(nudges_endpoint, "none") != 0;
	endpoint = runtime_endpoint("nudges", NULL);
	found = endpoint != NULL && access(endpoint + sizeof(scheme) - 1, F_OK) == 0;
	free(endpoint);
	return found;
}

/* A listener beats only while its notifications to itself come back. */
static int check_listener(struct report *report, struct err *err)
{
	struct ear ear = {0};

	if (!have_endpoint())
		return 0;
	if (listen_for_beats(&ear, err) < 0)
		return -1;
	if (ear.heard_us > 0)
		findf(report, "listener hears", true, "its beat came after %.1f s",
			(double)(ear.heard_us - ear.since_us) / 1e6);
	else
		findf(report, "listener hears", false,
			"no beat in %d s: it is not running, or notifications do not reach it",
			(int)(BEATS_WAIT_US / 1000000));
	return 0;
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct report report = {.worst = SEVERITY_OK};

	command_start_operands(&program, argc, argv, 0, 0);
	PGconn *conn = command_connect(&err);
	if (conn == NULL)
		return command_fail(&command_doctor, &err);
	int rc = ask_database(conn, &report, &err);
	if (rc == 0)
		rc = check_session(conn, &report, &err);
	PQfinish(conn);
	if (rc == 0)
		rc = check_listener(&report, &err);
	if (rc < 0)
		return command_fail(&command_doctor, &err);
	return (int)report.worst;
}

const struct command command_doctor = {"doctor",
	"check the outbox and its database, with an exit code", run};
