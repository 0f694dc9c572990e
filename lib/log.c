#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "json.h"
#include "text.h"

#define TAIL_BYTES 64 /* kept free for cut=, dropped= and the end of the line */

static struct {
	const char *program;
	enum log_format format;
	enum log_level level;
	int64_t dropped; /* lines, since the last one that went through */
} state = {.program = "outbox", .format = LOG_LOGFMT, .level = LOG_INFO};

static const char *const level_names[] = {
	[LOG_DEBUG] = "debug",
	[LOG_INFO] = "info",
	[LOG_WARNING] = "warning",
	[LOG_ERROR] = "error",
};

void log_init(const char *program, enum log_format format, enum log_level level)
{
	state.program = program;
	state.format = format;
	state.level = level;
}

/* logfmt leaves a value bare when no reader can mistake where it ends. */
static bool is_bare(struct str text)
{
	for (size_t i = 0; i < text.n; i++) {
		unsigned char c = (unsigned char)text.s[i];
		if (c <= ' ' || c == '"' || c == '=' || c == 0x7f)
			return false;
	}
	return text.n > 0 && text_is_storable(text.s, text.n);
}

static int put_key(struct buf *line, const char *key)
{
	if (state.format == LOG_LOGFMT)
		return buf_printf(line, "%s%s=", line->len > 0 ? " " : "", key);
	return buf_printf(line, "%s\"%s\":", line->len > 0 ? "," : "{", key);
}

static int put_field(struct buf *line, const struct log_field *field)
{
	if (put_key(line, field->key) < 0)
		return -1;
	if (field->type == LOG_FIELD_INT)
		return buf_printf(line, "%" PRId64, field->number);
	if (state.format == LOG_LOGFMT && is_bare(field->text))
		return buf_put_str(line, field->text);
	return json_put_string(line, field->text);
}

/* All of the field or nothing. */
static int put_whole_field(struct buf *line, const struct log_field *field)
{
	size_t before = line->len;

	if (put_field(line, field) < 0) {
		line->len = before;
		return -1;
	}
	return 0;
}

static void put_head(struct buf *line, enum log_level level, const char *event)
{
	char now[32];

	clock_format_utc(clock_wall_us(), now, sizeof(now));
	strcpy(strchr(now, '.') + 4, "Z"); /* milliseconds will do */
	put_whole_field(line, &LOG_TEXT("time", now));
	put_whole_field(line, &LOG_TEXT("level", level_names[level]));
	put_whole_field(line, &LOG_TEXT("program", state.program));
	put_whole_field(line, &LOG_TEXT("event", event));
}

/* One write, never waiting: a log reader that stands still must not stop the work. */
static bool write_line(const struct buf *line)
{
	struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
	ssize_t written;

	if (poll(&out, 1, 0) != 1 || !(out.revents & POLLOUT))
		return false;
	do {
		written = write(STDERR_FILENO, line->data, line->len);
	} while (written < 0 && errno == EINTR);
	return written == (ssize_t)line->len;
}

void log_write(enum log_level level, const char *event, const struct log_field *fields,
	size_t count)
{
	struct buf line;
	int64_t cut = 0;
	int saved_errno = errno;

	if (level < state.level)
		return;
	buf_init(&line, LOG_MAX_LINE - TAIL_BYTES);
	put_head(&line, level, event);
	for (size_t i = 0; i < count; i++) {
		bool absent = fields[i].type == LOG_FIELD_TEXT && fields[i].text.s == NULL;
		if (!absent && put_whole_field(&line, &fields[i]) < 0)
			cut++;
	}

	line.max = LOG_MAX_LINE;
	if (cut > 0)
		put_whole_field(&line, &LOG_INT("cut", cut));
	if (state.dropped > 0)
		put_whole_field(&line, &LOG_INT("dropped", state.dropped));
	buf_put_str(&line, state.format == LOG_JSON ? STR("}\n") : STR("\n"));
	if (write_line(&line))
		state.dropped = 0;
	else
		state.dropped++;
	buf_release(&line);
	errno = saved_errno;
}

void log_error(enum log_level level, const char *event, const struct err *err)
{
	const char *sqlstate = err->sqlstate[0] != '\0' ? err->sqlstate : NULL;

	log_event(level, event, LOG_TEXT("error", err->text), LOG_TEXT("sqlstate", sqlstate));
}

int64_t log_allow(struct log_limit *limit, int64_t interval_ms)
{
	int64_t now_ms = clock_ms();

	if (limit->last_ms != 0 && now_ms - limit->last_ms < interval_ms) {
		limit->suppressed++;
		return -1;
	}
	int64_t suppressed = limit->suppressed;
	limit->last_ms = now_ms;
	limit->suppressed = 0;
	return suppressed;
}
