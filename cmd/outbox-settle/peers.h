/*
 * The runners that have greeted this settler, by routing id.
 */
#ifndef SETTLE_PEERS_H
#define SETTLE_PEERS_H

#include <stdbool.h>
#include <stddef.h>

#include "link.h"

struct peer {
	struct link_peer address;
	size_t waiting; /* entries that point here */
	bool gone;      /* said goodbye, or its connection is down */
	struct peer *next;
};

struct peers {
	struct peer *first;
	struct peer *last_found; /* results come in runs of one runner */
};

/* Finds the peer or adds it; a peer that was gone is back. */
struct peer *peers_get(struct peers *peers, const struct link_peer *address);

/* Forgets peers that are gone and that no entry points to. */
void peers_prune(struct peers *peers);

bool peers_any_here(const struct peers *peers);
void peers_release(struct peers *peers);

#endif
