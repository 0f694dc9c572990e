#include "kinds.h"

#include <stdlib.h>

void kinds_init(struct kinds *kinds, const struct handlers *handlers,
	const struct opt_list *pass_env)
{
	kinds->handlers = handlers;
	kinds->items = mem_alloc(handlers->count + 1, sizeof(*kinds->items));
	for (size_t i = 0; i < handlers->count; i++) {
		kinds->items[i].handler = &handlers->items[i];
		jobdoc_environment_init(&kinds->items[i].environment, &handlers->items[i],
			pass_env);
	}
}

void kinds_release(struct kinds *kinds)
{
	for (size_t i = 0; kinds->items != NULL && i < kinds->handlers->count; i++)
		jobdoc_environment_release(&kinds->items[i].environment);
	free(kinds->items);
	*kinds = (struct kinds){0};
}

size_t kinds_index(const struct kinds *kinds, struct str name)
{
	const struct handler *handler = handlers_find(kinds->handlers, name);

	return handler != NULL ? (size_t)(handler - kinds->handlers->items)
						   : kinds->handlers->count;
}

bool kinds_place(const struct kinds *kinds, struct job *job)
{
	job->kind = kinds_index(kinds, job->frame.kind);
	const struct handler *handler = kinds->items[job->kind].handler;
	return handler != NULL && handler->version >= job->frame.version;
}

bool kind_is_stream(const struct kind *kind)
{
	return kind->stream != NULL;
}

size_t kind_held(const struct kind *kind)
{
	return kind_is_stream(kind) ? stream_held(kind->stream)
								: kind->running + kind->queued;
}

size_t kind_waiting(const struct kind *kind)
{
	return kind_is_stream(kind) ? kind->stream->waiting.count : kind->queued;
}
