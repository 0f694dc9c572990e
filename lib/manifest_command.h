/*
 * Commands in manifests: words, the first of which is an executable of the folder.
 */
#ifndef OUTBOX_MANIFEST_COMMAND_H
#define OUTBOX_MANIFEST_COMMAND_H

#include "buf.h"
#include "err.h"
#include "handler.h"

/* Takes the next word of a text: at white space, except between quotes of either kind, which
 * may stand anywhere in it. 1: a word, 0: the end, -1: a quote that is not closed. */
int manifest_next_word(const char **rest, struct buf *word);

/* Sets path and argv[0] to a file of the folder that may be executed. ERR_CONFIG. */
int manifest_set_executable(struct handler *handler, const char *folder, const char *name,
	struct err *err);

/* Sets path and argv. ERR_CONFIG. */
int manifest_set_command(struct handler *handler, const char *folder, const char *command,
	struct err *err);

#endif
