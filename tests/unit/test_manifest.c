/* Manifests: what every key sets, and every refusal with its file and line. */
#include <fcntl.h>
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "json.h"
#include "manifest.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char folder[] = "/tmp/outbox-test-XXXXXX";

static void make_file(const char *name, mode_t mode, const char *text)
{
	FILE *file = fopen(name, "wx");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(name, mode), 0);
}

static int make_folder(void **state)
{
	(void)state;
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	if (mkdtemp(folder) == NULL || chdir(folder) != 0)
		return -1;
	mkdir("bin", 0755);
	make_file("k", 0755, "#!/bin/sh\n");
	make_file("bin/tool", 0755, "#!/bin/sh\n");
	make_file("notes", 0644, "");
	make_file("loose", 0775, "");
	make_file("good.json", 0644, "{\"type\":\"object\", \"n\":1e5}\n");
	make_file("bad.json", 0644, "{\"type\":}");
	make_file("array.json", 0644, "[]");
	make_file("nul.json", 0644, "{\"const\":\"a\\u0000\"}");
	make_file("surrogate.json", 0644, "{\"a\\\"\":\"\\\\ \\ud800\"}");
	make_file("huge.json", 0644, "{\"maximum\":1e999999}");
	setenv("TEST_TOKEN", "t0ken", 1);
	setenv("TEST_OTHER", "", 1);
	unsetenv("TEST_MISSING");
	return symlink("/bin/sh", "out") != 0;
}

static int remove_folder(void **state)
{
	(void)state;
	char command[100];

	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return chdir("/") != 0 || system(command) != 0;
}

static void parse(const char *text, struct handler *handler)
{
	struct err err = ERR_INIT;

	if (manifest_parse(folder, "k.ini", str_of(text), handler, &err) != 0)
		fail_msg("%s: %s", text, err.text);
}

