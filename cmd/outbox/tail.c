/*
 * outbox tail: follows the events that outbox-settle and outbox-sweep publish, one line each.
 *
 * Events are news, not a record: who does not listen, or reads too slowly, misses some. The
 * record is the table outbox.attempt.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "command.h"
#include "frame.h"
#include "frame_json.h"
#include "link.h"
#include "loop.h"
#include "options.h"
#include "program.h"

#define ENDPOINTS_MAX 64
#define MAX_LINE ((size_t)32 << 20)

static struct opt_list endpoints;
static struct opt_list kinds;
static struct opt_list names;
static bool as_json;
static int64_t most; /* events; 0: no end */

static const struct opt opts[] = {
	{
		.name = "endpoint",
		.type = OPT_LIST,
		.value = &endpoints,
		.argument = "ENDPOINT",
		.environment = "",
		.help = "where events are published, may be repeated; default: events-settle and "
				"events-sweep in the runtime directory",
	},
	{
		.name = "kind",
		.type = OPT_LIST,
		.value = &kinds,
		.argument = "KIND",
		.environment = "",
		.help = "only events of jobs of this kind, may be repeated",
	},
	{
		.name = "name",
		.type = OPT_LIST,
		.value = &names,
		.argument = "NAME",
		.environment = "",
		.help = "only events of this name (dead, retrying …), may be repeated",
	},
	{
		.name = "limit",
		.short_name = 'n',
		.type = OPT_INTEGER,
		.value = &most,
		.argument = "N",
		.environment = "",
		.max = INT64_MAX,
		.help = "exit after so many events",
	},
	{
		.name = "json",
		.type = OPT_FLAG,
		.value = &as_json,
		.environment = "",
		.help = "print one JSON object a line",
	},
	{.name = NULL},
};

static const struct opt_program program = {
	.name = "outbox tail",
	.summary = "Follows what happens to jobs, until it is interrupted.",
	.usage = "[option ...]",
	.tables = {opts, program_link_opts},
};

struct tail {
	struct loop *loop;
	struct link *links[ENDPOINTS_MAX];
	size_t links_count;
	int64_t printed;
};

/* ---- one event */

static bool is_wanted(const struct opt_list *list, struct str text)
{
	for (size_t i = 0; i < list->count; i++)
		if (str_equal(text, str_of(list->items[i])))
			return true;
	return list->count == 0;
}

static void put_word(struct buf *line, const char *before, struct str word)
{
	if (word.s == NULL)
		return;
	buf_put_str(line, str_of(before));
	buf_put_str(line, word);
}

/* 2026-11-29T15:59:56.123456Z retrying email.welcome 4711/2 running -> retrying timeout 30012 ms w1 {…} */
static void put_line(struct buf *line, const struct frame_event *event)
{
	char at[28];

	clock_format_utc(event->at_us, at, sizeof(at));
	buf_printf(line, "%s ", at);
	buf_put_str(line, event->name);
	put_word(line, " ", event->kind);
	if (event->job_id != 0)
		buf_printf(line, " %" PRId64 "/%" PRId64, event->job_id, event->attempt);
	put_word(line, " ", event->from_state);
	put_word(line, event->from_state.s != NULL ? " -> " : " ", event->to_state);
	put_word(line, " ", event->code);
	if (event->attempt != 0)
		buf_printf(line, " %" PRId64 " ms", event->duration_ms);
	put_word(line, " ", event->worker);
	put_word(line, " ", event->detail);
}

/* What others have written must not play with the terminal. */
static void mask_controls(struct buf *line)
{
	for (size_t i = 0; i < line->len; i++)
		if ((unsigned char)line->data[i] < 0x20 || line->data[i] == 0x7f)
			line->data[i] = '?';
}

static void print(struct tail *tail, const struct frame_event *event, const void *frame,
	size_t length)
{
	struct buf line;

	buf_init(&line, MAX_LINE);
	if (as_json) {
		frame_json_put(&line, frame, length, NULL);
	} else {
		put_line(&line, event);
		mask_controls(&line);
	}
	buf_put_char(&line, '\n');
	fwrite(line.data, 1, line.len, stdout);
	buf_release(&line);
	tail->printed++;
}

static void on_frame(void *ctx, const struct link_peer *peer, const void *frame,
	size_t length, int64_t version, int64_t type)
{
	struct tail *tail = ctx;
	struct frame_event event;

	(void)peer;
	if (version != FRAME_VERSION || type != FRAME_EVENT ||
		frame_get_event(frame, length, &event, NULL) < 0)
		return;
	if (!is_wanted(&kinds, event.kind) || !is_wanted(&names, event.name) ||
		(most > 0 && tail->printed == most))
		return;
	print(tail, &event, frame, length);
	if (most > 0 && tail->printed == most)
		loop_stop(tail->loop);
}

/* A line is to be seen at once, and lines that come together leave together. */
static void flush(void *ctx)
{
	(void)ctx;
	fflush(stdout);
}

/* ---- wiring */

static int add_link(struct tail *tail, const char *given, const char *name,
	struct err *err)
{
	const struct link_options options = {
		.pattern = LINK_SUB,
		.on_frame = on_frame,
		.ctx = tail,
	};
	struct link *link;

	if (tail->links_count == ENDPOINTS_MAX)
		return err_set(err, ERR_USAGE, "more than %d endpoints", ENDPOINTS_MAX);
	link = program_open_link(tail->loop, &options, given, name, err);
	if (link == NULL)
		return -1;
	tail->links[tail->links_count++] = link;
	return 0;
}

static int open_all(struct tail *tail, struct err *err)
{
	tail->loop = loop_new(err);
	if (tail->loop == NULL ||
		program_handle_signals(tail->loop, NULL, NULL, tail, err) < 0)
		return -1;
	loop_on_turn(tail->loop, flush, tail);
	for (size_t i = 0; i < endpoints.count; i++)
		if (add_link(tail, endpoints.items[i], NULL, err) < 0)
			return -1;
	if (endpoints.count > 0)
		return 0;
	if (add_link(tail, NULL, "events-settle", err) < 0)
		return -1;
	return add_link(tail, NULL, "events-sweep", err);
}

static void close_all(struct tail *tail)
{
	for (size_t i = 0; i < tail->links_count; i++)
		link_free(tail->links[i]);
	loop_free(tail->loop);
	opt_list_release(&endpoints);
	opt_list_release(&kinds);
	opt_list_release(&names);
}

static int run(int argc, char **argv)
{
	struct tail tail = {0};
	struct err err = ERR_INIT;
	int code = 0;

	command_start_operands(&program, argc, argv, 0, 0);
	if (open_all(&tail, &err) < 0 || loop_run(tail.loop, &err) < 0)
		code = command_fail(&command_tail, &err);
	close_all(&tail);
	return code;
}

const struct command command_tail = {"tail", "follow what happens to jobs", run};
