/*
 * Rows of the SQL type outbox.settled, as settle and recover return them: how attempts have
 * ended, and the events and log lines that follow from that.
 */
#ifndef OUTBOX_SETTLED_H
#define OUTBOX_SETTLED_H

#include <libpq-fe.h>

#include "buf.h"
#include "link.h"

/* The columns that settled_rows reads, in order: "select " SETTLED_COLUMNS " from …". */
#define SETTLED_COLUMNS \
	"job_id, attempt, kind, outcome::text, code, duration_ms, worker, warning, " \
	"(select outbox.clock_us())"

struct settled { /* views into the result */
	int64_t job_id;
	int64_t attempt;
	struct str kind;
	struct str outcome; /* absent: refused by settle */
	struct str code;
	int64_t duration_ms;
	struct str worker;
	struct str warning; /* the code of a long streak of failures */
	int64_t at_us;      /* database clock */
};

/* All rows of a binary result, sorted by (job_id, attempt). Allocated; the caller frees. */
struct settled *settled_rows(const PGresult *result, size_t *count);

/* The attempt's row among sorted ones, of several one that was not refused; or NULL. */
const struct settled *settled_find(const struct settled *rows, size_t count,
	int64_t job_id, int64_t attempt);

/* One event a row that was not refused, in one message; without a link nothing. */
void settled_publish(struct link *events, const struct settled *rows, size_t count);

/* job_dead (error) and job_failing (warning), one line a row that deserves it. */
void settled_log(const struct settled *rows, size_t count);

#endif
