#include "wanted.h"

#include <stdlib.h>

long wanted_find(const struct wanted *wanted, struct str name)
{
	for (size_t i = 0; i < wanted->count; i++)
		if (str_equal(str_of(wanted->kinds[i].name), name))
			return (long)i;
	return -1;
}

size_t wanted_add(struct wanted *wanted, struct str name)
{
	long found = wanted_find(wanted, name);

	if (found >= 0)
		return (size_t)found;
	wanted->kinds = mem_realloc(wanted->kinds, wanted->count + 1, sizeof(*wanted->kinds));
	wanted->kinds[wanted->count] = (struct wanted_kind){
		.name = mem_strndup(name.s, name.n),
		.may_be_due = true,
		.round = 1,
	};
	return wanted->count++;
}

void wanted_mark(struct wanted_kind *kind)
{
	kind->may_be_due = true;
	kind->round++;
}

void wanted_mark_all(struct wanted *wanted)
{
	for (size_t i = 0; i < wanted->count; i++)
		wanted_mark(&wanted->kinds[i]);
}

void wanted_release(struct wanted *wanted)
{
	for (size_t i = 0; i < wanted->count; i++)
		free(wanted->kinds[i].name);
	free(wanted->kinds);
	*wanted = (struct wanted){.kinds = NULL};
}
