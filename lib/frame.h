/*
 * Frames: what the programs say to each other.
 *
 * A frame is a msgpack array [version, type, fields…]. Fields are positional and only ever
 * appended: a reader ignores those that it does not know, and gives those that a shorter
 * frame lacks their absent value (0, null; -1 where that says "none"). A message or a stream
 * holds any number of frames in a row. Payloads and other documents travel as JSON text in a
 * msgpack str.
 *
 * Decoding is by a bounds-checked cursor without allocation: counts, sizes and depth are
 * checked first. Every str and array that a decoder returns is a view into the input and
 * dies with it. Encoders append to a buf; -1 means that the buf's maximum or a limit below
 * would be passed, and the buf is as it was before.
 *
 * This header is the protocol's definition; `outbox-frame decode` prints the names used here.
 */
#ifndef OUTBOX_FRAME_H
#define OUTBOX_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"

#define FRAME_VERSION 1
#define FRAME_MAX_BYTES ((size_t)16 << 20) /* one frame */
#define FRAME_MAX_DEPTH 8                  /* nesting of msgpack containers */

enum frame_type {
	FRAME_NUDGE = 1,
	FRAME_HELLO = 2,
	FRAME_CREDIT = 3,
	FRAME_JOB = 4,
	FRAME_CANCEL = 5,
	FRAME_RESULT = 6,
	FRAME_ACK = 7,
	FRAME_BEAT = 8,
	FRAME_EVENT = 9,
};

const char *frame_type_name(enum frame_type type); /* "nudge"; NULL when unknown */

/*
 * Finds the first frame in bytes[0 .. count). Returns 1 and its length in *length; 0 when
 * more bytes are needed; -1 (ERR_PROTOCOL) when the bytes can never become a frame: not an
 * array of at least two integers, too large, too deep. *type and *version are set with 1;
 * an unknown type or version is still skippable: callers count and drop it.
 */
int frame_next(const void *bytes, size_t count, size_t *length, int64_t *version,
	int64_t *type, struct err *err);

/*
 * "Work of this kind may be due." listen -> claim, and on the wire of NOTIFY only the kind.
 * An absent kind means: look everywhere (after a reconnect).
 */
struct frame_nudge {
	struct str kind;
};

/*
 * Who is there. A binding side (claim, settle) greets each peer that connects, with a fresh
 * epoch a greeting; a runner answers the claimer's greeting with its own hello carrying the
 * same epoch. Frames of another epoch are void. In a shell pipe the claimer writes one
 * hello first, naming the worker in `id`, and the runner passes it on.
 */
struct frame_hello_kind {
	struct str kind;
	int64_t version;     /* of the manifest; 0 without one */
	struct str lane;     /* "default" */
	int64_t timeout_ms;  /* of one attempt */
	struct str manifest; /* JSON object: the policy of outbox.kind; or absent */
};
struct frame_hello_claim { /* a claim of which the runner holds unsettled jobs */
	int64_t claim_id;
	int64_t received; /* so many of its jobs, from the front, reached the runner */
};
struct frame_hello {
	struct str role;   /* "claim", "run", "settle", "pipe" */
	struct str id;     /* incarnation: the worker's for run and pipe */
	int64_t epoch;     /* of this greeting */
	int64_t lease_ms;  /* claim, pipe: how long an unconfirmed beat lasts */
	int64_t db_now_us; /* claim, pipe: the database's clock, Unix microseconds */
	struct str host;
	int64_t pid;
	struct str program_version;
	struct str lane;
	int64_t slots;                        /* run: most attempts at once */
	const struct frame_hello_kind *kinds; /* run */
	size_t kinds_count;
	const struct frame_hello_claim *claims; /* run */
	size_t claims_count;
};

/*
 * How much a runner can take: absolute numbers, like a TCP window, so that a lost credit
 * heals with the next. The claimer may have sent jobs after last_seq: it subtracts those.
 */
struct frame_credit_kind {
	struct str kind;
	int64_t count; /* so many more of this kind after last_seq */
	int64_t held;  /* so many of it wait or run there now */
	bool apart;    /* it has a window of its own: the total does not count it */
};
struct frame_credit {
	int64_t epoch;
	int64_t last_seq; /* the last job frame that arrived in this epoch; 0: none */
	int64_t total;    /* so many more jobs in all after last_seq */
	const struct frame_credit_kind *kinds;
	size_t kinds_count;
};

/* One attempt handed to one worker. */
struct frame_job {
	int64_t epoch; /* 0 in a pipe */
	int64_t seq;   /* 1, 2, … within the epoch */
	int64_t claim_id;
	int64_t claim_index;   /* position in the claim's arrays, from 1 */
	int64_t claim_size;    /* number of jobs in the claim */
	int64_t claimed_at_us; /* database clock, Unix microseconds */
	struct str found;      /* "nudge", "poll", "sweep": how it was found */
	int64_t job_id;
	int64_t attempt; /* from 1 */
	struct str kind;
	struct str payload; /* JSON text, byte for byte as enqueued */
	int64_t max_attempts;
	struct str idempotency_key; /* the same on every attempt */
	struct str tenant_key;
	struct str subject_key;
	struct str correlation_id;
	struct str traceparent;
	struct str metadata; /* JSON text, or absent */
	int64_t created_at_us;
	struct str trigger; /* "automatic" or "manual" */
	struct str reason;  /* of the replay or resend, or absent */
	int64_t version;    /* the least handler version that may run it; 0: any */
	struct str
		issues; /* JSON: what its kind's schema says against the payload; absent: fine */
};

