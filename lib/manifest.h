/*
 * Manifests: KIND.ini beside the handlers, as outbox(5) describes them.
 *
 * A table in manifest.c has every section and key. What is wrong is refused with file and
 * line: unknown sections and keys, keys that come twice, values that are malformed or out of
 * range, a command or schema that is missing or not to be trusted (folder.h), an unknown user,
 * a required variable that this process does not have.
 */
#ifndef OUTBOX_MANIFEST_H
#define OUTBOX_MANIFEST_H

#include "buf.h"
#include "err.h"
#include "handler.h"
#include "redact.h"

#define MANIFEST_ENDING ".ini"
#define MANIFEST_OF_FOLDER "outbox.ini" /* what holds for all kinds: [redact] */
#define MANIFEST_MAX_BYTES ((size_t)256 << 10)
#define MANIFEST_MAX_ENTRIES 1000

/* Reads the manifest NAME of the folder (an absolute path without links) into a handler,
 * which is empty on an error. ERR_CONFIG. */
int manifest_load(const char *folder, const char *name, struct handler *handler,
	struct err *err);

/* The same for a text instead of the file's. */
int manifest_parse(const char *folder, const char *name, struct str text,
	struct handler *handler, struct err *err);

/* Adds the patterns of MANIFEST_OF_FOLDER. ERR_CONFIG. */
int manifest_load_redactions(const char *folder, struct redactions *redactions,
	struct err *err);

#endif
