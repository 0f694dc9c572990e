#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "forked.h"
#include "opt.h"

#define MAX_WORDS 20

static bool flag;
static const char *endpoint;
static int64_t slots, lease_ms, max_bytes;
static int format;
static struct opt_list kinds;
static const char *conninfo;

static const struct opt own[] = {
	{.name = "flag",
		.short_name = 'f',
		.type = OPT_FLAG,
		.value = &flag,
		.help = "do it"},
	{
		.name = "jobs-link",
		.type = OPT_STRING,
		.value = &endpoint,
		.argument = "ENDPOINT",
		.help = "where jobs come from",
	},
	{
		.name = "slots",
		.short_name = 'j',
		.type = OPT_INTEGER,
		.value = &slots,
		.argument = "N",
		.default_text = "4",
		.min = 1,
		.max = 100,
		.help = "attempts at once",
	},
	{
		.name = "lease",
		.type = OPT_DURATION,
		.value = &lease_ms,
		.argument = "TIME",
		.default_text = "30s",
		.min = 1000,
		.max = 3600000,
		.environment = "LEASE_OF_TESTS",
		.help = "how long",
	},
	{
		.name = "max-bytes",
		.type = OPT_SIZE,
		.value = &max_bytes,
		.argument = "SIZE",
		.environment = "",
		.help = "how much",
	},
	{
		.name = "format",
		.type = OPT_CHOICE,
		.value = &format,
		.choices = "logfmt|json|js",
		.default_text = "json",
		.help = "which",
	},
	{
		.name = "kind",
		.short_name = 'k',
		.type = OPT_LIST,
		.value = &kinds,
		.argument = "KIND",
		.default_text = "x,y",
		.help = "may be repeated",
	},
	{.name = NULL},
};

