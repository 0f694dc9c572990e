/*
 * The other end of a runner, for tests: binds a ROUTER at ENDPOINT, writes the frames that
 * come to stdout and sends those on stdin to the peer that spoke last. A peer that connects
 * is announced by a nudge frame of the kind "connected". Ends with its input.
 *
 * usage: router ENDPOINT
 */
#include <stdio.h>

#include "buf.h"
#include "err.h"
#include "frame.h"
#include "link.h"
#include "loop.h"
#include "program.h"

struct router {
	struct loop *loop;
	struct link *socket;
	struct link *input;
	struct link *output;
	struct link_peer peer;
};

static void copy(struct link *to, const struct link_peer *peer, const void *frame,
	size_t length)
{
	struct buf copied;
	struct err err = ERR_INIT;

	buf_init(&copied, FRAME_MAX_BYTES);
	buf_put(&copied, frame, length);
	if (link_send(to, peer, &copied, &err) != 0)
		fprintf(stderr, "router: %s\n", err.text);
	buf_release(&copied);
}

static void on_peer(void *ctx, const struct link_peer *peer)
{
	struct router *router = ctx;
	const struct frame_nudge nudge = {.kind = STR("connected")};
	struct buf frame;

	router->peer = *peer;
	buf_init(&frame, FRAME_MAX_BYTES);
	frame_put_nudge(&frame, &nudge);
	link_send(router->output, NULL, &frame, NULL);
	buf_release(&frame);
}

static void on_socket_frame(void *ctx, const struct link_peer *peer, const void *frame,
	size_t length, int64_t version, int64_t type)
{
	struct router *router = ctx;

	(void)version;
	(void)type;
	router->peer = *peer;
	copy(router->output, NULL, frame, length);
}

static void on_input_frame(void *ctx, const struct link_peer *peer, const void *frame,
	size_t length, int64_t version, int64_t type)
{
	struct router *router = ctx;

	(void)peer;
	(void)version;
	(void)type;
	copy(router->socket, &router->peer, frame, length);
}

static void on_end(void *ctx, const struct err *err)
{
	struct router *router = ctx;

	(void)err;
	loop_stop(router->loop);
}

int main(int argc, char **argv)
{
	struct err err = ERR_INIT;
	struct router router = {.loop = loop_new(&err)};

	if (argc != 2 || router.loop == NULL) {
		fprintf(stderr, "usage: router ENDPOINT\n");
		return 64;
	}
	const struct link_options socket = {.pattern = LINK_ROUTER,
		.endpoint = argv[1],
		.on_frame = on_socket_frame,
		.on_peer = on_peer,
		.ctx = &router};
	const struct link_options input = {.pattern = LINK_DEALER,
		.endpoint = "-",
		.on_frame = on_input_frame,
		.on_end = on_end,
		.ctx = &router};
	const struct link_options output = {.pattern = LINK_DEALER,
		.endpoint = "-",
		.writes = true,
		.on_end = on_end,
		.ctx = &router};
	router.output = link_new(router.loop, &output, &err);
	router.input = link_new(router.loop, &input, &err);
	router.socket = link_new(router.loop, &socket, &err);
	if (router.output == NULL || router.input == NULL || router.socket == NULL ||
		loop_run(router.loop, &err) != 0)
		return program_fail(&err);
	link_free(router.socket);
	link_free(router.input);
	link_free(router.output);
	loop_free(router.loop);
	return 0;
}
