#include "opt.h"

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "buf.h"
#include "units.h"
#include "version.h"

/* ---- the tables as one list */

#define MAX_TABLES (sizeof(((struct opt_program *)NULL)->tables) / sizeof(void *))

struct opt_index {
	const struct opt **opts;
	bool *given; /* on the command line */
	size_t count;
};

static struct opt_index index_new(const struct opt_program *program)
{
	struct opt_index index = {0};

	for (size_t t = 0; t < MAX_TABLES && program->tables[t] != NULL; t++)
		for (const struct opt *opt = program->tables[t]; opt->name != NULL; opt++) {
			index.opts = mem_realloc(index.opts, index.count + 1,
				sizeof(const struct opt *));
			index.opts[index.count++] = opt;
		}
	index.given = mem_alloc(index.count, sizeof(bool));
	return index;
}

static void index_free(struct opt_index *index)
{
	free(index->opts);
	free(index->given);
}

/* "OUTBOX_JOBS_LINK" for --jobs-link; false when the option is not read from there. */
static bool environment_name(const struct opt *opt, char *name, size_t size)
{
	const char *given = opt->environment;

	if (given != NULL) {
		snprintf(name, size, "%s", given);
		return given[0] != '\0';
	}
	snprintf(name, size, "OUTBOX_%s", opt->name);
	for (char *c = name; *c != '\0'; c++)
		*c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
	return true;
}

/* ---- values */

static int parse_flag(const char *text, bool *value, struct err *err)
{
	bool is_true = strcmp(text, "1") == 0 || strcmp(text, "true") == 0;

	if (!is_true && strcmp(text, "0") != 0 && strcmp(text, "false") != 0)
		return err_set(err, ERR_USAGE, "\"%s\" is not one of 1, 0, true, false", text);
	*value = is_true;
	return 0;
}

static int parse_choice(const struct opt *opt, const char *text, struct err *err)
{
	size_t length = strlen(text);
	int position = 0;

	for (const char *choice = opt->choices;; position++) {
		size_t choice_length = strcspn(choice, "|");
		if (choice_length == length && memcmp(choice, text, length) == 0) {
			*(int *)opt->value = position;
			return 0;
		}
		if (choice[choice_length] == '\0')
			break;
		choice += choice_length + 1;
	}
	return err_set(err, ERR_USAGE, "\"%s\" is not one of %s", text, opt->choices);
}

static int parse_number(const struct opt *opt, const char *text, struct err *err)
{
	bool bounded = opt->min != 0 || opt->max != 0;
	int64_t max = bounded ? opt->max : INT64_MAX;
	int64_t value;

	if (opt->type == OPT_INTEGER) {
		if (units_parse_integer(text, opt->min, max, &value, err) < 0)
			return -1;
	} else {
		bool is_duration = opt->type == OPT_DURATION;
		if ((is_duration ? units_parse_duration_ms(text, &value, err)
						 : units_parse_size(text, &value, err)) < 0)
			return -1;
		if (value < opt->min || value > max)
			return err_set(err, ERR_USAGE, "\"%s\" is not between %lld and %lld %s", text,
				(long long)opt->min, (long long)max, is_duration ? "ms" : "bytes");
	}
	*(int64_t *)opt->value = value;
	return 0;
}

static void list_add(struct opt_list *list, const char *item, size_t length)
{
	list->items = mem_realloc(list->items, list->count + 1, sizeof(char *));
	list->items[list->count++] = mem_strndup(item, length);
}

static void list_split(struct opt_list *list, const char *text)
{
	for (;;) {
		size_t length = strcspn(text, ",");
		list_add(list, text, length);
		if (text[length] == '\0')
			return;
		text += length + 1;
	}
}

void opt_list_release(struct opt_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->items[i]);
	free(list->items);
	*list = (struct opt_list){0};
}

