#include "manifest_command.h"

#include <ctype.h>
#include <errno.h>
#include <sys/stat.h>
#include <string.h>
#include <unistd.h>

#include "folder.h"

int manifest_next_word(const char **rest, struct buf *word)
{
	const char *at = *rest;
	char quote = '\0';

	buf_clear(word);
	while (isspace((unsigned char)*at))
		at++;
	if (*at == '\0')
		return 0;
	for (; *at != '\0' && (quote != '\0' || !isspace((unsigned char)*at)); at++) {
		if (quote != '\0' ? *at == quote : *at == '\'' || *at == '"')
			quote = quote == '\0' ? *at : '\0';
		else
			buf_put_char(word, *at);
	}
	*rest = at;
	return quote == '\0' ? 1 : -1;
}

int manifest_set_executable(struct handler *handler, const char *folder, const char *name,
	struct err *err)
{
	struct folder_file file;

	if (name[0] == '/')
		return err_set(err, ERR_CONFIG, "\"%s\" is not relative to the handler folder",
			name);
	if (folder_find(folder, name, &file, err) != 0 ||
		folder_check(folder, &file, err) != 0)
		return -1;
	if (!S_ISREG(file.status.st_mode))
		return err_set(err, ERR_CONFIG, "\"%s\" is not a file", file.file);
	if (access(file.path, X_OK) != 0)
		return err_set_errno(err, ERR_CONFIG, errno, "could not execute \"%s\"",
			file.file);
	handler->path = mem_strdup(file.path);
	handler_add_argument(handler, file.file);
	return 0;
}

static int set_words(struct handler *handler, const char *folder, const char *command,
	struct buf *word, struct err *err)
{
	int found = manifest_next_word(&command, word);

	if (found == 0)
		return err_set(err, ERR_CONFIG, "the command is empty");
	if (found > 0 && manifest_set_executable(handler, folder, buf_cstr(word), err) != 0)
		return -1;
	while (found > 0 && (found = manifest_next_word(&command, word)) > 0)
		handler_add_argument(handler, buf_cstr(word));
	return found == 0 ? 0 : err_set(err, ERR_CONFIG, "a quote is not closed");
}

int manifest_set_command(struct handler *handler, const char *folder, const char *command,
	struct err *err)
{
	struct buf word;

	buf_init(&word, strlen(command) + 1);
	int result = set_words(handler, folder, command, &word, err);
	buf_release(&word);
	return result;
}
