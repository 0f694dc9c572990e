/*
 * What became of an attempt, as the handler said it: by exit status, by signal, or by a
 * JSON document on descriptor 3, which says more and wins where it is well formed. What an
 * exit status means is in the built-in table unless the handler's manifest has it otherwise.
 * Only "ok" cannot be said by a process that failed: beside an exit that means anything else
 * it is a retry, bad_outcome, and beside a signal the signal counts.
 */
#ifndef OUTBOX_OUTCOME_H
#define OUTBOX_OUTCOME_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

enum outcome {
	OUTCOME_OK,      /* done */
	OUTCOME_RETRY,   /* temporary failure: again, if budget is left */
	OUTCOME_FAIL,    /* permanent failure: dead letter */
	OUTCOME_CANCEL,  /* not wanted any more */
	OUTCOME_LOST,    /* the process that ran it is gone */
	OUTCOME_RELEASE, /* handed back, charged to nothing */
};

const char *outcome_name(enum outcome outcome); /* "ok", "retry", … as in frames */
int outcome_parse(struct str name,
	enum outcome *outcome); /* the four a handler may say, -1 else */

#define OUTCOME_MAX_DOCUMENT ((size_t)1 << 20) /* bytes on descriptor 3 */
#define OUTCOME_MAX_DEPTH 510 /* a follow-up's payload may have 500 levels */
#define OUTCOME_MAX_CODE 64   /* code: ^[a-z0-9][a-z0-9_.-]{0,63}$ */
#define OUTCOME_MAX_AFTER_MS (INT64_C(3650) * 24 * 3600 * 1000)

struct outcome_document { /* owned strings; release it */
	enum outcome outcome;
	char *code;
	char *error;
	char *reason;
	int64_t after_ms; /* -1: none */
	char *commit;     /* JSON array text, or NULL */
	char *enqueue;    /* JSON array text, or NULL */
};

void outcome_document_release(struct outcome_document *document);

/*
 * Parses a handler's document: an object with "outcome" and optionally code, error, after
 * ("60s", or a number of seconds), reason, commit [{name, args}], enqueue [{kind, payload, …}];
 * null is the same as absent. Unknown members are ignored; a known one that comes twice, and
 * anything malformed, is ERR_DATA saying what. commit and enqueue go with "ok" only and are
 * kept byte for byte. On an error the document is empty.
 */
int outcome_document_parse(const char *text, size_t count,
	struct outcome_document *document, struct err *err);

/* The same for an object that json_is_valid has accepted, where none means "ok". */
int outcome_document_read(struct str object, struct outcome_document *document,
	struct err *err);

/* The built-in table: 0 ok; 64, 65, 76, 77, 78, 100 fail; all else retry. The code is
 * "exit_N" or "signal_N" (empty for ok); code needs 16 bytes. signal_number 0: exited. */
enum outcome outcome_of_exit(int exit_status, int signal_number, char *code, size_t size);

bool outcome_is_code(const char *text); /* by the pattern above */

/* What a manifest says of exit statuses. */
struct outcome_exit {
	int status;
	enum outcome outcome;
	char code[OUTCOME_MAX_CODE + 1]; /* empty: exit_N, or none for ok */
};
struct outcome_exits {
	struct outcome_exit *items;
	size_t count;
};

/* Puts the exit and the document (NULL: none) together. The code is empty for ok. */
enum outcome outcome_conclude(int exit_status, int signal_number,
	const struct outcome_exits *exits, const struct outcome_document *document,
	char code[OUTCOME_MAX_CODE + 1]);

#endif