static const struct opt shared[] = {
	{
		.name = "db",
		.type = OPT_STRING,
		.value = &conninfo,
		.argument = "CONNINFO",
		.help = "the database",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox-test",
	.summary = "tests options",
	.usage = "[option ...] FILE",
	.tables = {own, shared},
};

static const char *const variables[] = {"OUTBOX_FLAG", "OUTBOX_JOBS_LINK", "OUTBOX_SLOTS",
	"OUTBOX_LEASE", "LEASE_OF_TESTS", "OUTBOX_MAX_BYTES", "OUTBOX_FORMAT", "OUTBOX_KIND",
	"OUTBOX_DB"};

static int reset(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	flag = false;
	endpoint = conninfo = NULL;
	slots = lease_ms = format = -1;
	max_bytes = 77;
	opt_list_release(&kinds);
	return 0;
}

/* Parses the words of a line. */
static int parse(char *line, char **argv, int *argc, int *first, struct err *err)
{
	char *word;

	*argc = 0;
	argv[(*argc)++] = (char *)"outbox-test";
	while ((word = strsep(&line, " ")) != NULL)
		if (*word != '\0')
			argv[(*argc)++] = word;
	argv[*argc] = NULL;
	return opt_parse(&program, *argc, argv, first, err);
}

static int parse_line(const char *text, struct err *err)
{
	static char line[200]; /* where string options keep pointing */
	char *argv[MAX_WORDS];
	int argc, first;

	snprintf(line, sizeof(line), "%s", text);
	return parse(line, argv, &argc, &first, err);
}

static void defaults_come_from_the_table(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(parse_line("", &err), 0);
	assert_false(flag);
	assert_null(endpoint);
	assert_int_equal(slots, 4);
	assert_int_equal(lease_ms, 30000);
	assert_int_equal(max_bytes, 77); /* no default text: what the variable held */
	assert_int_equal(format, 1);
	assert_int_equal(kinds.count, 2);
	assert_string_equal(kinds.items[1], "y");
}

static void every_type_is_parsed(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(parse_line("-f --jobs-link=- -j7 --lease 1.5s --max-bytes 2K "
								"--format js --db d",
						 &err),
		0);
	assert_true(flag);
	assert_string_equal(endpoint, "-");
	assert_int_equal(slots, 7);
	assert_int_equal(lease_ms, 1500);
	assert_int_equal(max_bytes, 2048);
	assert_int_equal(format, 2);
	assert_string_equal(conninfo, "d");
}

static void lists_and_flags_repeat(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(parse_line("--kind a,b -k c --flag --no-flag", &err), 0);
	assert_int_equal(kinds.count, 2);
	assert_string_equal(kinds.items[0], "a,b"); /* split in the environment only */
	assert_string_equal(kinds.items[1], "c");
	assert_false(flag);
}

static void options_and_operands_mix(void **state)
{
	struct err err = ERR_INIT;
	char line[] = "one --flag two -- --slots";
	char *argv[MAX_WORDS];
	int argc, first;

	(void)state;
	assert_int_equal(parse(line, argv, &argc, &first, &err), 0);
	assert_true(flag);
	assert_int_equal(argc - first, 3);
	assert_string_equal(argv[first], "one");
	assert_string_equal(argv[first + 1], "two");
	assert_string_equal(argv[first + 2], "--slots");
}

static void environment_fills_in(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	setenv("OUTBOX_FLAG", "true", 1);
	setenv("OUTBOX_JOBS_LINK", "ipc://e", 1);
	setenv("OUTBOX_SLOTS", "9", 1);
	setenv("OUTBOX_LEASE", "not read: the table names another", 1);
	setenv("LEASE_OF_TESTS", "2s", 1);
	setenv("OUTBOX_MAX_BYTES", "not read: the table says none", 1);
	setenv("OUTBOX_FORMAT", "", 1); /* as if unset */
	setenv("OUTBOX_KIND", "a,b,c", 1);
	assert_int_equal(parse_line("", &err), 0);
	assert_true(flag);
	assert_string_equal(endpoint, "ipc://e");
	assert_int_equal(slots, 9);
	assert_int_equal(lease_ms, 2000);
	assert_int_equal(max_bytes, 77);
	assert_int_equal(format, 1);
	assert_int_equal(kinds.count, 3);
	assert_string_equal(kinds.items[2], "c");
}

static void command_line_beats_environment(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	setenv("OUTBOX_FLAG", "1", 1);
	setenv("OUTBOX_SLOTS", "nonsense, but not needed", 1);
	setenv("OUTBOX_KIND", "a,b", 1);
	assert_int_equal(parse_line("--no-flag --slots 3 --kind z", &err), 0);
	assert_false(flag);
	assert_int_equal(slots, 3);
	assert_int_equal(kinds.count, 1);
	assert_string_equal(kinds.items[0], "z");
}

static void mistakes_are_named(void **state)
{
	static const struct {
		const char *line, *text, *variable, *value;
	} rows[] = {
		{"--wrong", "unknown option \"--wrong\"", NULL, NULL},
		{"a --wrong=3 b", "unknown option \"--wrong=3\"", NULL, NULL},
		{"-x", "unknown option \"-x\"", NULL, NULL},
		{"-fx", "unknown option \"-x\"", NULL, NULL},
		{"--slots", "option --slots needs an argument", NULL, NULL},
		{"-j", "option --slots needs an argument", NULL, NULL},
		{"--flag=yes", "option --flag takes no argument", NULL, NULL},
		{"--no-flag=yes", "option --flag takes no argument", NULL, NULL},
		{"--no-slots", "unknown option \"--no-slots\"", NULL, NULL},
		{"--slots x", "option --slots: \"x\" is not an integer", NULL, NULL},
		{"--slots 0", "option --slots: 0 is not between 1 and 100", NULL, NULL},
		{"--slots 101", "option --slots: 101 is not between 1 and 100", NULL, NULL},
		{"--lease 1ms", "option --lease: \"1ms\" is not between 1000 and 3600000 ms",
			NULL, NULL},
		{"--format xml", "option --format: \"xml\" is not one of logfmt|json|js", NULL,
			NULL},
		{"--format jso", "option --format: \"jso\" is not one of logfmt|json|js", NULL,
			NULL},
		{"--format=", "option --format: \"\" is not one of logfmt|json|js", NULL, NULL},
		{"", "environment variable OUTBOX_SLOTS: \"x\" is not an integer", "OUTBOX_SLOTS",
			"x"},
		{"", "environment variable OUTBOX_FLAG: \"yes\" is not one of 1, 0, true, false",
			"OUTBOX_FLAG", "yes"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct err err = ERR_INIT;
		reset(state);
		if (rows[i].variable != NULL)
			setenv(rows[i].variable, rows[i].value, 1);
		assert_int_equal(parse_line(rows[i].line, &err), -1);
		assert_int_equal(err.class, ERR_USAGE);
		assert_string_equal(err.text, rows[i].text);
	}
}

static void run_line(void *ctx)
{
	struct err err = ERR_INIT;

	parse_line(ctx, &err);
}

static void help_lists_every_option(void **state)
{
	static const char expected[] =
		"usage: outbox-test [option ...] FILE\n"
		"tests options\n"
		"\n"
		"options:\n"
		"  -f, --flag                      do it (OUTBOX_FLAG)\n"
		"      --jobs-link ENDPOINT        where jobs come from (OUTBOX_JOBS_LINK)\n"
		"  -j, --slots N                   attempts at once (default 4; OUTBOX_SLOTS)\n"
		"      --lease TIME                how long (default 30s; LEASE_OF_TESTS)\n"
		"      --max-bytes SIZE            how much\n"
		"      --format logfmt|json|js     which (default json; OUTBOX_FORMAT)\n"
		"  -k, --kind KIND                 may be repeated (default x,y; OUTBOX_KIND)\n"
		"      --db CONNINFO               the database (OUTBOX_DB)\n"
		"  -h, --help                      print this text and exit\n"
		"  -V, --version                   print the version and exit\n"
		"\n"
		"An option without an argument is switched off by --no-NAME.\n";
	char said[4096];

	(void)state;
	setenv("OUTBOX_SLOTS", "nonsense", 1); /* help must be had all the same */
	assert_int_equal(run_forked(run_line, (void *)"--help", STDOUT_FILENO, said,
						 sizeof(said)),
		0);
	assert_string_equal(said, expected);
}

static void version_is_printed(void **state)
{
	char said[100];

	(void)state;
	assert_int_equal(run_forked(run_line, (void *)"-V", STDOUT_FILENO, said,
						 sizeof(said)),
		0);
	assert_string_equal(said, "outbox-test 0.1.0\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(defaults_come_from_the_table, reset),
		cmocka_unit_test_setup(every_type_is_parsed, reset),
		cmocka_unit_test_setup(lists_and_flags_repeat, reset),
		cmocka_unit_test_setup(options_and_operands_mix, reset),
		cmocka_unit_test_setup(environment_fills_in, reset),
		cmocka_unit_test_setup(command_line_beats_environment, reset),
		cmocka_unit_test_setup(mistakes_are_named, reset),
		cmocka_unit_test_setup(help_lists_every_option, reset),
		cmocka_unit_test_setup(version_is_printed, reset),
	};
	return cmocka_run_group_tests(tests, NULL, reset);
}
