#include "options.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

/* ---- the tables */

struct output_options output_options;
struct scope_options scope_options;

/* Ends of a range of instants. */
struct span {
	const char *from, *after, *to, *before;
};

static struct {
	const char *state, *kind, *code, *correlation_id;
	struct span created, finished;
} filter;

const struct opt output_opts[] = {
	{
		.name = "json",
		.type = OPT_FLAG,
		.value = &output_options.json,
		.environment = "",
		.help = "print one JSON object a line",
	},
	{
		.name = "timeout",
		.type = OPT_DURATION,
		.value = &output_options.timeout_ms,
		.argument = "TIME",
		.default_text = "30s",
		.environment = "",
		.min = 1,
		.max = 86400000,
		.help = "give up a statement that takes longer",
	},
	{.name = NULL},
};

#define STRING_OPT(option, variable, word, text) \
	{ \
		.name = option, .type = OPT_STRING, .value = &(variable), .argument = word, \
		.environment = "", .help = text \
	}

#define SCOPE_OPTS \
	STRING_OPT("tenant", scope_options.tenant, "TENANT", "only jobs of this tenant"), \
	{ \
		.name = "no-tenant", .type = OPT_FLAG, .value = &scope_options.no_tenant, \
		.environment = "", .help = "only jobs without a tenant" \
	}

const struct opt scope_opts[] = {
	SCOPE_OPTS,
	{.name = NULL},
};

const struct opt filter_opts[] = {
	STRING_OPT("state", filter.state, "STATE",
		"pending, retrying, running, succeeded, dead or cancelled"),
	STRING_OPT("kind", filter.kind, "KIND", "only jobs of this kind"),
	STRING_OPT("code", filter.code, "CODE", "only jobs whose last attempt has this code"),
	STRING_OPT("correlation-id", filter.correlation_id, "ID",
		"only jobs with this correlation id"),
	STRING_OPT("created-from", filter.created.from, "INSTANT", "created then or later"),
	STRING_OPT("created-after", filter.created.after, "INSTANT", "created later"),
	STRING_OPT("created-to", filter.created.to, "INSTANT", "created then or earlier"),
	STRING_OPT("created-before", filter.created.before, "INSTANT", "created earlier"),
	STRING_OPT("finished-from", filter.finished.from, "INSTANT",
		"last attempt ended then or later"),
	STRING_OPT("finished-after", filter.finished.after, "INSTANT",
		"last attempt ended later"),
	STRING_OPT("finished-to", filter.finished.to, "INSTANT",
		"last attempt ended then or earlier"),
	STRING_OPT("finished-before", filter.finished.before, "INSTANT",
		"last attempt ended earlier"),
	SCOPE_OPTS,
	{.name = NULL},
};

/* ---- checks */

int options_check_scope(struct err *err)
{
	if (scope_options.tenant != NULL && scope_options.no_tenant)
		return err_set(err, ERR_USAGE,
			"--tenant and --no-tenant must not be given together");
	return 0;
}

static int check_span(const struct span *span, const char *name, struct err *err)
{
	if (span->from != NULL && span->after != NULL)
		return err_set(err, ERR_USAGE,
			"--%s-from and --%s-after must not be given together", name, name);
	if (span->to != NULL && span->before != NULL)
		return err_set(err, ERR_USAGE,
			"--%s-to and --%s-before must not be given together", name, name);
	return 0;
}

int options_check_filter(struct err *err)
{
	if (options_check_scope(err) < 0 || check_span(&filter.created, "created", err) < 0)
		return -1;
	return check_span(&filter.finished, "finished", err);
}

static bool is_open(const struct span *span)
{
	return span->from == NULL && span->after == NULL && span->to == NULL &&
		span->before == NULL;
}

bool options_have_filter(void)
{
	return filter.state != NULL || filter.kind != NULL || filter.code != NULL ||
		filter.correlation_id != NULL || !is_open(&filter.created) ||
		!is_open(&filter.finished);
}

bool options_have_state(void)
{
	return filter.state != NULL;
}

enum table_form options_form(enum table_form form_for_people)
{
	return output_options.json ? TABLE_JSON : form_for_people;
}

/* ---- parameters */

void params_add(struct params *params, const char *text)
{
	assert(params->count < PARAMS_MAX);
	params->values[params->count++] = text;
}

void params_add_int(struct params *params, int64_t number)
{
	char *scratch = params->scratch[params->count];

	snprintf(scratch, sizeof(params->scratch[0]), "%" PRId64, number);
	params_add(params, scratch);
}

void params_add_bool(struct params *params, bool value)
{
	params_add(params, value ? "true" : "false");
}

void params_add_scope(struct params *params)
{
	params_add(params, scope_options.tenant);
	params_add_bool(params, scope_options.no_tenant);
}

static void add_span(struct params *params, const struct span *span)
{
	params_add(params, span->from);
	params_add(params, span->after);
	params_add(params, span->to);
	params_add(params, span->before);
}

void params_add_filter(struct params *params)
{
	params_add(params, filter.state);
	params_add(params, filter.kind);
	params_add_scope(params);
	params_add(params, filter.correlation_id);
	params_add(params, filter.code);
	add_span(params, &filter.created);
	add_span(params, &filter.finished);
}
