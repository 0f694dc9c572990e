#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "clock.h"
#include "forked.h"
#include "log.h"

/* A line of the log without its time, which is checked for its form only. */
static const char *without_time(char *line, const char *prefix, const char *suffix)
{
	const char *form = "dddd-dd-ddTdd:dd:dd.dddZ";
	char *at = line + strlen(prefix);

	assert_memory_equal(line, prefix, strlen(prefix));
	for (; *form != '\0'; form++, at++) {
		if (*form == 'd')
			assert_in_range(*at, '0', '9');
		else
			assert_int_equal(*at, *form);
	}
	assert_memory_equal(at, suffix, strlen(suffix));
	return at + strlen(suffix);
}

static void log_samples(void *ctx)
{
	log_init("outbox-test", *(enum log_format *)ctx, LOG_INFO);
	log_event(LOG_DEBUG, "unseen", LOG_INT("n", 1));
	log_event(LOG_INFO, "plain", LOG_INT("job", 4711), LOG_TEXT("kind", "email.welcome"),
		LOG_STR("absent", STR_NULL), LOG_INT("least", INT64_MIN));
	log_event(LOG_WARNING, "odd", LOG_STR("empty", STR("")), LOG_TEXT("space", "a b"),
		LOG_TEXT("equals", "a=b"), LOG_TEXT("quote", "a\"b"), LOG_TEXT("line", "a\nb"),
		LOG_TEXT("escape", "\x1b[31m"), LOG_TEXT("utf8", "\xc3\xa9"),
		LOG_TEXT("broken", "\xff"), LOG_STR("nul", STR("a\0b")));
	log_event(LOG_ERROR, "bare");
}

static void lines_in_logfmt(void **state)
{
	char said[4096];
	enum log_format format = LOG_LOGFMT;

	(void)state;
	assert_int_equal(run_forked(log_samples, &format, STDERR_FILENO, said, sizeof(said)),
		0);
	char *rest = said;
	assert_string_equal(without_time(strsep(&rest, "\n"), "time=", " "),
		"level=info program=outbox-test event=plain job=4711 kind=email.welcome "
		"least=-9223372036854775808");
	assert_string_equal(without_time(strsep(&rest, "\n"), "time=", " "),
		"level=warning program=outbox-test event=odd empty=\"\" space=\"a b\" "
		"equals=\"a=b\" quote=\"a\\\"b\" line=\"a\\nb\" escape=\"\\u001b[31m\" "
		"utf8=\xc3\xa9 broken=\"\xef\xbf\xbd\" nul=\"a\\u0000b\"");
	assert_string_equal(without_time(strsep(&rest, "\n"), "time=", " "),
		"level=error program=outbox-test event=bare");
	assert_string_equal(rest, "");
}

static void lines_in_json(void **state)
{
	char said[4096];
	enum log_format format = LOG_JSON;

	(void)state;
	assert_int_equal(run_forked(log_samples, &format, STDERR_FILENO, said, sizeof(said)),
		0);
	char *rest = said;
	assert_string_equal(without_time(strsep(&rest, "\n"), "{\"time\":\"", "\","),
		"\"level\":\"info\",\"program\":\"outbox-test\",\"event\":\"plain\",\"job\":4711,"
		"\"kind\":\"email.welcome\",\"least\":-9223372036854775808}");
	strsep(&rest, "\n");
	assert_string_equal(without_time(strsep(&rest, "\n"), "{\"time\":\"", "\","),
		"\"level\":\"error\",\"program\":\"outbox-test\",\"event\":\"bare\"}");
	assert_string_equal(rest, "");
}

static void log_an_error(void *ctx)
{
	struct err err = {.class = ERR_TEMP, .sqlstate = "40001", .text = "could not settle"};

	(void)ctx;
	log_error(LOG_ERROR, "failed", &err);
	err.sqlstate[0] = '\0';
	log_error(LOG_ERROR, "failed", &err);
}

static void errors_carry_their_sqlstate(void **state)
{
	char said[1000];

	(void)state;
	run_forked(log_an_error, NULL, STDERR_FILENO, said, sizeof(said));
	char *rest = said;
	assert_string_equal(without_time(strsep(&rest, "\n"), "time=", " "),
		"level=error program=outbox event=failed error=\"could not settle\" sqlstate=40001");
	assert_string_equal(without_time(strsep(&rest, "\n"), "time=", " "),
		"level=error program=outbox event=failed error=\"could not settle\"");
}

static void log_too_much(void *ctx)
{
	static char large[5000], fits[3000];

	(void)ctx;
	memset(large, 'x', sizeof(large) - 1);
	memset(fits, 'y', sizeof(fits) - 1);
	log_event(LOG_INFO, "large", LOG_TEXT("a", large), LOG_INT("b", 1),
		LOG_TEXT("c", fits), LOG_TEXT("d", fits));
}

static void what_does_not_fit_is_left_out(void **state)
{
	char said[20000];

	(void)state;
	run_forked(log_too_much, NULL, STDERR_FILENO, said, sizeof(said));
	assert_true(strlen(said) <= LOG_MAX_LINE);
	assert_null(strstr(said, " a="));
	assert_non_null(strstr(said, " b=1 c=yyy"));
	assert_null(strstr(said, " d="));
	assert_non_null(strstr(said, " cut=2\n"));
}

static void log_into_a_full_pipe(void *ctx)
{
	int ends[2], real_stderr = dup(STDERR_FILENO);
	char block[4096] = {0};

	(void)ctx;
	if (pipe2(ends, O_NONBLOCK) < 0)
		abort();
	while (write(ends[1], block, sizeof(block)) > 0)
		continue;
	fcntl(ends[1], F_SETFL, 0); /* a write would block now */
	dup2(ends[1], STDERR_FILENO);
	log_event(LOG_INFO, "lost");
	log_event(LOG_INFO, "lost");
	dup2(real_stderr, STDERR_FILENO);
	log_event(LOG_INFO, "first");
	log_event(LOG_INFO, "second");
}

static void a_full_pipe_drops_and_counts(void **state)
{
	char said[1000];

	(void)state;
	run_forked(log_into_a_full_pipe, NULL, STDERR_FILENO, said, sizeof(said));
	char *rest = said;
	assert_string_equal(without_time(strsep(&rest, "\n"), "time=", " "),
		"level=info program=outbox event=first dropped=2");
	assert_string_equal(without_time(strsep(&rest, "\n"), "time=", " "),
		"level=info program=outbox event=second");
	assert_string_equal(rest, "");
}

static void repetition_is_held_back(void **state)
{
	struct log_limit limit = {0};

	(void)state;
	assert_int_equal(log_allow(&limit, 60000), 0);
	assert_int_equal(log_allow(&limit, 60000), -1);
	assert_int_equal(log_allow(&limit, 60000), -1);
	limit.last_ms -= 60000;
	assert_int_equal(log_allow(&limit, 60000), 2);
	assert_int_equal(log_allow(&limit, 60000), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_in_logfmt),
		cmocka_unit_test(lines_in_json),
		cmocka_unit_test(errors_carry_their_sqlstate),
		cmocka_unit_test(what_does_not_fit_is_left_out),
		cmocka_unit_test(a_full_pipe_drops_and_counts),
		cmocka_unit_test(repetition_is_held_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
