#include "unstarted.h"

#include "log.h"
#include "report.h"

static void end(struct results *results, struct job *job,
	const struct report_unstarted *report)
{
	report_unstarted(job, str_of(results->worker), report);
	results_add(results, job);
}

void unstarted_hand_back(struct results *results, struct job *job, const char *code,
	int64_t after_ms)
{
	const struct report_unstarted released = {
		.outcome = OUTCOME_RELEASE,
		.code = code,
		.after_ms = after_ms,
	};

	log_event(LOG_INFO, "job_handed_back", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_STR("kind", job->frame.kind),
		LOG_TEXT("code", code));
	end(results, job, &released);
}

void unstarted_cancel(struct results *results, struct job *job, struct str reason)
{
	const struct report_unstarted cancelled = {
		.outcome = OUTCOME_CANCEL,
		.code = "cancelled",
		.reason = reason,
		.after_ms = -1,
	};

	log_event(LOG_INFO, "job_cancelled", LOG_INT("job", job->id),
		LOG_INT("attempt", job->attempt), LOG_STR("kind", job->frame.kind));
	end(results, job, &cancelled);
}

void unstarted_fail(struct results *results, struct job *job, const char *code,
	struct str error)
{
	const struct report_unstarted failed = {
		.outcome = OUTCOME_RETRY,
		.code = code,
		.error = error,
		.after_ms = -1,
	};

	end(results, job, &failed);
}
