/* Frames over pipes and files: every way to cut a stream, pauses, ends and full pipes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "frame.h"
#include "frame_stream.h"
#include "turning.h"

static struct loop *loop;
static int ends[2]; /* of the pipe: read, write */
static struct frame_stream *stream;

static struct buf got; /* the frames as they came, one after the other */
static int got_count;
static bool ended;
static struct err end_err;
static int pause_after; /* pause when so many frames have come; 0: never */
static bool free_at_frame;

static void note_frame(void *ctx, const void *frame, size_t length, int64_t version,
	int64_t type)
{
	(void)ctx;
	assert_false(ended);
	assert_int_equal(version, FRAME_VERSION);
	assert_true(type == FRAME_NUDGE || type == FRAME_RESULT);
	buf_put(&got, frame, length);
	got_count++;
	if (got_count == pause_after)
		frame_stream_pause(stream, true);
	if (free_at_frame) {
		frame_stream_free(stream, 0);
		stream = NULL;
	}
}

static void note_end(void *ctx, const struct err *err)
{
	(void)ctx;
	assert_false(ended);
	ended = true;
	end_err = err ? *err : ERR_INIT;
}

static bool has_ended(void *ctx)
{
	(void)ctx;
	return ended;
}

static bool has_frames(void *ctx)
{
	return got_count >= *(const int *)ctx;
}

static void open_stream(int fd, bool writes)
{
	const struct frame_stream_options options = {
		.fd = fd,
		.writes = writes,
		.on_frame = note_frame,
		.on_end = note_end,
	};
	stream = frame_stream_new(loop, &options, NULL);
	assert_non_null(stream);
}

static int set_up(void **state)
{
	(void)state;
	signal(SIGPIPE, SIG_IGN);
	loop = loop_new(NULL);
	buf_init(&got, SIZE_MAX);
	got_count = pause_after = 0;
	ended = free_at_frame = false;
	stream = NULL;
	return loop && pipe2(ends, O_CLOEXEC) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	frame_stream_free(stream, 0);
	close(ends[0]);
	if (ends[1] >= 0)
		close(ends[1]);
	buf_release(&got);
	loop_free(loop);
	return 0;
}

static void close_writing_end(void)
{
	close(ends[1]);
	ends[1] = -1;
}

static void put_nudges(struct buf *out, int count)
{
	char kind[32];

	for (int i = 0; i < count; i++) {
		snprintf(kind, sizeof(kind), "kind.%d", i);
		const struct frame_nudge nudge = {.kind = str_of(kind)};
		assert_int_equal(frame_put_nudge(out, &nudge), 0);
	}
}

static void assert_got(const struct buf *expected)
{
	assert_int_equal(got.len, expected->len);
	assert_memory_equal(got.data, expected->data, got.len);
}

/* ---- reading */

static void test_stream_split_at_every_byte(void **state)
{
	struct buf bytes;
	(void)state;

	buf_init(&bytes, SIZE_MAX);
	put_nudges(&bytes, 3);
	open_stream(ends[0], false);
	for (size_t cut = 0; cut <= bytes.len; cut++) {
		int before = got_count, all = got_count + 3;
		buf_clear(&got);
		assert_int_equal(write(ends[1], bytes.data, cut), cut);
		turn_for_ms(loop, 1);
		assert_true(got_count - before <= 3);
		assert_int_equal(write(ends[1], bytes.data + cut, bytes.len - cut),
			bytes.len - cut);
		turn_until(loop, has_frames, &all);
		assert_int_equal(got_count, all);
		assert_got(&bytes);
	}
	close_writing_end();
	turn_until(loop, has_ended, NULL);
	assert_int_equal(end_err.class, ERR_NONE);
	buf_release(&bytes);
}

