/*
 * The log: one line an event on stderr, one write(2) a line, logfmt or JSON.
 *
 *   time=2026-11-29T15:59:56.123Z level=info program=outbox-run event=handler_exited
 *   job=4711 kind=email.welcome exit=0 ms=12
 *
 * Event names are snake_case and an interface: they are listed in the program's manual
 * page and do not change. A write that would block or fails is dropped and counted; the
 * next line that goes through carries dropped=N. Values are escaped, never interpreted.
 * A line is at most LOG_MAX_LINE bytes, which a pipe takes whole, so that lines of
 * several programs never mix: fields that do not fit are left out and counted by cut=N.
 * Passwords are the caller's duty: conninfo strings are never logged (see db_redact).
 */
#ifndef OUTBOX_LOG_H
#define OUTBOX_LOG_H

#include <stdint.h>

#include "buf.h"
#include "err.h"

#define LOG_MAX_LINE 4096 /* bytes, the newline included; PIPE_BUF on Linux */

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };
enum log_format { LOG_LOGFMT, LOG_JSON };

/* Until called: logfmt, info, program "outbox". The program name must outlive the process. */
void log_init(const char *program, enum log_format format, enum log_level level);

/* Fields for log_event: build them with the macros. */
struct log_field {
	const char *key;
	enum { LOG_FIELD_TEXT, LOG_FIELD_INT } type;
	struct str text; /* absent: the field is left out */
	int64_t number;
};

#define LOG_TEXT(k, cstring) \
	((struct log_field){.key = (k), .type = LOG_FIELD_TEXT, .text = str_of(cstring)})
#define LOG_STR(k, str_value) \
	((struct log_field){.key = (k), .type = LOG_FIELD_TEXT, .text = (str_value)})
#define LOG_INT(k, value) \
	((struct log_field){.key = (k), .type = LOG_FIELD_INT, .number = (int64_t)(value)})

/* log_event(LOG_INFO, "handler_exited", LOG_INT("job", id), LOG_STR("kind", kind)); */
#define log_event(level, event, ...) \
	log_write((level), (event), (const struct log_field[]){__VA_ARGS__}, \
		sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))

void log_write(enum log_level level, const char *event, const struct log_field *fields,
	size_t count);

/* One line with error="text" and sqlstate where there is one. */
void log_error(enum log_level level, const char *event, const struct err *err);

/*
 * Repetition: returns the number of calls suppressed since the last line when a line may
 * be written now (0 the first time), or -1 when it should be held back. One static
 * struct a call site; at most one line every interval_ms.
 */
struct log_limit {
	int64_t last_ms;
	int64_t suppressed;
};
int64_t log_allow(struct log_limit *limit, int64_t interval_ms);

#endif
