/*
 * The connection of a program that stays. Apart from program.h, so that a program without a
 * database does not load libpq.
 */
#ifndef OUTBOX_PROGRAM_DB_H
#define OUTBOX_PROGRAM_DB_H

#include "db.h"
#include "err.h"
#include "loop.h"

/*
 * As db_new, with the shared database options and under the program's name. options:
 * everything but those. Without an on_down a lost connection is logged (event `disconnected`,
 * at most every 5 seconds); without an on_fatal the program gives up (program_give_up).
 */
struct db *program_open_db(struct loop *loop, const struct db_options *options,
	struct err *err);

#endif
