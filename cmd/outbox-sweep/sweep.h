/* What the parts of outbox-sweep share. */
#ifndef OUTBOX_SWEEP_H
#define OUTBOX_SWEEP_H

#include "err.h"

/* A failed statement, which the next pass repeats; one line every 5 seconds. */
void sweep_log_failure(const char *event, const struct err *err);

#endif
