/*
 * Files of [section] and name = value, read with inih.
 *
 * A comment begins with ";" or "#" at the start of a line, or with ";" behind white space.
 * An indented line continues the value of the line before: a newline stands between.
 * The file must be UTF-8 without NUL; how long a line may be is inih's affair (197 bytes).
 */
#ifndef OUTBOX_INIFILE_H
#define OUTBOX_INIFILE_H

#include "buf.h"
#include "err.h"

struct inifile_reader {
	/* Each returns 0, or -1 with what is wrong, without file and line. */
	int (*section)(void *ctx, const char *section, struct err *err);
	int (*entry)(void *ctx, const char *section, const char *name, const char *value,
		struct err *err);
	void *ctx;
};

/* The entries in their order. ERR_CONFIG: "FILE:LINE: what is wrong"; reading stops there. */
int inifile_parse(struct str text, const char *file, const struct inifile_reader *reader,
	struct err *err);

#endif
