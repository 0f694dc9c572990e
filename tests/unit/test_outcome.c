/* Outcomes: exit statuses, the document on descriptor 3, and both together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "outcome.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct exit_case {
	int status, signal_number;
	enum outcome outcome;
	const char *code;
} exit_cases[] = {
	{0, 0, OUTCOME_OK, ""},
	{1, 0, OUTCOME_RETRY, "exit_1"},
	{64, 0, OUTCOME_FAIL, "exit_64"},
	{65, 0, OUTCOME_FAIL, "exit_65"},
	{66, 0, OUTCOME_RETRY, "exit_66"},
	{75, 0, OUTCOME_RETRY, "exit_75"},
	{76, 0, OUTCOME_FAIL, "exit_76"},
	{77, 0, OUTCOME_FAIL, "exit_77"},
	{78, 0, OUTCOME_FAIL, "exit_78"},
	{100, 0, OUTCOME_FAIL, "exit_100"},
	{126, 0, OUTCOME_RETRY, "exit_126"},
	{137, 0, OUTCOME_RETRY, "exit_137"}, /* an exit code, not a signal */
	{143, 0, OUTCOME_RETRY, "exit_143"},
	{255, 0, OUTCOME_RETRY, "exit_255"},
	{-1, 9, OUTCOME_RETRY, "signal_9"},
	{-1, 11, OUTCOME_RETRY, "signal_11"},
};

static void exit_statuses_decide(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(exit_cases); i++) {
		const struct exit_case *c = &exit_cases[i];
		char code[16];
		assert_int_equal(outcome_of_exit(c->status, c->signal_number, code, sizeof(code)),
			c->outcome);
		assert_string_equal(code, c->code);
	}
}

static void only_handlers_words_are_parsed(void **state)
{
	(void)state;
	enum outcome outcome;

	assert_int_equal(outcome_parse(STR("cancel"), &outcome), 0);
	assert_int_equal(outcome, OUTCOME_CANCEL);
	assert_int_equal(outcome_parse(STR("lost"), &outcome), -1);
	assert_int_equal(outcome_parse(STR("release"), &outcome), -1);
	assert_int_equal(outcome_parse(STR("OK"), &outcome), -1);
	assert_int_equal(outcome_parse(STR_NULL, &outcome), -1);
}

static void assert_text(const char *got, const char *expected)
{
	if (expected == NULL)
		assert_null(got);
	else
		assert_string_equal(got != NULL ? got : "(null)", expected);
}

static const struct good_case {
	const char *text;
	enum outcome outcome;
	const char *code, *error, *reason;
	int64_t after_ms;
	const char *commit, *enqueue;
} good_cases[] = {
	{"{\"outcome\":\"ok\"}", OUTCOME_OK, .after_ms = -1},
	{" \n{ \"outcome\" : \"ok\" , \"code\":null}\n", OUTCOME_OK, .after_ms = -1},
	{"{\"outcome\":\"retry\",\"code\":\"rate_limited\",\"after\":\"60s\"}", OUTCOME_RETRY,
		"rate_limited", .after_ms = 60000},
	{"{\"outcome\":\"retry\",\"after\":1.5}", OUTCOME_RETRY, .after_ms = 1500},
	{"{\"outcome\":\"retry\",\"after\":0}", OUTCOME_RETRY, .after_ms = 0},
	{"{\"outcome\":\"fail\",\"error\":\"a\\u00e4\\ud83d\\ude00\\n\\u0000b\"}",
		OUTCOME_FAIL,
		.error = "aä😀\n\xef\xbf\xbd"
				 "b",
		.after_ms = -1},
	{"{\"outcome\":\"fail\",\"error\":\"x\\ud800\"}", OUTCOME_FAIL, .error = "x\\ud800",
		.after_ms = -1},
	{"{\"outcome\":\"cancel\",\"reason\":\"gone\",\"extra\":[1,{\"outcome\":\"ok\"}]}",
		OUTCOME_CANCEL, .reason = "gone", .after_ms = -1},
	/* passed on byte for byte: number forms, escapes, spaces, order and repeats */
	{"{\"enqueue\":[ {\"kind\":\"a.b\", \"payload\":{\"n\":12345678901234567890,"
	 "\"f\":1.10,\"z\":\"\\u0000\\ud800\\/\"}} ],\"outcome\":\"ok\"}",
		OUTCOME_OK, .after_ms = -1,
		.enqueue = "[ {\"kind\":\"a.b\", \"payload\":{\"n\":12345678901234567890,"
				   "\"f\":1.10,\"z\":\"\\u0000\\ud800\\/\"}} ]"},
	{"{\"outcome\":\"ok\",\"commit\":[{\"name\":\"mark\",\"args\":[\"u]1\",{}]}]}",
		OUTCOME_OK, .after_ms = -1,
		.commit = "[{\"name\":\"mark\",\"args\":[\"u]1\",{}]}]"},
	{"{\"outcome\":\"ok\",\"commit\":[],\"enqueue\":[]}", OUTCOME_OK, .after_ms = -1},
};

