/* Answers of stream handlers: whose they are, what they say, and what is left of bad ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "answer.h"
#include "json.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void assert_text(const char *got, const char *expected)
{
	if (expected == NULL)
		assert_null(got);
	else
		assert_string_equal(got != NULL ? got : "(null)", expected);
}

static void assert_view(struct str got, const char *expected)
{
	if (expected == NULL) {
		assert_null(got.s);
	} else {
		assert_int_equal(got.n, strlen(expected));
		assert_memory_equal(got.s, expected, got.n);
	}
}

static const struct good_case {
	const char *line;
	int64_t id;
	enum outcome outcome;
	int64_t attempt;
	const char *response, *code, *error, *reason, *commit, *enqueue;
	int64_t after_ms; /* 0 stands for none */
	bool wants_cancels;
} good_cases[] = {
	{"{\"id\":\"4711\"}", 4711, OUTCOME_OK, .attempt = 0},
	{"{\"id\":4711}", 4711, OUTCOME_OK, .attempt = 0},
	{" { \"id\" : \"4711\" , \"outcome\" : \"ok\" } \r", 4711, OUTCOME_OK, .attempt = 0},
	{"{\"id\":\"9223372036854775807\",\"outcome\":\"ok\"}", INT64_MAX, OUTCOME_OK,
		.attempt = 0},
	{"{\"outcome\":\"ok\",\"id\":1}", 1, OUTCOME_OK, .attempt = 0},
	{"{\"id\":\"1\",\"attempt\":3}", 1, OUTCOME_OK, .attempt = 3},
	{"{\"id\":\"1\",\"response\":{\"id\":\"2\", \"n\":1.10}}", 1, OUTCOME_OK,
		.response = "{\"id\":\"2\", \"n\":1.10}"},
	{"{\"response\":\"\\u0000\",\"id\":1}", 1, OUTCOME_OK, .response = "\"\\u0000\""},
	{"{\"id\":1,\"response\":null,\"outcome\":null,\"attempt\":null,\"cancel\":null}", 1,
		OUTCOME_OK, .attempt = 0},
	{"{\"id\":1,\"response\":false}", 1, OUTCOME_OK, .response = "false"},
	{"{\"id\":\"1\",\"outcome\":\"retry\",\"code\":\"slow\",\"after\":\"60s\","
	 "\"error\":\"e\"}",
		1, OUTCOME_RETRY, .code = "slow", .after_ms = 60000, .error = "e"},
	{"{\"id\":\"1\",\"outcome\":\"cancel\",\"reason\":\"r\",\"other\":[{}]}", 1,
		OUTCOME_CANCEL, .reason = "r"},
	{"{\"id\":1,\"commit\":[{\"name\":\"m\"}],\"enqueue\":[{\"kind\":\"k\"}]}", 1,
		OUTCOME_OK, .commit = "[{\"name\":\"m\"}]", .enqueue = "[{\"kind\":\"k\"}]"},
	{"{\"cancel\":true}", 0, OUTCOME_OK, .wants_cancels = true},
};

static void good_answers_are_understood(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(good_cases); i++) {
		const struct good_case *c = &good_cases[i];
		struct answer answer;
		struct err err = ERR_INIT;
		if (answer_parse(&answer, str_of(c->line), &err) != 0)
			fail_msg("%s: %s", c->line, err.text);
		assert_int_equal(answer.id, c->id);
		assert_int_equal(answer.attempt, c->attempt);
		assert_int_equal(answer.wants_cancels, c->wants_cancels);
		assert_view(answer.response, c->response);
		assert_int_equal(answer.document.outcome, c->outcome);
		assert_int_equal(answer.document.after_ms, c->after_ms > 0 ? c->after_ms : -1);
		assert_text(answer.document.code, c->code);
		assert_text(answer.document.error, c->error);
		assert_text(answer.document.reason, c->reason);
		assert_text(answer.document.commit, c->commit);
		assert_text(answer.document.enqueue, c->enqueue);
		answer_release(&answer);
	}
}

