/* Replays the corpus of tests/fuzz/fuzz_answer.c; run from the top of the checkout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../fuzz/fuzz_answer.c"
#include "../fuzz/replay.h"

static void the_corpus_is_survived(void **state)
{
	(void)state;
	assert_in_range(replay_corpus("tests/fuzz/corpus/answer"), 20, 10000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_corpus_is_survived)};
	return cmocka_run_group_tests_name("fuzz_answer", tests, NULL, NULL);
}
