/* outbox keygen DIR: the CURVE keys for links over tcp. */
#include <stdio.h>

#include "command.h"
#include "link.h"

static const struct opt_program program = {
	.name = "outbox keygen",
	.summary = "Writes the CURVE keys for links over tcp into DIR; never overwrites any.",
	.usage = "[option ...] DIR",
};

static int run(int argc, char **argv)
{
	struct err err = ERR_INIT;
	int first = command_start_operands(&program, argc, argv, 1, 1);

	if (link_generate_keys(argv[first], &err) < 0)
		return command_fail(&command_keygen, &err);
	printf("wrote server.key, server.pub, client.key and client.pub to %s\n",
		argv[first]);
	return 0;
}

const struct command command_keygen = {"keygen",
	"write the CURVE keys for links over tcp", run};
