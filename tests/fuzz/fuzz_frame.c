/*
 * Fuzz target: bytes of a peer, found, decoded, shown as JSON and made into frames again.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -std=c11 -D_GNU_SOURCE -Ilib \
 *       $(pkg-config --cflags msgpack) tests/fuzz/fuzz_frame.c \
 *       lib/{buf,cursor,err,frame,frame_json,frame_layout,json,json_read,text}.c \
 *       $(pkg-config --libs msgpack) -o fuzz_frame
 *   ./fuzz_frame -max_len=4096 tests/fuzz/corpus/frame
 *
 * tests/unit/test_fuzz_frame.c replays the corpus. An input that broke something is added
 * to it with the fix.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "frame.h"
#include "frame_json.h"

#define MAX_BYTES ((size_t)8 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int condition)
{
	if (!condition)
		abort();
}

/* The frame that the JSON of a frame describes; 0, or -1 where the frame has no JSON. */
static int through_json(const void *frame, size_t length, struct buf *result)
{
	struct err err = ERR_INIT;
	struct buf json;

	buf_init(&json, MAX_BYTES);
	int rc = frame_json_put(&json, frame, length, &err);
	if (rc == 0 && strncmp(json.data, "{\"type\":\"", 9) != 0)
		rc = -1; /* unknown: only described */
	else if (rc == 0)
		expect(frame_json_get(result, (struct str){json.data, json.len}, &err) == 0);
	buf_release(&json);
	return rc;
}

/* What is not UTF-8 is replaced on the first way through JSON; then nothing changes. */
static void check_frame(const void *frame, size_t length)
{
	struct buf once, twice;

	buf_init(&once, MAX_BYTES);
	buf_init(&twice, MAX_BYTES);
	if (through_json(frame, length, &once) == 0) {
		expect(through_json(once.data, once.len, &twice) == 0);
		expect(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
	}
	buf_release(&once);
	buf_release(&twice);
}

static void check_stream(const uint8_t *data, size_t size)
{
	struct err err = ERR_INIT;
	size_t length;
	int64_t version, type;

	while (frame_next(data, size, &length, &version, &type, &err) == 1) {
		expect(length > 2 && length <= size);
		check_frame(data, length);
		data += length;
		size -= length;
	}
}

/* The same bytes as a line for `outbox-frame encode`. */
static void check_line(const uint8_t *data, size_t size)
{
	struct err err = ERR_INIT;
	struct buf frame;

	buf_init(&frame, MAX_BYTES);
	if (frame_json_get(&frame, (struct str){(const char *)data, size}, &err) == 0)
		check_frame(frame.data, frame.len);
	buf_release(&frame);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_stream(data, size);
	check_line(data, size);
	return 0;
}
