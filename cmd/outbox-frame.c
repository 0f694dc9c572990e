/*
 * outbox-frame: shows frames as JSON lines and makes frames of them, to look into a pipe or
 * a recorded message and to write tests by hand.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "frame.h"
#include "frame_json.h"
#include "program.h"

#define CHUNK_BYTES ((size_t)64 << 10)
/* A frame of the largest size, every byte of it written as \u00XX, and the rest of a line. */
#define MAX_LINE_BYTES (6 * FRAME_MAX_BYTES + CHUNK_BYTES)

/* Standard input, what is not consumed yet of it. */
struct input {
	struct buf bytes;
	int64_t offset; /* of the first byte of them, from the start of the input */
};

/* Reads more. 1: got some, 0: end of input, -1: error. */
static int input_fill(struct input *input, struct err *err)
{
	/* What was written so far is all that can be written: let the reader have it. */
	if (fflush(stdout) != 0)
		return err_set_errno(err, ERR_IO, errno, "could not write the output");
	char *space = buf_reserve(&input->bytes, CHUNK_BYTES);
	if (!space)
		return err_set(err, ERR_DATA, "input at byte %lld is too large",
			(long long)input->offset);
	ssize_t count;
	do
		count = read(STDIN_FILENO, space, CHUNK_BYTES);
	while (count < 0 && errno == EINTR);
	if (count < 0)
		return err_set_errno(err, ERR_IO, errno, "could not read the input");
	input->bytes.len += (size_t)count;
	return count > 0;
}

static void input_consume(struct input *input, size_t count)
{
	buf_consume(&input->bytes, count);
	input->offset += (int64_t)count;
}

static int write_out(struct buf *out, struct err *err)
{
	size_t count = out->len;
	if (fwrite(out->data, 1, count, stdout) != count)
		return err_set_errno(err, ERR_IO, errno, "could not write the output");
	buf_clear(out);
	return 0;
}

/* ---- decode ---- */

/* Whatever is wrong with the bytes of the input is wrong data to this program. */
static int bad_frame(const struct input *input, struct err *err)
{
	err->class = ERR_DATA;
	return err_prefix(err, "frame at byte %lld", (long long)input->offset);
}

/* Writes the whole frames that are there. */
static int decode_frames(struct input *input, struct buf *out, struct err *err)
{
	size_t length;
	int64_t version, type;

	for (;;) {
		int found = frame_next(input->bytes.data, input->bytes.len, &length, &version,
			&type, err);
		if (found == 0)
			return 0;
		if (found < 0 || frame_json_put(out, input->bytes.data, length, err) < 0 ||
			buf_put_char(out, '\n') < 0)
			return bad_frame(input, err);
		if (write_out(out, err) < 0)
			return -1;
		input_consume(input, length);
	}
}

static int decode(struct input *input, struct buf *out, struct err *err)
{
	int got;

	while ((got = input_fill(input, err)) > 0) {
		if (decode_frames(input, out, err) < 0)
			return -1;
	}
	if (got == 0 && input->bytes.len > 0) {
		err_set(err, ERR_DATA, "the input ends within it");
		return bad_frame(input, err);
	}
	return got;
}

/* ---- encode ---- */

static int encode_line(struct str line, int64_t number, struct buf *out, struct err *err)
{
	if (line.n == 0)
		return 0;
	if (frame_json_get(out, line, err) < 0)
		return err_prefix(err, "line %lld", (long long)number);
	return write_out(out, err);
}

static int encode(struct input *input, struct buf *out, struct err *err)
{
	int64_t number = 1;
	size_t searched = 0; /* bytes known to hold no line feed */
	int got;

	while ((got = input_fill(input, err)) > 0) {
		char *end;
		while ((end = memchr(input->bytes.data + searched, '\n',
					input->bytes.len - searched))) {
			struct str line = {input->bytes.data, (size_t)(end - input->bytes.data)};
			if (encode_line(line, number++, out, err) < 0)
				return -1;
			input_consume(input, line.n + 1);
			searched = 0;
		}
		searched = input->bytes.len;
	}
	if (got < 0)
		return -1;
	struct str last = {input->bytes.data, input->bytes.len};
	return encode_line(last, number, out, err);
}

/* ---- main ---- */

static int run(const char *direction, struct err *err)
{
	struct input input = {.offset = 0};
	struct buf out;
	int rc;

	buf_init(&input.bytes, MAX_LINE_BYTES + CHUNK_BYTES);
	buf_init(&out, MAX_LINE_BYTES);
	if (strcmp(direction, "decode") == 0)
		rc = decode(&input, &out, err);
	else if (strcmp(direction, "encode") == 0)
		rc = encode(&input, &out, err);
	else
		rc = err_set(err, ERR_USAGE, "\"%s\" is neither \"decode\" nor \"encode\"",
			direction);
	/* The lines before a bad one are good: they are written in either case. */
	if (fflush(stdout) != 0 && rc == 0)
		rc = err_set_errno(err, ERR_IO, errno, "could not write the output");
	buf_release(&input.bytes);
	buf_release(&out);
	return rc;
}

int main(int argc, char **argv)
{
	static const struct opt_program program = {
		.name = "outbox-frame",
		.summary = "show frames as JSON lines, or make frames of JSON lines",
		.usage = "[option ...] decode|encode",
		.tables = {program_opts},
	};
	struct err err = ERR_INIT;
	int operand = program_start(&program, argc, argv);

	if (argc - operand != 1)
		err_set(&err, ERR_USAGE, "exactly one of \"decode\" and \"encode\" is needed");
	else
		run(argv[operand], &err);
	return err.class == ERR_NONE ? 0 : program_fail(&err);
}
