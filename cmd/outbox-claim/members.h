/*
 * The claimer's dealings with its runners other than jobs: greeting, registering, beats,
 * cancels and goodbyes.
 */
#ifndef CLAIM_MEMBERS_H
#define CLAIM_MEMBERS_H

#include "claimer.h"

void members_init(struct claimer *claimer);

/* A runner connected, or must start over: a new epoch. */
void members_greet(struct claimer *claimer, const struct link_peer *address);

/* A frame of a runner, of this version. */
void members_take_frame(struct claimer *claimer, const struct link_peer *address,
	const void *frame, size_t length, int64_t type);

/* Somebody asked to stop a job that is in flight: find out whose it is. */
void members_want_cancels(struct claimer *claimer);

/* Registers the runners that wait for it, if the database is there. */
void members_register(struct claimer *claimer);

/* Whether a runner is finishing its work and still needs its beats recorded. Finds out which
 * runners have vanished without a goodbye. */
bool members_need_us(struct claimer *claimer);

#endif
