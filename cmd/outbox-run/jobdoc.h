/*
 * What a handler is told: the JSON document on its stdin and its environment.
 */
#ifndef OUTBOX_RUN_JOBDOC_H
#define OUTBOX_RUN_JOBDOC_H

#include "buf.h"
#include "frame.h"
#include "handlers.h"
#include "opt.h"

#define JOBDOC_MAX_BYTES \
	((size_t)128 << 20) /* a frame whose every byte needs an escape */

/*
 * Appends the document and a newline. Payload and metadata stand in it byte for byte. Ids
 * are strings: they have 63 bits, and JavaScript and jq round numbers to 53. deadline_us 0:
 * unknown.
 */
void jobdoc_put(struct buf *out, const struct frame_job *job, int64_t deadline_us);

/* The same on one line, for stream handlers: newlines in payload and metadata, which JSON
 * allows between its tokens only, become spaces. */
void jobdoc_put_line(struct buf *out, const struct frame_job *job, int64_t deadline_us);

/*
 * An environment that is built for each attempt: the fixed part (PATH, HOME, LANG, LC_*, TZ,
 * names that the operator passes on, the handler's own) and the short facts of the job. Long
 * ones stand in the document only, because exec refuses a string of 128 KiB.
 */
struct jobdoc_environment {
	char **envp; /* NULL-terminated; the fixed strings, then views into text */
	size_t fixed_count;
	struct buf text;
};

void jobdoc_environment_init(struct jobdoc_environment *environment,
	const struct handler *handler, const struct opt_list *passed);
void jobdoc_environment_release(struct jobdoc_environment *environment);

/* Until the next call of either; the array is environment->envp. */
char *const *jobdoc_environment_of(struct jobdoc_environment *environment,
	const struct frame_job *job, int64_t deadline_us);

/* That of a stream handler, which is given many jobs. */
char *const *jobdoc_environment_of_stream(struct jobdoc_environment *environment,
	const char *kind);

#endif
