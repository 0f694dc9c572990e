/*
 * outbox metrics: the state of the outbox in Prometheus' text format: to stdout, into a file
 * for node_exporter's textfile collector, or as the answer to one HTTP request, for a socket
 * of systemd. The samples come from outbox.metrics().
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "clock.h"
#include "command.h"
#include "program.h"
#include "transaction.h"
#include "version.h"

#define MAX_TEXT ((size_t)64 << 20)
#define MAX_REQUEST 8192
#define REQUEST_WAIT_MS 5000

static int64_t period_ms, at_most;
static const char *output;
static bool as_http;

static const struct opt opts[] = {
	{
		.name = "period",
		.type = OPT_DURATION,
		.value = &period_ms,
		.argument = "TIME",
		.default_text = "5m",
		.environment = "",
		.min = 1000,
		.max = 86400000,
		.help = "outcomes and durations of attempts that ended within this time",
	},
	{
		.name = "at-most",
		.type = OPT_INTEGER,
		.value = &at_most,
		.argument = "N",
		.default_text = "100000",
		.environment = "",
		.min = 1,
		.max = 100000000,
		.help = "stop counting jobs there, for each kind and priority",
	},
	{
		.name = "output",
		.short_name = 'o',
		.type = OPT_STRING,
		.value = &output,
		.argument = "FILE",
		.environment = "",
		.help = "replace this file at once, for the textfile collector",
	},
	{
		.name = "http",
		.type = OPT_FLAG,
		.value = &as_http,
		.environment = "",
		.help = "answer one HTTP request that is read from stdin",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox metrics",
	.summary = "Prints the state of the outbox in Prometheus' text format.",
	.usage = "[option ...]",
	.tables = {opts, output_opts, program_db_opts},
};

/* ---- the text */

enum column { FAMILY, TYPE, HELP, SUFFIX, LABELS, VALUE };

static void put_sample(struct buf *out, const PGresult *result, int row)
{
	const char *family = PQgetvalue(result, row, FAMILY);

	if (row == 0 || strcmp(family, PQgetvalue(result, row - 1, FAMILY)) != 0)
		buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", family,
			PQgetvalue(result, row, HELP), family, PQgetvalue(result, row, TYPE));
	buf_printf(out, "%s%s%s %s\n", family, PQgetvalue(result, row, SUFFIX),
		PQgetvalue(result, row, LABELS), PQgetvalue(result, row, VALUE));
}

static PGresult *read_samples(struct err *err)
{
	struct params params = {0};
	PGconn *conn = command_connect(err);

	if (conn == NULL)
		return NULL;
	params_add_int(&params, period_ms);
	params_add_int(&params, at_most);
	PGresult *result = transaction_read(conn,
		"select family, type, help, suffix, labels, value from outbox.metrics("
		"$1::bigint * interval '1 millisecond', $2)",
		&params, err);
	PQfinish(conn);
	return result;
}

static int put_metrics(struct buf *out, struct err *err)
{
	PGresult *result = read_samples(err);

	if (result == NULL)
		return -1;
	buf_printf(out,
		"# HELP outbox_info Version of the program that prints this.\n"
		"# TYPE outbox_info gauge\noutbox_info{version=\"" OUTBOX_VERSION "\"} 1\n");
	for (int row = 0; row < PQntuples(result); row++)
		put_sample(out, result, row);
	PQclear(result);
	return 0;
}

/* ---- where it goes */

static int write_all(int fd, const struct buf *text, struct err *err)
{
	for (size_t written = 0; written < text->len;) {
		ssize_t count = write(fd, text->data + written, text->len - written);
		if (count < 0 && errno != EINTR)
			return err_set_errno(err, ERR_IO, errno, "could not write");
		written += count < 0 ? 0 : (size_t)count;
	}
	return 0;
}

/* A reader sees the old text or the new one. The name of what becomes the file does not end
 * in .prom, by which the collector knows its files. */
