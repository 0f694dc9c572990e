/*
 * What a manifest may say: its sections and keys, in one table, and what each of them sets.
 */
#ifndef OUTBOX_MANIFEST_KEYS_H
#define OUTBOX_MANIFEST_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "handler.h"
#include "policy.h"
#include "redact.h"

struct manifest { /* that is being read */
	const char *folder;
	struct handler *handler;
	struct policy policy;
	struct policy_rule *rule;  /* of the section [retry.CODE] */
	char *user, *home;         /* whom the handler runs as, or NULL */
	struct redactions *shared; /* where patterns go that hold for the folder, or NULL */
	char **seen;               /* "section name" of each entry so far */
	size_t seen_count;
};

struct manifest_key {
	const char *name;
	/* field: at the offset in what the section is about */
	int (*set)(struct manifest *manifest, const struct manifest_key *key, void *field,
		const char *value, struct err *err);
	size_t offset;
	int64_t min, max;
};

struct manifest_section {
	const char *name; /* "retry." stands for all [retry.CODE] */
	/* Its keys, and what they are about … */
	const struct manifest_key *keys; /* ends with NULL */
	void *(*subject)(struct manifest *manifest);
	/* … or, where names are the user's: */
	int (*set)(struct manifest *manifest, const char *name, const char *value,
		struct err *err);
	bool is_repeatable; /* a name may come more than once */
	bool is_of_folder;  /* it may stand in the file for the whole folder, too */
};

/* NULL: there is none of that name. */
const struct manifest_section *manifest_find_section(const char *name);

/* The CODE of [retry.CODE], or NULL. */
const char *manifest_code_of_section(const char *name);

/* Sets a key of a section that has keys. ERR_CONFIG or ERR_DATA, as for all setters. */
int manifest_set_key(struct manifest *manifest, const struct manifest_section *section,
	const char *name, const char *value, struct err *err);

#endif
