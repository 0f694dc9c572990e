/*
 * How many jobs end in a moment: so many are worth having ahead, so that the next ones are
 * there while the claimer looks for more, and none waits long that another runner could run.
 */
#ifndef OUTBOX_RUN_PACE_H
#define OUTBOX_RUN_PACE_H

#include <stddef.h>
#include <stdint.h>

struct pace {
	size_t ahead; /* that many */
	size_t ended; /* since … */
	int64_t measured_us;
};

void pace_init(struct pace *pace);
void pace_note_end(struct pace *pace); /* of an attempt */
void pace_turn(struct pace *pace);     /* once a turn */

#endif
