/* One version for all programs, and the range of schema versions that they speak. */
#ifndef OUTBOX_VERSION_H
#define OUTBOX_VERSION_H

#define OUTBOX_VERSION "0.1.0"
#define OUTBOX_SCHEMA_MIN 1
#define OUTBOX_SCHEMA_MAX 1

#endif