static const char *path_of(const char *name)
{
	static char path[100];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void nothing_said_is_the_defaults(void **state)
{
	(void)state;
	struct handler handler;

	parse("", &handler);
	assert_string_equal(handler.kind, "k");
	assert_string_equal(handler.file, "k.ini");
	assert_string_equal(handler.path, path_of("k"));
	assert_string_equal(handler.argv[0], path_of("k"));
	assert_null(handler.argv[1]);
	assert_null(handler.envp[0]);
	assert_string_equal(handler.lane, "default");
	assert_int_equal(handler.timeout_ms, 30000);
	assert_int_equal(handler.grace_ms, 5000);
	assert_int_equal(handler.concurrency, 0);
	assert_int_equal(handler.version, 0);
	assert_int_equal(handler.mode, HANDLER_EXEC);
	assert_false(handler.set_user);
	assert_int_equal(handler.exits.count, 0);
	assert_false(handler_redacts(&handler));
	assert_string_equal(handler.manifest,
		"{\"retry\":{\"codes\":{}},\"commit\":{},\"payload\":{},\"retention\":{}}");
	handler_release(&handler);
	handler_release(&handler);
}

static void the_handler_section_is_taken(void **state)
{
	(void)state;
	struct handler handler;

	parse("\xef\xbb\xbf[handler] ; of all kinds\r\n"
		  "kind = email.welcome        ; default: the file's name\r\n"
		  "command = ./bin/tool --fast 'two words' \"it's\" a'b'c ''\n"
		  "mode = stream\n# a comment\nlane = bulk-1\ntimeout = 1.5m\ngrace = 0\n"
		  "concurrency = 8\nversion = 2147483647\nuser = root\nmemory = 64MiB\ncpu = 2m\n"
		  "files = 64\nprocesses = 32\nstream_processes = 3\nstream_window: 16\n",
		&handler);
	static const char *const arguments[] = {"--fast", "two words", "it's", "abc", ""};
	assert_string_equal(handler.kind, "email.welcome");
	assert_string_equal(handler.path, path_of("bin/tool"));
	assert_string_equal(handler.argv[0], path_of("./bin/tool"));
	for (size_t i = 0; i < COUNT(arguments); i++)
		assert_string_equal(handler.argv[i + 1], arguments[i]);
	assert_null(handler.argv[COUNT(arguments) + 1]);
	assert_int_equal(handler.mode, HANDLER_STREAM);
	assert_string_equal(handler.lane, "bulk-1");
	assert_int_equal(handler.timeout_ms, 90000);
	assert_int_equal(handler.grace_ms, 0);
	assert_int_equal(handler.concurrency, 8);
	assert_int_equal(handler.version, INT32_MAX);
	assert_true(handler.set_user);
	assert_int_equal(handler.uid, 0);
	assert_int_equal(handler.limits.memory_bytes, 64 << 20);
	assert_int_equal(handler.limits.cpu_s, 120);
	assert_int_equal(handler.limits.files, 64);
	assert_int_equal(handler.limits.processes, 32);
	assert_int_equal(handler.processes, 3);
	assert_int_equal(handler.window, 16);
	handler_release(&handler);
}

static void assert_variables(const struct handler *handler, const char *const *expected)
{
	for (size_t i = 0; expected[i] != NULL; i++) {
		assert_non_null(handler->envp[i]);
		assert_string_equal(handler->envp[i], expected[i]);
	}
}

static void variables_are_required_and_set(void **state)
{
	(void)state;
	struct handler handler;

	parse(
		"[handler]\nuser = root\n[env]\nrequire = TEST_TOKEN\n  TEST_OTHER\n"
		"MAILER_URL = https://mail.example/?a=b ; c\nEMPTY =\nHOME = /h\nTEST_OTHER = x\n",
		&handler);
	assert_variables(&handler,
		(const char *const[]){"TEST_TOKEN=t0ken", "TEST_OTHER=x",
			"MAILER_URL=https://mail.example/?a=b", "EMPTY=", "HOME=/h", "USER=root",
			"LOGNAME=root", NULL});
	assert_null(handler.envp[7]);
	handler_release(&handler);
}

static void exits_and_patterns_are_taken(void **state)
{
	(void)state;
	struct handler handler;

	parse("[exit]\n65 = fail bad_input\n75=retry   unavailable\n0 = cancel\n3 = ok\n"
		  "[redact]\npattern = sk_[a-z]+\npattern = [0-9]{16}\n",
		&handler);
	static const struct outcome_exit expected[] = {
		{65, OUTCOME_FAIL, "bad_input"},
		{75, OUTCOME_RETRY, "unavailable"},
		{0, OUTCOME_CANCEL, ""},
		{3, OUTCOME_OK, ""},
	};
	assert_int_equal(handler.exits.count, COUNT(expected));
	for (size_t i = 0; i < COUNT(expected); i++) {
		assert_int_equal(handler.exits.items[i].status, expected[i].status);
		assert_int_equal(handler.exits.items[i].outcome, expected[i].outcome);
		assert_string_equal(handler.exits.items[i].code, expected[i].code);
	}
	assert_int_equal(handler.redactions.count, 2);
	assert_true(handler_redacts(&handler));
	handler_release(&handler);
}

/* The form that outbox.kind_announce reads. */
static void the_policy_travels_as_json(void **state)
{
	(void)state;
	struct handler handler;

	parse(
		"[retry]\nmax_attempts = 20\nbackoff = 500ms\nbackoff_max = 5m\nmax_crashes = 4\n"
		"warn_at_streak = 5\n[retry.rate_limited]\nmax_attempts = 50\nmax_delay = 10m\n"
		"[retry.bounced]\nstreak = 2\non_exhaustion = cancel\n[retry.late]\n"
		"on_exhaustion = dead\n[retry.bounced]\nmax_attempts = 3\n"
		"[commit]\nmark_welcomed = update users set welcomed = true where id = $1\n"
		"two = insert into t\n  values ($1, '\"') ; of two lines\n"
		"[payload]\nschema = good.json\nmax_bytes = 1MiB\nmax_depth = 20\n"
		"[retention]\nsucceeded = 7d\ndead = never\n",
		&handler);
	assert_string_equal(handler.manifest,
		"{\"retry\":{\"max_attempts\":20,\"backoff_ms\":500,\"backoff_max_ms\":300000,"
		"\"max_crashes\":4,\"warn_at_streak\":5,\"codes\":{"
		"\"rate_limited\":{\"max_attempts\":50,\"max_delay_ms\":600000},"
		"\"bounced\":{\"max_attempts\":3,\"streak\":2,\"on_exhaustion\":\"cancel\"},"
		"\"late\":{\"on_exhaustion\":\"dead\"}}},"
		"\"commit\":{\"mark_welcomed\":\"update users set welcomed = true where id = $1\","
		"\"two\":\"insert into t\\nvalues ($1, '\\\"')\"},"
		"\"payload\":{\"schema\":{\"type\":\"object\", \"n\":1e5}\n,"
		"\"max_bytes\":1048576,\"max_depth\":20},"
		"\"retention\":{\"succeeded\":604800,\"dead\":null}}");
	assert_true(json_is_valid(handler.manifest, strlen(handler.manifest), 100));
	handler_release(&handler);
}

static const struct refusal {
	const char *text;
	int line; /* 0: of the file as a whole */
	const char *says;
} refusals[] = {
	/* the form */
	{"kind = x\n", 1, "\"kind\" is not in a section"},
	{"[handler]\n\nkind\n", 3, "neither a [section] nor name = value"},
	{"[handler\n", 1, "not a [section]"},
	{"[handler] kind = x\n", 1, "not a [section]"},
	{"[]\n", 1, "there is no section []"},
	{"[handlers]\n", 1, "there is no section [handlers]"},
	{"[handler]\n[Handler]\n", 2, "there is no section [Handler]"},
	{"[handler]\ntimeout = 3s\n\n; c\ntime_out = 3s\n", 5, "no such key"},
	{"[handler]\nKIND = x\n", 2, "[handler] KIND: there is no such key"},
	{"[handler]\n= x\n", 2, "no such key"},
	{"[handler]\nlane = a\nlane = a\n", 3, "[handler] lane: it comes twice"},
	{"[handler]\nlane = a\n[env]\n[handler]\nlane = b\n", 5, "it comes twice"},
	{"[handler]\ntimeout = 3s\n  grace = 3s\n", 2, "not a duration"}, /* it continues */
	{"[handler]\nlane = \xff\n", 2, "not UTF-8"},
	{"[env]\nA = 1\nB = "
	 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
		3, "longer than"},
	/* [handler] */
	{"[handler]\nkind = Welcome\n", 2, "\"Welcome\" is not a kind"},
	{"[handler]\nkind =\n", 2, "\"\" is not a kind"},
	{"[handler]\nkind = ../k\n", 2, "not a kind"},
	{"[handler]\nlane = a/b\n", 2, "\"a/b\" is not a lane"},
	{"[handler]\nmode = fork\n", 2, "neither exec nor stream"},
	{"[handler]\ncommand =\n", 2, "the command is empty"},
	{"[handler]\ncommand = k 'a\n", 2, "a quote is not closed"},
	{"[handler]\ncommand = \"k\n", 2, "a quote is not closed"},
	{"[handler]\ncommand = /bin/sh -c true\n", 2, "not relative"},
	{"[handler]\ncommand = ../../bin/sh\n", 2,
		"/bin/sh\" leads out of the handler folder"},
	{"[handler]\ncommand = out\n", 2, "leads out of the handler folder"},
	{"[handler]\ncommand = nowhere\n", 2, "nowhere\": No such file"},
	{"[handler]\ncommand = notes\n", 2, "could not execute"},
	{"[handler]\ncommand = bin\n", 2, "is not a file"},
	{"[handler]\ncommand = loose\n", 2, "writable by group or others"},
	{"[handler]\ntimeout = 30\n", 2, "\"30\" is not a duration"},
	{"[handler]\ntimeout = 0\n", 2, "not between 1 ms and 30 days"},
	{"[handler]\ntimeout = -1s\n", 2, "not a duration"},
	{"[handler]\ntimeout = 31d\n", 2, "not between 1 ms and 30 days"},
	{"[handler]\ngrace = 2d\n", 2, "not between"},
	{"[handler]\nconcurrency = 0\n", 2, "not between 1 and"},
	{"[handler]\nconcurrency = many\n", 2, "\"many\" is not an integer"},
	{"[handler]\nversion = 2147483648\n", 2, "not between 0 and"},
	{"[handler]\nversion = 1.5\n", 2, "not an integer"},
	{"[handler]\nuser = no-such-user-here\n", 2,
		"there is no user \"no-such-user-here\""},
	{"[handler]\nmemory = lots\n", 2, "\"lots\" is not a size"},
	{"[handler]\nmemory = 1K\n", 2, "not between"},
	{"[handler]\ncpu = 1500ms\n", 2, "finer than a second"},
	{"[handler]\ncpu = 0\n", 2, "not between"},
	{"[handler]\nfiles = 3\n", 2, "not between 4 and"},
	{"[handler]\nprocesses = 0\n", 2, "not between 1 and"},
	{"[handler]\nstream_processes = 0\n", 2, "not between 1 and"},
	{"[handler]\nstream_window = 0\n", 2, "not between 1 and"},
	/* [env] */
	{"[env]\nrequire = TEST_TOKEN TEST_MISSING\n", 2, "\"TEST_MISSING\" is not set"},
	{"[env]\nrequire = 'TEST_TOKEN\n", 2, "a quote is not closed"},
	{"[env]\nA-B = 1\n", 2, "\"A-B\" is not the name of a variable"},
	{"[env]\n1A = 1\n", 2, "not the name of a variable"},
	{"[env]\nOUTBOX_JOB_ID = 1\n", 2, "\"OUTBOX_JOB_ID\" is set for each job"},
	{"[env]\nrequire = OUTBOX_RESULT_FD\n", 2, "is set for each job"},
	/* [retry], [retry.CODE] */
	{"[retry]\nmax_attempts = 0\n", 2, "not between 1 and 32767"},
	{"[retry]\nmax_attempts = 32768\n", 2, "not between 1 and 32767"},
	{"[retry]\nbackoff = fast\n", 2, "[retry] backoff: \"fast\" is not a duration"},
	{"[retry]\nbackoff_max = 4000d\n", 2, "not between"},
	{"[retry]\nmax_crashes = -1\n", 2, "not between"},
	{"[retry]\nwarn_at_streak = 0\n", 2, "not between"},
	{"[retry]\nstreak = 2\n", 2, "no such key"},
	{"[retry.]\n", 1, "\"\" is not a code"},
	{"[retry.Rate Limited]\n", 1, "\"Rate Limited\" is not a code"},
	{"[retry.a23456789012345678901234567890123456789012345678]\n", 1,
		"more than 48 bytes"},
	{"[retry.a]\nmax_attempts = 1\n[retry.b]\nmax_delay = x\n", 4, "[retry.b] max_delay"},
	{"[retry.a]\non_exhaustion = retry\n", 2, "neither dead nor cancel"},
	{"[retry.a]\nbackoff = 1s\n", 2, "no such key"},
	/* [exit] */
	{"[exit]\n256 = fail\n", 2, "not between 0 and 255"},
	{"[exit]\nsignal_9 = fail\n", 2, "not an integer"},
	{"[exit]\n65 = lost\n", 2, "\"lost\" is not one of ok, retry, fail, cancel"},
	{"[exit]\n65 =\n", 2, "\"\" is not one of"},
	{"[exit]\n65 = fail Bad\n", 2, "\"Bad\" is not a code"},
	{"[exit]\n65 = fail a b\n", 2, "\"a b\" is not a code"},
	{"[exit]\n65 = ok fine\n", 2, "ok has no code"},
	{"[exit]\n7 = fail\n07 = ok\n", 3, "it comes twice"},
	/* [commit] */
	{"[commit]\na b = select 1\n", 2, "\"a b\" is not a name"},
	{"[commit]\na = \n", 2, "not one statement"},
	{"[commit]\na = select 1;select 2\n", 2, "not one statement"},
	{"[commit]\nb = select 1;\na = select 1\n  , 2;x\n[env]\n", 3, "not one statement"},
	/* [payload], [retention] */
	{"[payload]\nschema = none.json\n", 2, "none.json\": No such file"},
	{"[payload]\nschema = bad.json\n", 2, "\"bad.json\" is not JSON"},
	{"[payload]\nschema = array.json\n", 2, "not an object"},
	{"[payload]\nschema = nul.json\n", 2, "PostgreSQL cannot hold"},
	{"[payload]\nschema = surrogate.json\n", 2, "PostgreSQL cannot hold"},
	{"[payload]\nschema = huge.json\n", 2, "PostgreSQL cannot hold"},
	{"[payload]\nschema = /etc/passwd\n", 2, "/etc/passwd\""},
	{"[payload]\nschema = loose\n", 2, "writable by group or others"},
	{"[payload]\nschema = bin\n", 2, "is not a file"},
	{"[payload]\nmax_bytes = 9MiB\n", 2, "not between 1 and 8388608 bytes"},
	{"[payload]\nmax_depth = 501\n", 2, "not between 0 and 500"},
	{"[retention]\nsucceeded = 0\n", 2, "not between 1000 ms and 36500 days"},
	{"[retention]\nsucceeded = -1d\n", 2, "not a duration"},
	{"[retention]\npending = 7d\n", 2, "no such key"},
	{"[retention]\ndead = Never\n", 2, "not a duration"},
	/* [redact] */
	{"[redact]\npattern = (a\n", 2, "\"(a\" cannot be redacted: Unmatched ("},
	{"[redact]\npattern = a*\n", 2, "matches the empty text"},
	{"[redact]\npattern =\n", 2, "matches the empty text"},
	{"[redact]\npatterns = a\n", 2, "no such key"},
};

static void assert_refused(const char *name, const struct refusal *refusal)
{
	struct handler handler;
	struct err err = ERR_INIT;
	char place[120];

	if (manifest_parse(folder, name, str_of(refusal->text), &handler, &err) != -1)
		fail_msg("accepted: %s", refusal->text);
	assert_int_equal(err.class, ERR_CONFIG);
	if (refusal->line > 0)
		snprintf(place, sizeof(place), "%s/%s:%d: ", folder, name, refusal->line);
	else
		snprintf(place, sizeof(place), "%s/%s: ", folder, name);
	if (strncmp(err.text, place, strlen(place)) != 0)
		fail_msg("%s: \"%s\" does not begin with \"%s\"", refusal->text, err.text, place);
	if (strstr(err.text, refusal->says) == NULL)
		fail_msg("%s: \"%s\" does not say \"%s\"", refusal->text, err.text,
			refusal->says);
	assert_null(handler.kind);
	handler_release(&handler);
}

static void what_is_wrong_is_refused_with_its_line(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(refusals); i++)
		assert_refused("k.ini", &refusals[i]);
}

