#include "handler.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"

void handler_init(struct handler *handler, const char *kind, const char *file)
{
	*handler = (struct handler){
		.kind = mem_strdup(kind),
		.file = mem_strdup(file),
		.argv = mem_alloc(1, sizeof(char *)),
		.envp = mem_alloc(1, sizeof(char *)),
		.lane = mem_strdup("default"),
		.timeout_ms = HANDLER_TIMEOUT_MS,
		.grace_ms = HANDLER_GRACE_MS,
		.mode = HANDLER_EXEC,
		.processes = 1,
		.window = HANDLER_STREAM_WINDOW,
	};
}

static void free_strings(char **strings)
{
	for (size_t i = 0; strings != NULL && strings[i] != NULL; i++)
		free(strings[i]);
	free(strings);
}

void handler_release(struct handler *handler)
{
	free(handler->kind);
	free(handler->file);
	free(handler->path);
	free_strings(handler->argv);
	free_strings(handler->envp);
	free(handler->lane);
	free(handler->exits.items);
	redactions_release(&handler->redactions);
	free(handler->manifest);
	*handler = (struct handler){0};
}

/* Appends a string that the list owns from now on. */
static void add_string(char ***strings, char *string)
{
	size_t count = 0;

	while ((*strings)[count] != NULL)
		count++;
	*strings = mem_realloc(*strings, count + 2, sizeof(char *));
	(*strings)[count] = string;
	(*strings)[count + 1] = NULL;
}

void handler_add_argument(struct handler *handler, const char *argument)
{
	add_string(&handler->argv, mem_strdup(argument));
}

static char **find_variable(const struct handler *handler, const char *name)
{
	size_t length = strlen(name);
	char **variable = handler->envp;

	while (*variable != NULL &&
		(strncmp(*variable, name, length) != 0 || (*variable)[length] != '='))
		variable++;
	return *variable != NULL ? variable : NULL;
}

bool handler_has_variable(const struct handler *handler, const char *name)
{
	return find_variable(handler, name) != NULL;
}

void handler_set_variable(struct handler *handler, const char *name, const char *value)
{
	char **present = find_variable(handler, name);
	struct buf text;

	buf_init(&text, strlen(name) + strlen(value) + 2);
	buf_put_str(&text, str_of(name));
	buf_put_char(&text, '=');
	buf_put_str(&text, str_of(value));
	char *variable = mem_strdup(buf_cstr(&text));
	buf_release(&text);
	if (present == NULL) {
		add_string(&handler->envp, variable);
		return;
	}
	free(*present);
	*present = variable;
}

struct child_spec handler_child_spec(const struct handler *handler, char *const *envp)
{
	return (struct child_spec){
		.path = handler->path,
		.argv = handler->argv,
		.envp = envp,
		.limits = handler->limits,
		.set_user = handler->set_user,
		.uid = handler->uid,
		.gid = handler->gid,
	};
}

bool handler_redacts(const struct handler *handler)
{
	return handler->redactions.count > 0 ||
		(handler->folder_redactions != NULL && handler->folder_redactions->count > 0);
}

const char *handler_mode_name(enum handler_mode mode)
{
	return mode == HANDLER_STREAM ? "stream" : "exec";
}
