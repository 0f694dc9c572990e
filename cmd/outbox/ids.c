#include "ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

int ids_init(struct ids *ids, char **operands, struct err *err)
{
	int64_t id;

	*ids = (struct ids){.operands = operands};
	ids->from_stdin = operands[0] != NULL && strcmp(operands[0], "-") == 0 &&
		operands[1] == NULL;
	if (ids->from_stdin)
		return 0;
	for (; *operands != NULL; operands++)
		if (command_parse_id(*operands, &id, err) < 0)
			return -1;
	return 0;
}

void ids_release(struct ids *ids)
{
	free(ids->line);
	ids->line = NULL;
}

int ids_next(struct ids *ids, int64_t *id, struct err *err)
{
	if (!ids->from_stdin) {
		if (*ids->operands == NULL)
			return 0;
		return command_parse_id(*ids->operands++, id, err) < 0 ? -1 : 1;
	}
	if (getline(&ids->line, &ids->size, stdin) < 0)
		return ferror(stdin) ? err_set(err, ERR_IO, "could not read stdin") : 0;
	ids->line[strcspn(ids->line, " \t\r\n")] = '\0';
	return command_parse_id(ids->line, id, err) < 0 ? -1 : 1;
}