static void what_the_file_lacks_is_refused(void **state)
{
	(void)state;
	assert_refused("absent.ini",
		&(struct refusal){"[handler]\nlane = a\n", 0, "absent\": No such file"});
	assert_refused("README.ini",
		&(struct refusal){"[handler]\ncommand = k\n", 0, "\"README\" is none"});
}

static void files_are_bounded(void **state)
{
	(void)state;
	struct err err = ERR_INIT;
	struct handler handler;
	struct buf text;

	buf_init(&text, MANIFEST_MAX_BYTES + 10);
	buf_put_str(&text, STR("[env]\n"));
	for (int i = 0; i <= MANIFEST_MAX_ENTRIES; i++)
		buf_printf(&text, "A%d = 1\n", i);
	assert_int_equal(manifest_parse(folder, "k.ini", (struct str){text.data, text.len},
						 &handler, &err),
		-1);
	assert_non_null(strstr(err.text, "k.ini:1002: more than 1000 entries"));
	while (buf_put_str(&text, STR("# a\n")) == 0)
		continue;
	make_file("k.ini", 0644, buf_cstr(&text));
	assert_int_equal(manifest_load(folder, "k.ini", &handler, &err), -1);
	assert_non_null(strstr(err.text, "more than 262144 bytes"));
	assert_null(handler.kind);
	buf_release(&text);
}

