/*
 * The runners that are connected to this claimer: who they are, what they can run, and how
 * much more of it they can take.
 */
#ifndef CLAIM_RUNNERS_H
#define CLAIM_RUNNERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "frame.h"
#include "link.h"

struct runner_kind {
	char *name;
	int64_t version;
	int64_t credit; /* so many more of it after the runner's last_seq */
	int64_t held;   /* so many of it were there at last_seq */
	int64_t sent;   /* so many of it were sent after last_seq */
	bool apart;     /* it has room of its own, not part of the total */
	uint64_t
		passed; /* the round (wanted.h) in which it found too little for its version */
};

enum runner_state {
	RUNNER_GREETED,  /* told the epoch; its hello is awaited */
	RUNNER_ANSWERED, /* its hello is here; registering it is to be done or under way */
	RUNNER_READY,    /* registered: may be given jobs */
};

struct runner {
	struct link_peer address;
	char *worker; /* its incarnation; NULL until its hello */
	int64_t epoch;
	enum runner_state state;
	struct buf hello; /* the frame, until it is registered */
	bool registering; /* the statement is under way */
	int64_t slots;    /* most attempts at once, of kinds that are not apart */
	struct runner_kind *kinds;
	size_t kinds_count;
	int64_t last_seq; /* the last job frame that it has, as it says */
	int64_t sent_seq; /* the last one sent */
	int64_t total;    /* so many more jobs after last_seq of the kinds that share it */
	int64_t beat;     /* the newest that it sent */
	bool beat_is_new; /* and that is not recorded yet */
	int64_t heard_us; /* when the last frame came, monotonic */
	bool draining;
	bool gone;       /* said goodbye, or cannot be reached */
	uint64_t served; /* when it was last given jobs: a count of claims */
	/* the kinds (indexes) of the jobs last_seq + 1 … sent_seq, oldest first */
	size_t *in_transit;
	size_t in_transit_capacity; /* a power of two, or 0 */
	struct runner *next;
};

struct runners {
	struct runner *first;
};

struct runner *runners_find(struct runners *runners, const struct link_peer *address);
struct runner *runners_find_worker(struct runners *runners, struct str worker);
struct runner *runners_add(struct runners *runners, const struct link_peer *address);

/* Forgets the runners that are gone, except `busy`. */
void runners_prune(struct runners *runners, const struct runner *busy);
void runners_release(struct runners *runners);

/* A new greeting: everything of the old epoch is void. */
void runner_regreet(struct runner *runner, int64_t epoch);

/* Keeps the hello's frame and takes its kinds of this lane. False: of another epoch. */
bool runner_answer(struct runner *runner, const struct frame_hello *hello,
	const void *frame, size_t length, const char *lane);

/* False: of another epoch, ignored. */
bool runner_take_credit(struct runner *runner, const struct frame_credit *credit);

/* How many more jobs it can take: of the kinds that share its room, or of all those that have
 * room of their own; and of one kind. Never negative. */
int64_t runner_room(const struct runner *runner, bool apart);
int64_t runner_kind_room(const struct runner *runner, size_t kind);

/* Whether a runner has room apart for this kind. */
bool runners_have_apart(const struct runners *runners, struct str kind);

/* Slots that no job occupies or waits for; one runner may ask for more jobs than that. */
int64_t runner_free_slots(const struct runner *runner);

/* How many of a kind are there or on their way. */
int64_t runners_in_flight(const struct runners *runners, struct str kind);

/* Index of the kind, or -1. */
int64_t runner_find_kind(const struct runner *runner, struct str kind);

/* A job of this kind was given the next seq. */
void runner_note_sent(struct runner *runner, size_t kind);

#endif