/*
 * listen -> claim: somebody asked to cancel; look into outbox.cancel (job_id only).
 * claim -> run: stop this attempt if it is here.
 */
struct frame_cancel {
	int64_t epoch;
	int64_t job_id;
	int64_t attempt;
	struct str cancelled_by;
	struct str reason;
};

/* How an attempt ended. run -> settle. */
struct frame_result {
	struct str worker;
	int64_t claim_id;
	int64_t claim_index;
	int64_t claim_size;
	int64_t job_id;
	int64_t attempt;
	struct str kind;
	struct str outcome;  /* "ok", "retry", "fail", "cancel", "lost", "release" */
	struct str code;     /* short word: exit_3, timeout, claim_late; absent for ok */
	struct str error;    /* text, clipped and redacted */
	struct str response; /* text; JSON if response_is_json */
	bool response_is_json;
	int64_t after_ms;      /* wish of the handler; -1: none */
	struct str reason;     /* of a cancel */
	int64_t started_at_us; /* database clock, Unix microseconds; 0: never started */
	int64_t duration_ms;
	int64_t exit_status; /* -1: none */
	int64_t signal;      /* 0: none */
	struct str found;
	struct str commit;     /* JSON array [{"name":…,"args":[…]}], or absent */
	struct str enqueue;    /* JSON array of jobs, or absent */
	int64_t dropped_bytes; /* output past the limits */
};

/* settle -> run: committed, or known to be over: the runner may forget these attempts. */
struct frame_ack_item {
	int64_t job_id;
	int64_t attempt;
	bool accepted; /* false: the attempt was over already */
};
struct frame_ack {
	const struct frame_ack_item *items;
	size_t count;
};

/*
 * run -> claim: alive, `count` rises by one each. claim -> run: the beat `count` is
 * recorded in the database, whose clock said db_now_us.
 * listen -> claim: alive and hearing (id = incarnation of the listener).
 */
enum frame_beat_state {
	FRAME_BEAT_ALIVE = 0,
	FRAME_BEAT_DRAINING = 1, /* run: takes no more jobs */
	FRAME_BEAT_GONE = 2, /* run -> claim, run -> settle: nothing is left here, goodbye */
	FRAME_BEAT_UNKNOWN = 3, /* claim -> run: you are not registered (any more) */
};
struct frame_beat {
	struct str id;
	int64_t count;
	enum frame_beat_state state;
	int64_t db_now_us;
};

/* One transition, for `outbox tail`. settle, sweep -> anyone. */
struct frame_event {
	int64_t at_us;   /* database clock */
	struct str name; /* "succeeded", "retrying", "dead", "cancelled", "lost", … */
	int64_t job_id;
	int64_t attempt;
	struct str kind;
	struct str from_state;
	struct str to_state;
	struct str code;
	int64_t duration_ms;
	struct str worker;
	struct str detail; /* JSON object or absent */
};

int frame_put_nudge(struct buf *out, const struct frame_nudge *nudge);
int frame_put_hello(struct buf *out, const struct frame_hello *hello);
int frame_put_credit(struct buf *out, const struct frame_credit *credit);
int frame_put_job(struct buf *out, const struct frame_job *job);
int frame_put_cancel(struct buf *out, const struct frame_cancel *cancel);
int frame_put_result(struct buf *out, const struct frame_result *result);
int frame_put_ack(struct buf *out, const struct frame_ack *ack);
int frame_put_beat(struct buf *out, const struct frame_beat *beat);
int frame_put_event(struct buf *out, const struct frame_event *event);

/*
 * Decoders take exactly one frame (see frame_next) of their type and fill the struct.
 * ERR_PROTOCOL names the field that is wrong. Lists go into the caller's `items` (at most
 * `capacity`; more is an error), because decoding does not allocate.
 */
int frame_get_nudge(const void *bytes, size_t count, struct frame_nudge *nudge,
	struct err *err);
int frame_get_hello(const void *bytes, size_t count, struct frame_hello *hello,
	struct frame_hello_kind *kinds, size_t kinds_capacity,
	struct frame_hello_claim *claims, size_t claims_capacity, struct err *err);
int frame_get_credit(const void *bytes, size_t count, struct frame_credit *credit,
	struct frame_credit_kind *kinds, size_t kinds_capacity, struct err *err);
int frame_get_job(const void *bytes, size_t count, struct frame_job *job,
	struct err *err);
int frame_get_cancel(const void *bytes, size_t count, struct frame_cancel *cancel,
	struct err *err);
int frame_get_result(const void *bytes, size_t count, struct frame_result *result,
	struct err *err);
int frame_get_ack(const void *bytes, size_t count, struct frame_ack *ack,
	struct frame_ack_item *items, size_t capacity, struct err *err);
int frame_get_beat(const void *bytes, size_t count, struct frame_beat *beat,
	struct err *err);
int frame_get_event(const void *bytes, size_t count, struct frame_event *event,
	struct err *err);

#define FRAME_MAX_KINDS 1000   /* kinds in one hello or credit */
#define FRAME_MAX_CLAIMS 10000 /* claims in one hello */
#define FRAME_MAX_ACKS 10000   /* items in one ack */

#endif
