/*
 * A stream of bytes, line by line. Memory is bounded: of a line that is longer than the
 * maximum the beginning is given, and the rest passed over.
 */
#ifndef OUTBOX_LINES_H
#define OUTBOX_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"

#define LINES_CHUNK ((size_t)65536) /* bytes added at a time, as many as a pipe holds */

struct lines {
	struct buf bytes;
	size_t max_line;
	size_t searched; /* so many of the bytes are known to hold no newline */
	size_t given;  /* so many belong to the line given last: dropped with the next call */
	bool skipping; /* the rest of a line that was too long */
};

enum lines_found {
	LINES_NONE,     /* no whole line is here */
	LINES_LINE,     /* without its newline */
	LINES_TOO_LONG, /* the first max_line bytes of one that is longer */
};

void lines_init(struct lines *lines, size_t max_line);
void lines_release(struct lines *lines);

/* Adds at most LINES_CHUNK bytes; only after lines_next has found no more. */
void lines_add(struct lines *lines, const char *bytes, size_t count);

/* The same from a descriptor, with one read(2). 1: there may be more at once; 0: it would
 * block; -1: end of file, or an error that is as good as one. */
int lines_read(struct lines *lines, int fd);

/* *line is a view until the next call of any of these. */
enum lines_found lines_next(struct lines *lines, struct str *line);

/* At the end of the stream: what follows the last newline, absent if nothing does. */
struct str lines_rest(struct lines *lines);

#endif
