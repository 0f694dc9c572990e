/*
 * The job ids of a command line: its operands, or with the operand "-" the lines of stdin.
 */
#ifndef OUTBOX_IDS_H
#define OUTBOX_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

struct ids {
	char **operands; /* ends with NULL */
	bool from_stdin;
	char *line; /* of getline */
	size_t size;
};

/* Wrong operands are found here, before anything is done with the right ones. */
int ids_init(struct ids *ids, char **operands, struct err *err);
void ids_release(struct ids *ids);

/* Returns 1 with an id, 0 at the end, -1 when a line is not an id. */
int ids_next(struct ids *ids, int64_t *id, struct err *err);

#endif