static void test_stream_byte_by_byte(void **state)
{
	struct buf bytes;
	int all = 5;
	(void)state;

	buf_init(&bytes, SIZE_MAX);
	put_nudges(&bytes, all);
	open_stream(ends[0], false);
	for (size_t i = 0; i < bytes.len; i++) {
		assert_int_equal(write(ends[1], bytes.data + i, 1), 1);
		turn_for_ms(loop, 1);
	}
	turn_until(loop, has_frames, &all);
	assert_got(&bytes);
	buf_release(&bytes);
}

static void test_end_within_a_frame_is_an_error(void **state)
{
	struct buf bytes;
	(void)state;

	buf_init(&bytes, SIZE_MAX);
	put_nudges(&bytes, 2);
	open_stream(ends[0], false);
	assert_int_equal(write(ends[1], bytes.data, bytes.len - 1), bytes.len - 1);
	close_writing_end();
	turn_until(loop, has_ended, NULL);
	assert_int_equal(got_count, 1);
	assert_int_equal(end_err.class, ERR_PROTOCOL);
	buf_release(&bytes);
}

static void test_what_is_no_frame_ends_the_stream(void **state)
{
	static const char *const inputs[] = {
		"hello world\n",                    /* text */
		"\x91\x01",                         /* one field */
		"\xdd\xff\xff\xff\xff",             /* 2^32-1 fields */
		"\x93\x01\x01\xdb\x7f\xff\xff\xff", /* a string of 2 GiB */
	};
	(void)state;

	for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
		open_stream(ends[0], false);
		ended = false;
		assert_int_equal(write(ends[1], inputs[i], strlen(inputs[i])), strlen(inputs[i]));
		turn_until(loop, has_ended, NULL);
		assert_int_equal(end_err.class, ERR_PROTOCOL);
		assert_int_equal(got_count, 0);
		frame_stream_free(stream, 0);
		stream = NULL;
	}
}

static void test_pause_holds_buffered_frames_back(void **state)
{
	struct buf bytes;
	int all = 10;
	(void)state;

	buf_init(&bytes, SIZE_MAX);
	put_nudges(&bytes, all);
	pause_after = 4;
	open_stream(ends[0], false);
	assert_int_equal(write(ends[1], bytes.data, bytes.len), bytes.len);
	close_writing_end(); /* a hang-up must neither end a paused stream nor spin */
	turn_for_ms(loop, 20);
	assert_int_equal(got_count, 4);
	assert_false(ended);
	frame_stream_pause(stream, true); /* again: nothing */
	frame_stream_pause(stream, false);
	frame_stream_pause(stream, true);
	turn_for_ms(loop, 5);
	assert_int_equal(got_count, 4);
	frame_stream_pause(stream, false);
	turn_until(loop, has_ended, NULL);
	assert_int_equal(got_count, all);
	assert_got(&bytes);
	assert_int_equal(end_err.class, ERR_NONE);
	buf_release(&bytes);
}

static void test_freed_by_its_own_callback(void **state)
{
	struct buf bytes;
	int one = 1;
	(void)state;

	buf_init(&bytes, SIZE_MAX);
	put_nudges(&bytes, 3);
	free_at_frame = true;
	open_stream(ends[0], false);
	assert_int_equal(write(ends[1], bytes.data, bytes.len), bytes.len);
	turn_until(loop, has_frames, &one);
	turn_for_ms(loop, 5);
	assert_int_equal(got_count, 1);
	assert_null(stream);
	buf_release(&bytes);
}

static void test_file_is_read_to_its_end(void **state)
{
	FILE *file = tmpfile();
	struct buf bytes;
	(void)state;

	assert_non_null(file);
	buf_init(&bytes, SIZE_MAX);
	put_nudges(&bytes, 20000); /* several reads */
	assert_int_equal(fwrite(bytes.data, 1, bytes.len, file), bytes.len);
	rewind(file);
	open_stream(fileno(file), false);
	turn_until(loop, has_ended, NULL);
	assert_int_equal(end_err.class, ERR_NONE);
	assert_int_equal(got_count, 20000);
	assert_got(&bytes);
	frame_stream_free(stream, 0);
	stream = NULL;
	fclose(file);
	buf_release(&bytes);
}

