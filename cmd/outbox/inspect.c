#include "inspect.h"

#include <inttypes.h>
#include <stdio.h>

PGresult *inspect_once(const char *sql, const struct params *params, struct err *err)
{
	PGconn *conn = command_connect(err);

	if (conn == NULL)
		return NULL;
	PGresult *result = transaction_read(conn, sql, params, err);
	PQfinish(conn);
	return result;
}

int inspect_not_found(const struct command *command, int64_t id)
{
	fprintf(stderr, "outbox %s: job %" PRId64 " is not found\n", command->name, id);
	return EXIT_REFUSED;
}

int inspect_job(const struct command *command, const struct opt_program *program,
	int argc, char **argv, const char *sql, enum table_form form, int columns)
{
	struct err err = ERR_INIT;
	struct params params = {0};
	int first = command_start_operands(program, argc, argv, 1, 1);
	int64_t id;

	if (options_check_scope(&err) < 0 || command_parse_id(argv[first], &id, &err) < 0)
		return command_fail(command, &err);
	params_add_int(&params, id);
	params_add_scope(&params);
	PGresult *result = inspect_once(sql, &params, &err);
	if (result == NULL)
		return command_fail(command, &err);
	int found = PQntuples(result);
	table_print(result, options_form(form), output_options.json ? 0 : columns);
	PQclear(result);
	return found > 0 ? 0 : inspect_not_found(command, id);
}
