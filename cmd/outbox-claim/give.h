/*
 * What was claimed (the result of send_claim) goes to its runner, or back to where it was owed.
 */
#ifndef CLAIM_GIVE_H
#define CLAIM_GIVE_H

#include "claimer.h"

void give_jobs(struct claimer *claimer, struct runner *runner, const PGresult *result);
void give_back(struct claimer *claimer, const PGresult *result);

#endif
