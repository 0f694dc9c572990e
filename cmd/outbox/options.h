/*
 * Options that several subcommands share, and the query parameters made from them.
 *
 * None of them is read from the environment: handlers run with variables such as OUTBOX_KIND,
 * and a filter must never come from there.
 */
#ifndef OUTBOX_OPTIONS_H
#define OUTBOX_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "opt.h"
#include "table.h"

/* --json, --timeout */
struct output_options {
	bool json;
	int64_t timeout_ms; /* of each statement */
};
extern const struct opt output_opts[];
extern struct output_options output_options;

/* --tenant, --no-tenant */
struct scope_options {
	const char *tenant; /* NULL: any */
	bool no_tenant;
};
extern const struct opt scope_opts[];
extern struct scope_options scope_options;

/* --state, --kind, --code, --correlation-id, the ranges of instants, and the scope */
extern const struct opt filter_opts[];

/* Refuses options that contradict each other. */
int options_check_scope(struct err *err);
int options_check_filter(struct err *err);

/* Whether any option of the filter was given; the state alone. */
bool options_have_filter(void);
bool options_have_state(void);

/* Parameters $1, $2, … of a statement, as text. */
#define PARAMS_MAX 24
struct params {
	const char *values[PARAMS_MAX];
	int count;
	char scratch[PARAMS_MAX][24]; /* for numbers */
};

void params_add(struct params *params, const char *text); /* NULL: null */
void params_add_int(struct params *params, int64_t number);
void params_add_bool(struct params *params, bool value);

/* tenant, no_tenant: two parameters. */
void params_add_scope(struct params *params);

/* The filter is always $1 to $14; FILTER_SQL are the arguments of the SQL functions that take
 * it: state, kind, tenant, no_tenant, correlation_id, code, created, finished. */
void params_add_filter(struct params *params);
#define FILTER_SQL \
	"$1, $2, $3, $4, $5, $6, outbox.span($7, $8, $9, $10), outbox.span($11, $12, $13, " \
	"$14)"

/* --json or a form for people. */
enum table_form options_form(enum table_form form_for_people);

#endif
