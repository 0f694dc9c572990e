#include "command.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "db.h"
#include "program.h"
#include "units.h"

int command_start(const struct opt_program *program, int argc, char **argv)
{
	int first = program_start(program, argc, argv);

	/* `outbox list | head` ends quietly; libpq looks after its own sockets */
	signal(SIGPIPE, SIG_DFL);
	return first;
}

int command_start_operands(const struct opt_program *program, int argc, char **argv,
	int least, int most)
{
	int first = command_start(program, argc, argv);
	int count = argc - first;

	if (count < least || count > most) {
		fprintf(stderr, "%s: %s operands\ntry \"%s --help\"\n", program->name,
			count < least ? "too few" : "too many", program->name);
		exit(err_exit_code(&(struct err){.class = ERR_USAGE}));
	}
	return first;
}

PGconn *command_connect(struct err *err)
{
	struct db_options options = {
		.conninfo = program_db_options.conninfo,
		.program = "outbox",
		.pooled = program_db_options.pooled,
	};

	return db_connect_blocking(&options, err);
}

int command_fail(const struct command *command, const struct err *err)
{
	fprintf(stderr, "outbox %s: %s\n", command->name, err->text);
	return err_exit_code(err);
}

PGresult *command_query(PGconn *conn, const char *sql, int nparams,
	const char *const *values, struct err *err)
{
	PGresult *result = PQexecParams(conn, sql, nparams, NULL, values, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(result);

	if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK)
		return result;
	db_error(err, conn, result);
	PQclear(result);
	return NULL;
}

int command_execute(PGconn *conn, const char *sql, struct err *err)
{
	PGresult *result = PQexec(conn, sql);
	ExecStatusType status = PQresultStatus(result);
	int rc = 0;

	if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
		db_error(err, conn, result);
		rc = -1;
	}
	PQclear(result);
	return rc;
}

int command_parse_id(const char *text, int64_t *id, struct err *err)
{
	if (units_parse_integer(text, 1, INT64_MAX, id, NULL) < 0)
		return err_set(err, ERR_USAGE, "\"%s\" is not the id of a job", text);
	return 0;
}

void command_pause_ms(int64_t ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&time, NULL);
}
