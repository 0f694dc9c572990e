/*
 * Links: how frames travel. An endpoint is a ZeroMQ address, or "-" for stdin or stdout.
 *
 * Every link delivers whole frames, one callback a frame, in order. What a link was given
 * and could not pass on dies with the peer: delivery is guaranteed by the database only.
 * Options follow the measured table: LINGER 1000, RECONNECT_IVL 50 to 2000, HANDSHAKE_IVL
 * 2000, ROUTER_MANDATORY, ROUTER_HANDOVER, IMMEDIATE with PROBE_ROUTER, MAXMSGSIZE.
 *
 * ipc endpoints live in the runtime directory (runtime.h). tcp endpoints use CURVE with the
 * keys of `keys_dir` (curve.h), or plain when `insecure`; neither is ERR_CONFIG.
 *
 * Callbacks come from the loop only. They may send, pause and free, their own link too.
 */
#ifndef OUTBOX_LINK_H
#define OUTBOX_LINK_H

#include <stdbool.h>

#include "buf.h"
#include "err.h"
#include "loop.h"

enum link_pattern {
	LINK_ROUTER, /* binds; knows its peers by routing id */
	LINK_DEALER, /* connects to a ROUTER; says hello by an empty probe */
	LINK_PUB,    /* binds; drops when nobody listens */
	LINK_SUB,    /* connects; hears everything */
};

/* A peer of a ROUTER: its routing id; copy it to keep it. Other patterns, and "-", give NULL. */
struct link_peer {
	unsigned char id[255];
	size_t length;
};

struct link_options {
	enum link_pattern pattern;
	const char *endpoint; /* or "-": stdin or stdout, see `writes` */
	bool writes;          /* with "-": this link is stdout (PUB always is), else stdin */
	const char *
		routing_id; /* DEALER: fixed id (the incarnation), so a reconnect is the same peer */
	const char *keys_dir; /* CURVE keys: server.key, server.pub, client.key, client.pub */
	bool insecure;        /* plain tcp allowed */
	/* One whole frame, any version and type: the receiver counts and drops what it does not know. */
	void (*on_frame)(void *ctx, const struct link_peer *peer, const void *frame,
		size_t length, int64_t version, int64_t type);
	/* ROUTER: a peer (re)connected and sent its empty probe. PUB: somebody (NULL) listens now. */
	void (*on_peer)(void *ctx, const struct link_peer *peer);
	/* stdin: end of input (err NULL) or a broken stream; stdout: the reader went away. */
	void (*on_end)(void *ctx, const struct err *err);
	void *ctx;
};

struct link;

struct link *link_new(struct loop *loop, const struct link_options *options,
	struct err *err);
void link_free(struct link *link); /* unsent bytes get at most LINGER */

/*
 * Sends one message of whole frames. peer: for ROUTER only. 0: accepted. -1: ERR_TEMP, not
 * sent, try later (queue full, no connection yet); ERR_UNAVAILABLE: that peer is gone.
 * stdout: always accepted up to the buffer's maximum of 64 MiB; watch link_backlog.
 */
int link_send(struct link *link, const struct link_peer *peer, const struct buf *frames,
	struct err *err);

/* Bytes accepted for stdout and not yet written. A full output stops reading its input. */
size_t link_backlog(const struct link *link);

/* Stops and resumes reading. The frames of a ZeroMQ message that is being delivered still
 * come; stdin stops at once. */
void link_pause(struct link *link, bool paused);

bool link_is_stdio(const struct link *link);
bool link_is_stdio_endpoint(const char *endpoint); /* whether it is "-" */

/* Messages dropped, or streams ended, because they were malformed; for the log. */
int64_t link_bad_frames(const struct link *link);

/* Writes the four CURVE key files (mode 0600) into a directory that it makes (0700) or that
 * is empty of them; never overwrites. */
int link_generate_keys(const char *keys_dir, struct err *err);

#endif
