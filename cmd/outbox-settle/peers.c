#include "peers.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"

static bool is_at(const struct peer *peer, const struct link_peer *address)
{
	return peer->address.length == address->length &&
		memcmp(peer->address.id, address->id, address->length) == 0;
}

struct peer *peers_get(struct peers *peers, const struct link_peer *address)
{
	struct peer *peer = peers->last_found;

	if (peer == NULL || !is_at(peer, address))
		for (peer = peers->first; peer != NULL && !is_at(peer, address);)
			peer = peer->next;
	if (peer == NULL) {
		peer = mem_alloc(1, sizeof(*peer));
		peer->address = *address;
		peer->next = peers->first;
		peers->first = peer;
	}
	peer->gone = false;
	peers->last_found = peer;
	return peer;
}

void peers_prune(struct peers *peers)
{
	for (struct peer **link = &peers->first; *link != NULL;) {
		struct peer *peer = *link;

		if (peer->gone && peer->waiting == 0) {
			*link = peer->next;
			free(peer);
		} else {
			link = &peer->next;
		}
	}
	peers->last_found = NULL;
}

bool peers_any_here(const struct peers *peers)
{
	for (const struct peer *peer = peers->first; peer != NULL; peer = peer->next)
		if (!peer->gone)
			return true;
	return false;
}

void peers_release(struct peers *peers)
{
	while (peers->first != NULL) {
		struct peer *next = peers->first->next;

		free(peers->first);
		peers->first = next;
	}
	peers->last_found = NULL;
}
