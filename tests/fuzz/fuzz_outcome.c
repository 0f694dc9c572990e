/*
 * Fuzz target: what a handler may write to descriptor 3, with any exit, and whether an
 * accepted document holds what headers promise.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -std=c11 -D_GNU_SOURCE -Ilib \
 *       tests/fuzz/fuzz_outcome.c \
 *       lib/{buf,err,json,json_read,outcome,text,units}.c -lm -o fuzz_outcome
 *   ./fuzz_outcome -max_len=4096 tests/fuzz/corpus/outcome
 *
 * tests/unit/test_fuzz_outcome.c replays the corpus. An input that broke something is added
 * to it with the fix.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "outcome.h"
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int condition)
{
	if (!condition)
		abort();
}

static void expect_storable(const char *text)
{
	expect(text == NULL || text_is_storable(text, strlen(text)));
}

static void expect_list(const char *text)
{
	if (text == NULL)
		return;
	expect(text[0] == '[');
	expect(json_is_valid(text, strlen(text), OUTCOME_MAX_DEPTH));
}

static void check_document(const struct outcome_document *document)
{
	expect(document->outcome <= OUTCOME_CANCEL);
	expect(document->code == NULL || outcome_is_code(document->code));
	expect(document->after_ms >= -1 && document->after_ms <= OUTCOME_MAX_AFTER_MS);
	expect_storable(document->error);
	expect_storable(document->reason);
	expect_list(document->commit);
	expect_list(document->enqueue);
	if (document->outcome != OUTCOME_OK)
		expect(document->commit == NULL && document->enqueue == NULL);
}

static void conclude(int exit_status, int signal_number,
	const struct outcome_document *document)
{
	static struct outcome_exit items[] = {{7, OUTCOME_OK, ""}, {65, OUTCOME_CANCEL, "c"}};
	static const struct outcome_exits exits = {items, 2};
	char code[OUTCOME_MAX_CODE + 1];

	enum outcome outcome = outcome_conclude(exit_status, signal_number, &exits, document,
		code);
	expect(outcome <= OUTCOME_CANCEL);
	expect(outcome == OUTCOME_OK ? code[0] == '\0' : outcome_is_code(code));
	expect(signal_number == 0 || outcome != OUTCOME_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int statuses[] = {0, 1, 7, 65, 100, 255};
	struct outcome_document document;
	struct err err = ERR_INIT;

	bool accepted = outcome_document_parse((const char *)data, size, &document, &err) ==
		0;
	if (accepted)
		check_document(&document);
	else
		expect(err.class == ERR_DATA && err.text[0] != '\0');
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		conclude(statuses[i], 0, accepted ? &document : NULL);
	conclude(-1, 9, accepted ? &document : NULL);
	outcome_document_release(&document);
	return 0;
}