static void the_folder_has_patterns_for_all(void **state)
{
	(void)state;
	struct redactions redactions = {0};
	struct err err = ERR_INIT;

	make_file("outbox.ini", 0644, "[redact]\npattern = a\npattern = b\n");
	assert_int_equal(manifest_load_redactions(folder, &redactions, &err), 0);
	assert_int_equal(redactions.count, 2);
	redactions_release(&redactions);
	unlink("outbox.ini");
	make_file("outbox.ini", 0644, "\n[handler]\ntimeout = 3s\n");
	assert_int_equal(manifest_load_redactions(folder, &redactions, &err), -1);
	assert_non_null(strstr(err.text, "outbox.ini:2: there is no section [handler]"));
	redactions_release(&redactions);
}

static const struct redaction_case {
	const char *pattern, *text, *expected;
} redaction_cases[] = {
	{"sk_[a-z0-9]+", "key sk_4x, sk_5y", "key [redacted], [redacted]"},
	{"x", "y", "y"},
	{"x", "", ""},
	{"^x", "xx\nxay", "[redacted]x\n[redacted]ay"},
	{"password=.*$", "password=a b\nnext", "[redacted]\nnext"},
	{"\\bx*", "y xx", "y [redacted]"}, /* empty at "y", and passed over there */
	{"[0-9]{4}", "12345678", "[redacted][redacted]"},
	{"(a|b)\\1", "aab", "[redacted]b"},
	{"ä", "häh", "h[redacted]h"},
};