/* Of a default or an environment variable: the whole value, also of a list. */
static int parse_value(const struct opt *opt, const char *text, struct err *err)
{
	switch (opt->type) {
	case OPT_FLAG:
		return parse_flag(text, opt->value, err);
	case OPT_STRING:
		*(const char **)opt->value = text;
		return 0;
	case OPT_INTEGER:
	case OPT_DURATION:
	case OPT_SIZE:
		return parse_number(opt, text, err);
	case OPT_CHOICE:
		return parse_choice(opt, text, err);
	case OPT_LIST:
		list_split(opt->value, text);
		return 0;
	}
	return err_set(err, ERR_SOFTWARE, "option table: unknown type %d", (int)opt->type);
}

static int wrong_value(struct err *err, const char *what, const char *name)
{
	err->class = ERR_USAGE;
	return err_prefix(err, "%s%s", what, name);
}

/* What the command line left open comes from the environment, else from the table. */
static int fill_in(const struct opt_index *index, struct err *err)
{
	for (size_t i = 0; i < index->count; i++) {
		const struct opt *opt = index->opts[i];
		char name[128];
		const char *text = NULL;

		if (index->given[i])
			continue;
		if (environment_name(opt, name, sizeof(name)))
			text = getenv(name);
		if (text != NULL && text[0] != '\0') {
			if (parse_value(opt, text, err) < 0)
				return wrong_value(err, "environment variable ", name);
		} else if (opt->default_text != NULL) {
			if (parse_value(opt, opt->default_text, err) < 0)
				return wrong_value(err, "default of option --", opt->name);
		}
	}
	return 0;
}

/* ---- help */

/* "-j, --slots N", or "    --slots N" */
static void print_option(char short_name, const char *name, const char *argument,
	const char *help, const char *default_text, const char *environment)
{
	char left[64];
	const char *separator = " (";

	snprintf(left, sizeof(left), "%c%c%c --%s%s%s", short_name ? '-' : ' ',
		short_name ? short_name : ' ', short_name ? ',' : ' ', name, argument ? " " : "",
		argument ? argument : "");
	if (strlen(left) > 30)
		printf("  %s\n  %-30s  %s", left, "", help);
	else
		printf("  %-30s  %s", left, help);
	if (default_text != NULL) {
		printf("%sdefault %s", separator, default_text);
		separator = "; ";
	}
	if (environment != NULL) {
		printf("%s%s", separator, environment);
		separator = "; ";
	}
	printf("%s\n", separator[0] == ';' ? ")" : "");
}

void opt_print_help(const struct opt_program *program)
{
	struct opt_index index = index_new(program);
	bool has_flags = false;

	printf("usage: %s %s\n%s\n\noptions:\n", program->name, program->usage,
		program->summary);
	for (size_t i = 0; i < index.count; i++) {
		const struct opt *opt = index.opts[i];
		const char *argument = opt->argument;
		char name[128];

		if (opt->type == OPT_FLAG)
			has_flags = true;
		if (opt->type == OPT_CHOICE && argument == NULL)
			argument = opt->choices;
		print_option(opt->short_name, opt->name, argument, opt->help, opt->default_text,
			environment_name(opt, name, sizeof(name)) ? name : NULL);
	}
	print_option('h', "help", NULL, "print this text and exit", NULL, NULL);
	print_option('V', "version", NULL, "print the version and exit", NULL, NULL);
	if (has_flags)
		printf("\nAn option without an argument is switched off by --no-NAME.\n");
	index_free(&index);
}

/* ---- the command line */

/* What getopt_long returns for option i of the index: a value of its own, and the next one
 * for --no-NAME; --help and --version follow the last option. */
#define FIRST_VALUE 256

struct parser {
	struct opt_index index;
	struct option *long_options; /* names of the --no-NAME entries are ours */
	struct buf short_options;
};

static int value_of(size_t i, bool negated)
{
	return FIRST_VALUE + 2 * (int)i + (negated ? 1 : 0);
}

static char *negated_name(const char *name)
{
	struct buf text;

	buf_init(&text, SIZE_MAX);
	buf_printf(&text, "no-%s", name);
	return text.data; /* starts the allocation, as nothing was consumed; ends with NUL */
}

