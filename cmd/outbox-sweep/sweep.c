#include "sweep.h"

#include "log.h"

void sweep_log_failure(const char *event, const struct err *err)
{
	static struct log_limit limit;

	if (log_allow(&limit, 5000) >= 0)
		log_error(err_is_temporary(err) ? LOG_WARNING : LOG_ERROR, event, err);
}