/* ---- writing */

static void test_full_pipe_keeps_a_backlog(void **state)
{
	const size_t total = (size_t)1 << 20;
	char *sent = malloc(total), *read_back = malloc(total);
	size_t taken = 0;
	(void)state;

	for (size_t i = 0; i < total; i++)
		sent[i] = (char)(i * 31 % 251);
	open_stream(ends[1], true);
	assert_int_equal(frame_stream_send(stream, sent, total / 2, NULL), 0);
	assert_int_equal(frame_stream_send(stream, sent + total / 2, total / 2, NULL), 0);
	turn_for_ms(loop, 5);
	assert_true(frame_stream_backlog(stream) > 0);
	assert_true(frame_stream_backlog(stream) < total);
	while (taken < total) {
		ssize_t count = read(ends[0], read_back + taken, total - taken);
		assert_true(count > 0);
		taken += (size_t)count;
		turn_for_ms(loop, 1);
	}
	assert_int_equal(frame_stream_backlog(stream), 0);
	assert_memory_equal(sent, read_back, total);
	assert_false(ended);
	free(sent);
	free(read_back);
}

static void test_backlog_has_a_maximum(void **state)
{
	const size_t part = (size_t)32 << 20;
	char *bytes = calloc(1, part);
	struct err err = ERR_INIT;
	(void)state;

	open_stream(ends[1], true);
	assert_int_equal(frame_stream_send(stream, bytes, part, NULL), 0);
	assert_int_equal(frame_stream_send(stream, bytes, part, NULL), 0);
	assert_int_equal(frame_stream_send(stream, bytes, 1, &err), -1);
	assert_int_equal(err.class, ERR_TEMP);
	assert_int_equal(frame_stream_backlog(stream), FRAME_STREAM_MAX_BACKLOG);
	free(bytes);
}

static void test_reader_that_goes_away_ends_an_idle_writer(void **state)
{
	struct err err = ERR_INIT;
	(void)state;

	open_stream(ends[1], true);
	turn_for_ms(loop, 5);
	assert_false(ended);
	close(ends[0]);
	turn_until(loop, has_ended, NULL);
	assert_int_equal(end_err.class, ERR_IO);
	assert_int_equal(frame_stream_send(stream, "x", 1, &err), -1);
	assert_int_equal(err.class, ERR_IO);
	assert_int_equal(frame_stream_backlog(stream), 0);
	ends[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void test_free_writes_what_fits_and_restores_the_flags(void **state)
{
	char *bytes = calloc(1, 100000), byte;
	int before = fcntl(ends[1], F_GETFL);
	(void)state;

	open_stream(ends[1], true);
	assert_true(fcntl(ends[1], F_GETFL) & O_NONBLOCK);
	assert_int_equal(frame_stream_send(stream, bytes, 100000, NULL), 0);
	int64_t begun_ms = clock_ms();
	frame_stream_free(stream, 50); /* nobody reads: gives up after a while */
	stream = NULL;
	assert_in_range(clock_ms() - begun_ms, 45, 5000);
	assert_int_equal(fcntl(ends[1], F_GETFL), before);
	assert_int_equal(read(ends[0], &byte, 1), 1);
	free(bytes);
}

#define stream_test(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		stream_test(test_stream_split_at_every_byte),
		stream_test(test_stream_byte_by_byte),
		stream_test(test_end_within_a_frame_is_an_error),
		stream_test(test_what_is_no_frame_ends_the_stream),
		stream_test(test_pause_holds_buffered_frames_back),
		stream_test(test_freed_by_its_own_callback),
		stream_test(test_file_is_read_to_its_end),
		stream_test(test_full_pipe_keeps_a_backlog),
		stream_test(test_backlog_has_a_maximum),
		stream_test(test_reader_that_goes_away_ends_an_idle_writer),
		stream_test(test_free_writes_what_fits_and_restores_the_flags),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
