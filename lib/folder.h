/*
 * The files of a folder whose owner alone decides what is in it.
 *
 * Names are relative to the folder. Links are followed and must end within it. What group or
 * others can write to, the file or a folder it is in, is not trusted: they could put there
 * what they like.
 */
#ifndef OUTBOX_FOLDER_H
#define OUTBOX_FOLDER_H

#include <limits.h>
#include <sys/stat.h>

#include "buf.h"
#include "err.h"

/* The folder's absolute path without links. ERR_NOINPUT: there is none; ERR_CONFIG: not to
 * be trusted. */
int folder_open(const char *directory, char folder[PATH_MAX], struct err *err);

struct folder_file {
	char file[PATH_MAX]; /* as named, below the folder */
	char path[PATH_MAX]; /* links resolved */
	struct stat status;
};

/* Finds a file; nothing else is checked. ERR_CONFIG. */
int folder_find(const char *folder, const char *name, struct folder_file *file,
	struct err *err);

/* Refuses a file that is outside or not to be trusted. ERR_CONFIG. */
int folder_check(const char *folder, const struct folder_file *file, struct err *err);

/* Appends what is in a regular file that passes the check. ERR_CONFIG: refused or larger
 * than text->max. */
int folder_read(const char *folder, const char *name, struct buf *text, struct err *err);

#endif