static void good_documents_are_understood(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(good_cases); i++) {
		const struct good_case *c = &good_cases[i];
		struct outcome_document document;
		struct err err = ERR_INIT;
		if (outcome_document_parse(c->text, strlen(c->text), &document, &err) != 0)
			fail_msg("%s: %s", c->text, err.text);
		assert_int_equal(document.outcome, c->outcome);
		assert_int_equal(document.after_ms, c->after_ms);
		assert_text(document.code, c->code);
		assert_text(document.error, c->error);
		assert_text(document.reason, c->reason);
		assert_text(document.commit, c->commit);
		assert_text(document.enqueue, c->enqueue);
		outcome_document_release(&document);
		outcome_document_release(&document);
	}
}

static const struct bad_case {
	const char *text;
	const char *says; /* a part of the message */
} bad_cases[] = {
	{"", "not one JSON value"},
	{"ok", "not one JSON value"},
	{"\"ok\"", "not an object"},
	{"[]", "not an object"},
	{"null", "not an object"},
	{"{}", "no \"outcome\""},
	{"{\"outcome\":null}", "no \"outcome\""},
	{"{\"outcome\":\"ok\"", "not one JSON value"},
	{"{\"outcome\":\"ok\"}{}", "not one JSON value"},
	{"{\"outcome\":\"ok\",}", "not one JSON value"},
	{"{'outcome':'ok'}", "not one JSON value"},
	{"{\"outcome\":\"lost\"}", "\"outcome\": not one of"},
	{"{\"outcome\":\"release\"}", "\"outcome\": not one of"},
	{"{\"outcome\":1}", "\"outcome\": not a string"},
	{"{\"outcome\":\"ok\",\"outcome\":\"fail\"}", "comes twice"},
	{"{\"outcome\":\"retry\",\"code\":\"\"}", "\"code\""},
	{"{\"outcome\":\"retry\",\"code\":\"Rate Limited\"}", "\"code\""},
	{"{\"outcome\":\"retry\",\"code\":\"_x\"}", "\"code\""},
	{"{\"outcome\":\"retry\",\"code\":\"a\\u0000b\"}", "\"code\""},
	{"{\"outcome\":\"retry\",\"code\":"
	 "\"a2345678901234567890123456789012345678901234567890123456789012345\"}",
		"\"code\""},
	{"{\"outcome\":\"retry\",\"error\":{}}", "\"error\": not a string"},
	{"{\"outcome\":\"retry\",\"after\":\"soon\"}", "\"after\""},
	{"{\"outcome\":\"retry\",\"after\":\"60\"}", "\"after\""},
	{"{\"outcome\":\"retry\",\"after\":-1}", "\"after\""},
	{"{\"outcome\":\"retry\",\"after\":1e300}", "\"after\""},
	{"{\"outcome\":\"retry\",\"after\":\"100000d\"}", "\"after\""},
	{"{\"outcome\":\"retry\",\"after\":true}", "\"after\""},
	{"{\"outcome\":\"retry\",\"after\":10000000000000000000000000000000000000000000000}",
		"\"after\""},
	{"{\"outcome\":\"ok\",\"commit\":{}}", "\"commit\": not an array"},
	{"{\"outcome\":\"ok\",\"commit\":[1]}", "\"commit\": an item"},
	{"{\"outcome\":\"ok\",\"commit\":[{\"args\":[]}]}", "\"commit\": an item"},
	{"{\"outcome\":\"ok\",\"commit\":[{\"name\":\"\"}]}", "\"commit\": an item"},
	{"{\"outcome\":\"ok\",\"enqueue\":[{\"kind\":\"../x\"}]}", "\"enqueue\": an item"},
	{"{\"outcome\":\"ok\",\"enqueue\":[{\"kind\":\"a\"},[]]}", "\"enqueue\": an item"},
	{"{\"outcome\":\"retry\",\"enqueue\":[{\"kind\":\"a\"}]}", "only"},
};

static void bad_documents_are_refused_with_the_reason(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(bad_cases); i++) {
		const struct bad_case *c = &bad_cases[i];
		struct outcome_document document;
		struct err err = ERR_INIT;
		if (outcome_document_parse(c->text, strlen(c->text), &document, &err) != -1)
			fail_msg("accepted: %s", c->text);
		assert_int_equal(err.class, ERR_DATA);
		if (strstr(err.text, c->says) == NULL)
			fail_msg("%s: \"%s\" does not say \"%s\"", c->text, err.text, c->says);
		assert_null(document.code);
		assert_null(document.enqueue);
		outcome_document_release(&document);
	}
}

