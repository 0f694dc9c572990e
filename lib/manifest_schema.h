/*
 * The schema of payloads that a manifest names: a JSON file of the folder. What its keywords
 * mean is the database's affair.
 */
#ifndef OUTBOX_MANIFEST_SCHEMA_H
#define OUTBOX_MANIFEST_SCHEMA_H

#include "err.h"

/* Reads it; the text is the caller's. NULL and ERR_CONFIG: not there, not to be trusted, not
 * a JSON object, or none that PostgreSQL can hold as jsonb. */
char *manifest_read_schema(const char *folder, const char *name, struct err *err);

#endif