static const struct bad_case {
	const char *line;
	int64_t id; /* whose bad answer it is all the same; 0: nobody's */
	const char *complaint;
} bad_cases[] = {
	{"", 0, "not one JSON value"},
	{"starting up", 0, "not one JSON value"},
	{"[1]", 0, "not an object"},
	{"7", 0, "not an object"},
	{"{}", 0, "no \"id\""},
	{"{\"outcome\":\"ok\"}", 0, "no \"id\""},
	{"{\"id\":null}", 0, "no \"id\""},
	{"{\"id\":true}", 0, "\"id\" is not"},
	{"{\"id\":0}", 0, "\"id\" is not"},
	{"{\"id\":-1}", 0, "\"id\" is not"},
	{"{\"id\":\"\"}", 0, "\"id\" is not"},
	{"{\"id\":\"1x\"}", 0, "\"id\" is not"},
	{"{\"id\":\"1 \"}", 0, "\"id\" is not"},
	{"{\"id\":\"01\"}", 0, "\"id\" is not"},
	{"{\"id\":1.5}", 0, "\"id\" is not"},
	{"{\"id\":1e3}", 0, "\"id\" is not"},
	{"{\"id\":9223372036854775808}", 0, "\"id\" is not"},
	{"{\"id\":1,\"id\":2}", 1, "once"},
	{"{\"id\":1,\"attempt\":\"1\"}", 1, "\"attempt\""},
	{"{\"id\":1,\"attempt\":0}", 1, "\"attempt\""},
	{"{\"attempt\":0,\"id\":\"5\"}", 5, "\"attempt\""},
	{"{\"id\":1,\"outcome\":\"maybe\"}", 1, "\"outcome\""},
	{"{\"outcome\":\"lost\",\"id\":\"3\"}", 3, "\"outcome\""},
	{"{\"id\":1,\"after\":\"soon\",\"outcome\":\"retry\"}", 1, "\"after\""},
	{"{\"id\":\"1\",\"commit\":{}}", 1, "\"commit\""},
	/* no JSON: only as the first member, and only whole */
	{"{\"id\":\"12\",\"outcome\"", 12, "not one JSON value"},
	{"{\"id\":12, garbage", 12, "not one JSON value"},
	{"{\"id\":\"12\"} {\"id\":\"13\"}", 12, "not one JSON value"},
	{"{\"id\":12", 0, "not one JSON value"},
	{"{\"id\":\"12", 0, "not one JSON value"},
	{"{\"id\":01}", 0, "not one JSON value"},
	{"{\"x\":{\"id\":12,", 0, "not one JSON value"},
	{"{\"id\":\"1\",\"error\":\"\xff\"}", 1, "not one JSON value"},
};

static void bad_answers_are_told_apart(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(bad_cases); i++) {
		const struct bad_case *c = &bad_cases[i];
		struct answer answer;
		struct err err = ERR_INIT;
		if (answer_parse(&answer, str_of(c->line), &err) == 0)
			fail_msg("%s: accepted", c->line);
		assert_int_equal(err.class, ERR_DATA);
		if (strstr(err.text, c->complaint) == NULL || answer.id != c->id)
			fail_msg("%s: %s, id %jd", c->line, err.text, (intmax_t)answer.id);
		answer_release(&answer);
	}
}

/* Whatever is cut off or put in: a plain answer is one only if it is JSON. */
static void plain_answers_are_json(void **state)
{
	static const char line[] = "{ \"id\" : \"4711\" , \"outcome\":\"ok\"}";

	(void)state;
	for (size_t at = 0; at < sizeof(line) - 1; at++) {
		for (int c = 0; c < 256; c++) {
			char changed[sizeof(line)];
			struct answer answer;
			memcpy(changed, line, sizeof(line));
			changed[at] = (char)c;
			struct str text = {changed, sizeof(line) - 1};
			if (answer_parse(&answer, text, NULL) == 0)
				if (!json_is_valid(text.s, text.n, JSON_MAX_DEPTH))
					fail_msg("accepted: %s", changed);
			answer_release(&answer);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_answers_are_understood),
		cmocka_unit_test(bad_answers_are_told_apart),
		cmocka_unit_test(plain_answers_are_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
