/*
 * Where claims start to look.
 *
 * While somebody holds an old snapshot, index entries of claimed jobs cannot be removed, and
 * every look from the head of a kind walks over all of them. When claims have become several
 * times dearer than usual, they start shortly before where the last one ended. What commits
 * late behind that point is found by looking from the head now and then: every second, or so
 * rarely that it takes at most a twentieth of the time.
 */
#ifndef CLAIM_SCAN_H
#define CLAIM_SCAN_H

#include <stdbool.h>
#include <stdint.h>

struct scan {
	bool is_costly;     /* start at the positions */
	bool is_from_head;  /* the look that is under way */
	int64_t started_us; /* of that look, monotonic */
	double usual_us;    /* cost of a job, see scan_end; 0: not known yet */
	int64_t head_at_us; /* when the next one is due, monotonic */
};

/* Begins a look; says whether it starts from the head. */
bool scan_begin(struct scan *scan, int64_t now_us);

/* Ends it, having brought `jobs`. */
void scan_end(struct scan *scan, int64_t now_us, int64_t jobs);

/* How long to wait at most before the next look, in microseconds; INT64_MAX: any time. */
int64_t scan_wait_us(const struct scan *scan, int64_t now_us);

#endif
