#include "kinds.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"

#define LOOK_US INT64_C(1000000) /* between two looks for a program that is absent */

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

/* What the name of an interpreter is to blame for, the handler is charged with. */
bool kind_is_lost(struct kind *kind, const struct err *err)
{
	const char *path = kind->handler->path;

	if (err->errnum != ETXTBSY && access(path, X_OK) == 0)
		return false;
	if (kind->absent_us == 0)
		log_event(LOG_ERROR, "handler_absent", LOG_TEXT("kind", kind->handler->kind),
			LOG_TEXT("error", err->text));
	kind->absent_us = clock_us();
	return true;
}

bool kind_is_absent(const struct kind *kind)
{
	return kind->absent_us != 0;
}

static void look(struct kind *kind, int64_t now_us)
{
	kind->absent_us = now_us;
	if (access(kind->handler->path, X_OK) != 0)
		return;
	log_event(LOG_INFO, "handler_back", LOG_TEXT("kind", kind->handler->kind));
	kind->absent_us = 0;
}

int64_t kinds_look(struct kinds *kinds)
{
	int64_t now_us = clock_us(), wait_us = -1;

	for (size_t i = 0; i < kinds->handlers->count; i++) {
		struct kind *kind = &kinds->items[i];
		if (kind_is_absent(kind) && now_us - kind->absent_us >= LOOK_US)
			look(kind, now_us);
		if (kind_is_absent(kind))
			wait_us = LOOK_US;
	}
	return wait_us;
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