static void parser_init(struct parser *parser, const struct opt_program *program)
{
	parser->index = index_new(program);
	size_t count = parser->index.count;
	struct option *next = mem_alloc(2 * count + 3, sizeof(struct option));

	parser->long_options = next;
	buf_init(&parser->short_options, SIZE_MAX);
	buf_put_str(&parser->short_options, STR(":hV")); /* ':': tell apart what is missing */
	for (size_t i = 0; i < count; i++) {
		const struct opt *opt = parser->index.opts[i];
		bool is_flag = opt->type == OPT_FLAG;
		int argument = is_flag ? no_argument : required_argument;

		*next++ = (struct option){opt->name, argument, NULL, value_of(i, false)};
		if (is_flag)
			*next++ = (struct option){negated_name(opt->name), no_argument, NULL,
				value_of(i, true)};
		if (opt->short_name != 0)
			buf_printf(&parser->short_options, "%c%s", opt->short_name,
				is_flag ? "" : ":");
	}
	*next++ = (struct option){"help", no_argument, NULL, 'h'};
	*next++ = (struct option){"version", no_argument, NULL, 'V'};
}

static void parser_release(struct parser *parser)
{
	for (struct option *entry = parser->long_options; entry->name != NULL; entry++)
		if (entry->val >= FIRST_VALUE && entry->val % 2 == 1)
			free((char *)entry->name);
	free(parser->long_options);
	buf_release(&parser->short_options);
	index_free(&parser->index);
}

/* The position in the index of what getopt_long returned; count when it is none of ours. */
static size_t parser_find(const struct parser *parser, int value)
{
	if (value >= FIRST_VALUE)
		return (size_t)(value - FIRST_VALUE) / 2;
	for (size_t i = 0; i < parser->index.count; i++)
		if (value > 0 && parser->index.opts[i]->short_name == value)
			return i;
	return parser->index.count;
}

static int wrong_option(const struct parser *parser, bool argument_missing,
	const char *word, struct err *err)
{
	size_t i = parser_find(parser, optopt);

	if (i < parser->index.count)
		return err_set(err, ERR_USAGE, "option --%s %s", parser->index.opts[i]->name,
			argument_missing ? "needs an argument" : "takes no argument");
	if (optopt > 0 && optopt < FIRST_VALUE)
		return err_set(err, ERR_USAGE, "unknown option \"-%c\"", optopt);
	return err_set(err, ERR_USAGE, "unknown option \"%s\"", word);
}

static int take_option(struct parser *parser, int value, const char *argument,
	struct err *err)
{
	size_t i = parser_find(parser, value);
	const struct opt *opt = parser->index.opts[i];

	parser->index.given[i] = true;
	if (opt->type == OPT_FLAG) {
		*(bool *)opt->value = value < FIRST_VALUE || value == value_of(i, false);
	} else if (opt->type == OPT_LIST) {
		list_add(opt->value, argument, strlen(argument));
	} else if (parse_value(opt, argument, err) < 0) {
		return wrong_value(err, "option --", opt->name);
	}
	return 0;
}

static _Noreturn void print_and_exit(const struct opt_program *program, bool help)
{
	if (help)
		opt_print_help(program);
	else
		printf("%s %s\n", program->name, OUTBOX_VERSION);
	exit(fflush(stdout) == 0 ? EX_OK : EX_IOERR);
}

static int parse_command_line(struct parser *parser, const struct opt_program *program,
	int argc, char **argv, struct err *err)
{
	const char *short_options = buf_cstr(&parser->short_options);

	opterr = 0; /* errors are ours to print */
	optind = 0; /* also resets what getopt remembers of an earlier command line */
	for (;;) {
		int value = getopt_long(argc, argv, short_options, parser->long_options, NULL);
		switch (value) {
		case -1:
			return 0;
		case 'h':
		case 'V':
			print_and_exit(program, value == 'h');
		case ':':
		case '?':
			return wrong_option(parser, value == ':', argv[optind - 1], err);
		default:
			if (take_option(parser, value, optarg, err) < 0)
				return -1;
		}
	}
}

int opt_parse(const struct opt_program *program, int argc, char **argv,
	int *first_operand, struct err *err)
{
	struct parser parser;

	parser_init(&parser, program);
	int result = parse_command_line(&parser, program, argc, argv, err);
	if (result == 0)
		result = fill_in(&parser.index, err);
	if (result == 0)
		*first_operand = optind;
	parser_release(&parser);
	return result;
}
