/* Redaction: what is replaced, across the windows that a long text is searched in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "redact.h"

static void redact(const char *pattern, struct buf *text)
{
	struct redactions redactions = {0};
	struct err err = ERR_INIT;

	assert_int_equal(redactions_add(&redactions, pattern, &err), 0);
	redactions_apply(&redactions, text);
	redactions_release(&redactions);
}

static void matches_are_replaced(void **state)
{
	static const struct {
		const char *pattern, *text, *expected;
	} cases[] = {
		{"token=[a-z0-9]+", "a token=abc1 b token=2", "a [redacted] b [redacted]"},
		{"^key.*$", "no key here\nkey: x\nend", "no key here\n[redacted]\nend"},
		{"x", "", ""},
		{"a|ab", "ab", "[redacted]"},
		{"secret", "nothing", "nothing"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf text;

		buf_init(&text, 1000);
		buf_put_str(&text, str_of(cases[i].text));
		redact(cases[i].pattern, &text);
		assert_string_equal(buf_cstr(&text), cases[i].expected);
		buf_release(&text);
	}
}

/* A word at every place of a text of several windows is found, wherever a window ends. */
static void no_window_hides_a_match(void **state)
{
	(void)state;
	for (size_t at = 0; at < 9000; at += 7) {
		struct buf text;

		buf_init(&text, 20000);
		for (size_t i = 0; i < at; i++)
			buf_put_char(&text, '.');
		buf_put_str(&text, STR("card=4111111111111111"));
		for (size_t i = at; i < 9000; i++)
			buf_put_char(&text, '.');
		redact("card=[0-9]+", &text);
		assert_int_equal(text.len, 9000 + strlen(REDACT_REPLACEMENT));
		assert_memory_equal(text.data + at, REDACT_REPLACEMENT,
			strlen(REDACT_REPLACEMENT));
		buf_release(&text);
	}
}

static void bad_patterns_are_refused(void **state)
{
	struct redactions redactions = {0};
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(redactions_add(&redactions, "(", &err), -1);
	assert_int_equal(err.class, ERR_CONFIG);
	assert_int_equal(redactions_add(&redactions, "a*", &err), -1);
	assert_int_equal(redactions.count, 0);
	redactions_release(&redactions);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matches_are_replaced),
		cmocka_unit_test(no_window_hides_a_match),
		cmocka_unit_test(bad_patterns_are_refused),
	};
	return cmocka_run_group_tests_name("redact", tests, NULL, NULL);
}