static void nesting_and_size_are_bounded(void **state)
{
	(void)state;
	struct outcome_document document;
	struct err err = ERR_INIT;
	size_t count = OUTCOME_MAX_DOCUMENT + 1;
	char *text = test_malloc(count);

	memset(text, '[', count);
	assert_int_equal(outcome_document_parse(text, count, &document, &err), -1);
	assert_non_null(strstr(err.text, "bytes"));
	assert_int_equal(outcome_document_parse(text, count - 1, &document, &err), -1);
	assert_non_null(strstr(err.text, "not one JSON value"));

	/* 500 levels of payload fit */
	int length = snprintf(text, count,
		"{\"outcome\":\"ok\",\"enqueue\":[{\"kind\":\"a\",\"payload\":");
	memset(text + length, '[', 500);
	memset(text + length + 500, ']', 500);
	length += 1000;
	length += snprintf(text + length, 10, "}]}");
	assert_int_equal(outcome_document_parse(text, (size_t)length, &document, &err), 0);
	outcome_document_release(&document);
	test_free(text);
}

static const struct both_case {
	int status, signal_number;
	const char *document;
	enum outcome outcome;
	const char *code;
} both_cases[] = {
	{0, 0, NULL, OUTCOME_OK, ""},
	{7, 0, NULL, OUTCOME_RETRY, "exit_7"},
	{0, 0, "{\"outcome\":\"ok\",\"code\":\"fine\"}", OUTCOME_OK, ""},
	{3, 0, "{\"outcome\":\"ok\"}", OUTCOME_RETRY, "bad_outcome"},
	{-1, 9, "{\"outcome\":\"ok\"}", OUTCOME_RETRY, "signal_9"},
	{0, 0, "{\"outcome\":\"retry\",\"code\":\"busy\"}", OUTCOME_RETRY, "busy"},
	{0, 0, "{\"outcome\":\"fail\"}", OUTCOME_FAIL, "fail"},
	{66, 0, "{\"outcome\":\"retry\"}", OUTCOME_RETRY, "exit_66"},
	{75, 0, "{\"outcome\":\"cancel\",\"code\":\"gone\"}", OUTCOME_CANCEL, "gone"},
	/* statuses that the manifest below classifies */
	{65, 0, NULL, OUTCOME_RETRY, "busy"},
	{9, 0, NULL, OUTCOME_OK, ""},
	{10, 0, NULL, OUTCOME_FAIL, "exit_10"},
	{11, 0, NULL, OUTCOME_CANCEL, "gone"},
	{-1, 9, NULL, OUTCOME_RETRY, "signal_9"}, /* not the status 9 */
	{9, 0, "{\"outcome\":\"ok\"}", OUTCOME_OK, ""},
	{9, 0, "{\"outcome\":\"retry\"}", OUTCOME_RETRY, "retry"},
	{10, 0, "{\"outcome\":\"ok\"}", OUTCOME_RETRY, "bad_outcome"},
	{11, 0, "{\"outcome\":\"fail\"}", OUTCOME_FAIL, "gone"},
	{11, 0, "{\"outcome\":\"fail\",\"code\":\"no\"}", OUTCOME_FAIL, "no"},
};

static struct outcome_exit exit_items[] = {
	{65, OUTCOME_RETRY, "busy"},
	{9, OUTCOME_OK, ""},
	{10, OUTCOME_FAIL, ""},
	{11, OUTCOME_CANCEL, "gone"},
};
static const struct outcome_exits manifest_exits = {exit_items, COUNT(exit_items)};

static void exit_and_document_are_put_together(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(both_cases); i++) {
		const struct both_case *c = &both_cases[i];
		struct outcome_document document = {.after_ms = -1};
		char code[OUTCOME_MAX_CODE + 1];
		if (c->document != NULL)
			assert_int_equal(outcome_document_parse(c->document, strlen(c->document),
								 &document, NULL),
				0);
		assert_int_equal(outcome_conclude(c->status, c->signal_number, &manifest_exits,
							 c->document != NULL ? &document : NULL, code),
			c->outcome);
		assert_string_equal(code, c->code);
		outcome_document_release(&document);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exit_statuses_decide),
		cmocka_unit_test(only_handlers_words_are_parsed),
		cmocka_unit_test(good_documents_are_understood),
		cmocka_unit_test(bad_documents_are_refused_with_the_reason),
		cmocka_unit_test(nesting_and_size_are_bounded),
		cmocka_unit_test(exit_and_document_are_put_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