static int replace_file(const struct buf *text, struct err *err)
{
	struct buf name;
	int rc = -1;

	buf_init(&name, MAX_REQUEST);
	buf_printf(&name, "%s.XXXXXX", output);
	int fd = mkstemp(name.data);
	if (fd < 0) {
		err_set_errno(err, ERR_IO, errno, "could not create \"%s\"", name.data);
	} else {
		rc = write_all(fd, text, err);
		if (rc == 0 && fchmod(fd, 0644) < 0)
			rc = err_set_errno(err, ERR_IO, errno, "could not open \"%s\" to all",
				name.data);
		if (close(fd) < 0 && rc == 0)
			rc = err_set_errno(err, ERR_IO, errno, "could not write \"%s\"", name.data);
		if (rc == 0 && rename(name.data, output) < 0)
			rc = err_set_errno(err, ERR_IO, errno, "could not replace \"%s\"", output);
		if (rc < 0)
			unlink(name.data);
	}
	buf_release(&name);
	return rc;
}

/* Reads up to the end of the request's head: a peer whose data is not read gets a reset
 * instead of the answer. Returns whether one came that can be answered. */
static bool read_request(void)
{
	char head[MAX_REQUEST + 1];
	size_t length = 0;
	int64_t deadline_ms = clock_ms() + REQUEST_WAIT_MS;

	while (length < MAX_REQUEST) {
		struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
		int64_t left_ms = deadline_ms - clock_ms();
		if (left_ms <= 0 || poll(&input, 1, (int)left_ms) <= 0)
			return false;
		ssize_t count = read(STDIN_FILENO, head + length, MAX_REQUEST - length);
		if (count <= 0)
			return false;
		length += (size_t)count;
		head[length] = '\0';
		if (strstr(head, "\r\n\r\n") != NULL || strstr(head, "\n\n") != NULL)
			return strncmp(head, "GET ", 4) == 0;
	}
	return false;
}

static void put_answer(struct buf *out, const char *status, const struct buf *body)
{
	buf_printf(out,
		"HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
		"Content-Length: %zu\r\nConnection: close\r\n\r\n",
		status, body->len);
	buf_put(out, body->data, body->len);
}

/* What is wrong with the database is for the log, and not for whoever asks. */
static int answer(const struct command *command, struct err *err)
{
	struct buf body, text;
	int code = 0;

	buf_init(&body, MAX_TEXT);
	buf_init(&text, MAX_TEXT + MAX_REQUEST);
	if (!read_request()) {
		buf_put_str(&body, STR("this answers GET\n"));
		put_answer(&text, "400 Bad Request", &body);
	} else if (put_metrics(&body, err) < 0) {
		code = command_fail(command, err);
		buf_clear(&body);
		buf_put_str(&body, STR("the database cannot be asked\n"));
		put_answer(&text, "503 Service Unavailable", &body);
	} else {
		put_answer(&text, "200 OK", &body);
	}
	if (write_all(STDOUT_FILENO, &text, err) < 0)
		code = command_fail(command, err);
	buf_release(&body);
	buf_release(&text);
	return code;
}

static int print_json(struct err *err)
{
	PGresult *result = read_samples(err);

	if (result == NULL)
		return -1;
	table_print(result, TABLE_JSON, 0);
	PQclear(result);
	return 0;
}

static int print_text(struct err *err)
{
	struct buf text;

	buf_init(&text, MAX_TEXT);
	int rc = put_metrics(&text, err);
	if (rc == 0)
		rc = output != NULL ? replace_file(&text, err)
							: write_all(STDOUT_FILENO, &text, err);
	buf_release(&text);
	return rc;
}

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;

	command_start_operands(&program, argc, argv, 0, 0);
	if (as_http + output_options.json + (output != NULL) > 1) {
		err_set(&err, ERR_USAGE, "--http, --json and --output exclude each other");
		return command_fail(&command_metrics, &err);
	}
	if (as_http)
		return answer(&command_metrics, &err);
	if ((output_options.json ? print_json(&err) : print_text(&err)) < 0)
		return command_fail(&command_metrics, &err);
	return 0;
}

const struct command command_metrics = {"metrics",
	"print the state in Prometheus' text format", run};
