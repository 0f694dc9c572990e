/*
 * Fuzz target: the text of a manifest. One that is accepted makes a complete handler whose
 * policy is JSON; one that is refused leaves none and says where.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -std=c11 -D_GNU_SOURCE -Ilib \
 *       tests/fuzz/fuzz_manifest.c lib/{buf,err,folder,handler,inifile,json,json_read}.c \
 *       lib/{manifest,manifest_command,manifest_keys,manifest_schema,outcome}.c \
 *       lib/{policy,redact,text,units}.c -linih -lm -o fuzz_manifest
 *   ./fuzz_manifest -max_len=4096 tests/fuzz/corpus/manifest
 *
 * tests/unit/test_fuzz_manifest.c replays the corpus. An input that broke something is added
 * to it with the fix.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "manifest.h"
#include "text.h"

/* Has an executable "true" and, in this checkout, nothing else that a manifest could need. */
#define FOLDER "/usr/bin"
#define NAME "true.ini"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int condition)
{
	if (!condition)
		abort();
}

static void check_handler(const struct handler *handler)
{
	expect(text_is_kind(handler->kind, strlen(handler->kind)));
	expect(text_is_kind(handler->lane, strlen(handler->lane)));
	expect(handler->path != NULL && handler->argv[0] != NULL);
	expect(handler->timeout_ms > 0 && handler->grace_ms >= 0);
	expect(handler->processes > 0 && handler->window > 0);
	expect(handler->version >= 0 && handler->version <= INT32_MAX);
	expect(json_is_valid(handler->manifest, strlen(handler->manifest), JSON_MAX_DEPTH));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct handler handler;
	struct err err = ERR_INIT;

	if (size > MANIFEST_MAX_BYTES)
		return 0;
	if (manifest_parse(FOLDER, NAME, (struct str){(const char *)data, size}, &handler,
			&err) == 0) {
		check_handler(&handler);
	} else {
		expect(err.class == ERR_CONFIG);
		expect(strncmp(err.text, FOLDER "/" NAME ":", sizeof(FOLDER "/" NAME)) == 0);
		expect(handler.kind == NULL && handler.manifest == NULL);
	}
	handler_release(&handler);
	return 0;
}
