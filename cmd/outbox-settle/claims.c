#include "claims.h"

#include <stddef.h>

/*
 * A claim has one possible slot; a newer claim evicts an older one from it. Ids come from a
 * sequence, so neighbours do not collide.
 */
static struct claim_count *find(struct claims *claims, int64_t id)
{
	return &claims->slots[(uint64_t)id & (CLAIMS_SLOTS - 1)];
}

bool claims_count(struct claims *claims, int64_t id, int64_t size)
{
	struct claim_count *slot = find(claims, id);

	if (size <= 1)
		return true;
	if (slot->id != id)
		*slot = (struct claim_count){.id = id};
	return ++slot->settled >= size;
}

void claims_uncount(struct claims *claims, int64_t id, int64_t size)
{
	struct claim_count *slot = find(claims, id);

	if (size > 1 && slot->id == id)
		slot->settled--;
}

void claims_forget(struct claims *claims, int64_t id)
{
	struct claim_count *slot = find(claims, id);

	if (slot->id == id)
		*slot = (struct claim_count){.id = 0};
}
