#include "program_db.h"

#include "log.h"
#include "program.h"

#define DISCONNECTED_INTERVAL_MS 5000

static void on_down(void *ctx, const struct err *err)
{
	static struct log_limit limit;

	(void)ctx;
	if (log_allow(&limit, DISCONNECTED_INTERVAL_MS) >= 0)
		log_error(err_is_temporary(err) ? LOG_WARNING : LOG_ERROR, "disconnected", err);
}

static void on_fatal(void *ctx, const struct err *err)
{
	(void)ctx;
	program_give_up(err);
}

struct db *program_open_db(struct loop *loop, const struct db_options *options,
	struct err *err)
{
	struct db_options complete = *options;

	complete.conninfo = program_db_options.conninfo;
	complete.program = program_name();
	complete.pooled = options->pooled || program_db_options.pooled;
	if (complete.on_down == NULL)
		complete.on_down = on_down;
	if (complete.on_fatal == NULL)
		complete.on_fatal = on_fatal;
	return db_new(loop, &complete, err);
}
