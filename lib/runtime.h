/*
 * The runtime directory, where the default ipc sockets live: $OUTBOX_RUNTIME_DIR, else
 * $XDG_RUNTIME_DIR/outbox, else /run/outbox. Made with mode 0700; refused when it belongs
 * to somebody else, is a link, or is open to group or others.
 */
#ifndef OUTBOX_RUNTIME_H
#define OUTBOX_RUNTIME_H

#include "err.h"

/* "ipc://DIR/NAME", allocated; makes nothing. ERR_CONFIG when longer than an ipc path may
 * be (107 bytes). */
char *runtime_endpoint(const char *name, struct err *err);

/*
 * Guards an ipc endpoint against a second binder, which ZeroMQ would let steal the path
 * silently: makes the runtime directory where the endpoint lies in it, and takes a lock on
 * PATH.lock for the life of the process. Other endpoints: nothing. Returns the lock's
 * descriptor (close-on-exec), -2 when none is needed, -1 with ERR_TEMP naming the holder's pid.
 */
int runtime_guard(const char *endpoint, struct err *err);

#endif
