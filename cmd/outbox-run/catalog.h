/*
 * The handlers that are loaded: the newest set, and older ones for as long as attempts that
 * began with them run.
 */
#ifndef OUTBOX_RUN_CATALOG_H
#define OUTBOX_RUN_CATALOG_H

#include <stdbool.h>

#include "err.h"
#include "handlers.h"

struct catalog {
	struct catalog_set *newest; /* NULL: nothing is loaded */
};

/* Loads the folder's handlers of a lane as the newest set; its address stays the same. On an
 * error nothing changes. As handlers_load; also ERR_CONFIG where a handler is to run as a user
 * that this process cannot become. */
int catalog_load(struct catalog *catalog, const char *folder, const char *lane,
	struct err *err);

const struct handlers *catalog_newest(const struct catalog *catalog);

/* Drops older sets that are not in use. */
typedef bool catalog_use_fn(void *ctx, const struct handlers *handlers);
void catalog_prune(struct catalog *catalog, catalog_use_fn *is_used, void *ctx);

void catalog_release(struct catalog *catalog);

/* Prints a table of the handlers of all lanes on stdout. As handlers_load. */
int catalog_check(const char *directory, struct err *err);

#endif
