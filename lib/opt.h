/*
 * Option tables: one table a program drives parsing, --help, the environment, defaults
 * and the check against the manual page (`PROGRAM --help` is compared by scripts/lint).
 *
 * Precedence: command line, then environment, then default. The environment variable of
 * option --jobs-link is OUTBOX_JOBS_LINK unless the table names another or "" for none; an
 * empty variable counts as unset. --help (-h) and --version (-V) are in every table.
 */
#ifndef OUTBOX_OPT_H
#define OUTBOX_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"

enum opt_type {
	OPT_FLAG,     /* bool *, by --flag or --no-flag; environment 1, 0, true, false */
	OPT_STRING,   /* const char ** */
	OPT_INTEGER,  /* int64_t *, min..max         */
	OPT_DURATION, /* int64_t *, milliseconds, min..max (ms) */
	OPT_SIZE,     /* int64_t *, bytes, min..max  */
	OPT_CHOICE,   /* int *, index into `choices` ("logfmt|json") */
	OPT_LIST,     /* struct opt_list *, may be repeated; environment: at commas */
};

struct opt_list {
	char **items; /* owned, and so are the strings */
	size_t count;
};

void opt_list_release(struct opt_list *list);

struct opt {
	const char *name; /* long name without dashes; NULL ends the table */
	char short_name;  /* or 0 */
	enum opt_type type;
	void *value;              /* where the result goes; holds the default */
	const char *argument;     /* name of the argument in --help: "ENDPOINT" */
	const char *help;         /* one line, lower case, no full stop */
	const char *default_text; /* NULL, or shown in --help and parsed into value first */
	const char *environment;  /* NULL: made from the name; "": none */
	const char *choices;      /* OPT_CHOICE: "a|b|c" */
	int64_t min, max;         /* inclusive; both 0: no bound but >= 0 */
};

struct opt_program {
	const char *name;            /* "outbox-run" */
	const char *summary;         /* one line for --help */
	const char *usage;           /* what follows the name: "[option ...]" */
	const struct opt *tables[5]; /* own options, then shared ones; NULL ends */
};

/*
 * Parses argv by getopt_long's rules (options and operands may be mixed, "--" ends
 * options). On success *first_operand is the index of the first operand in argv, which is
 * permuted. --help and --version print to stdout and exit 0. An unknown option, a missing
 * or bad argument or a bad environment value is ERR_USAGE naming the option or variable.
 */
int opt_parse(const struct opt_program *program, int argc, char **argv,
	int *first_operand, struct err *err);

/* The text of --help, for the front end's subcommands and for the tests. */
void opt_print_help(const struct opt_program *program);

#endif