static void matches_are_replaced(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(redaction_cases); i++) {
		const struct redaction_case *c = &redaction_cases[i];
		struct redactions redactions = {0};
		struct buf text;
		struct err err = ERR_INIT;

		if (redactions_add(&redactions, c->pattern, &err) != 0)
			fail_msg("%s", err.text);
		buf_init(&text, 1000);
		buf_put_str(&text, str_of(c->text));
		redactions_apply(&redactions, &text);
		assert_string_equal(buf_cstr(&text), c->expected);
		buf_release(&text);
		redactions_release(&redactions);
	}
}

static void a_text_that_grows_stays_within_its_maximum(void **state)
{
	(void)state;
	struct redactions redactions = {0};
	struct buf text;

	assert_int_equal(redactions_add(&redactions, "a", NULL), 0);
	buf_init(&text, 25);
	buf_put_str(&text, STR("a-a-a-a-a-b"));
	redactions_apply(&redactions, &text);
	assert_string_equal(buf_cstr(&text), "[redacted]-[redacted]-[re");
	buf_release(&text);
	redactions_release(&redactions);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_said_is_the_defaults),
		cmocka_unit_test(the_handler_section_is_taken),
		cmocka_unit_test(variables_are_required_and_set),
		cmocka_unit_test(exits_and_patterns_are_taken),
		cmocka_unit_test(the_policy_travels_as_json),
		cmocka_unit_test(what_is_wrong_is_refused_with_its_line),
		cmocka_unit_test(what_the_file_lacks_is_refused),
		cmocka_unit_test(files_are_bounded),
		cmocka_unit_test(the_folder_has_patterns_for_all),
		cmocka_unit_test(matches_are_replaced),
		cmocka_unit_test(a_text_that_grows_stays_within_its_maximum),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
