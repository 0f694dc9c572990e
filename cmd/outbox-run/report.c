#include "report.h"

#include <inttypes.h>
#include <stdio.h>

#include "excerpt.h"
#include "json.h"
#include "text.h"

#define USUAL_BYTES 192    /* of a result: one allocation is enough for most */
#define NAME_MAX_BYTES 300 /* kinds, workers: longer than any that is legal */

/* A forged frame may say anything at any length; its result must fit a frame again. */
static struct str short_text(struct str text)
{
	if (text.s != NULL)
		text.n = text_clip(text.s, text.n, NAME_MAX_BYTES);
	return text;
}

/* What the job's own frame says. */
static struct frame_result result_of(const struct job *job, struct str worker)
{
	return (struct frame_result){
		.worker = short_text(worker),
		.claim_id = job->claim_id,
		.claim_index = job->claim_index,
		.claim_size = job->frame.claim_size,
		.job_id = job->id,
		.attempt = job->attempt,
		.kind = short_text(job->frame.kind),
		.found = short_text(job->frame.found),
		.after_ms = -1,
		.exit_status = -1,
	};
}

void report_unstarted(struct job *job, struct str worker,
	const struct report_unstarted *report)
{
	struct frame_result result = result_of(job, worker);

	result.outcome = str_of(outcome_name(report->outcome));
	result.code = str_of(report->code);
	result.error = report->error;
	result.reason = report->reason;
	result.after_ms = report->after_ms;
	frame_put_result(&job->result, &result);
}

/* ---- texts --------------------------------------------------------------------------- */

static struct str view(const struct buf *text)
{
	return text->len == 0 ? STR_NULL : (struct str){text->data, text->len};
}

/* What is known of an error, each NULL if there is none. */
struct complaint {
	const char *ours;              /* what the runner has to say */
	const char *said;              /* what the handler's document says */
	const struct capture *written; /* what the handler has written to stderr */
	struct excerpt (*excerpt)(int64_t max_bytes); /* of that */
};

/* The error is the document's or what we have to say, else the end of stderr; both, where we
 * are the ones who say something. Returns how much of it was cut out. */
static int64_t put_error(struct buf *error, const struct handler *handler,
	const struct complaint *complaint)
{
	const struct excerpt message = excerpt_of_message((int64_t)error->max);

	if (complaint->ours == NULL && complaint->said != NULL)
		return excerpt_put_text(error, str_of(complaint->said), &message, handler);
	/* may quote the handler */
	excerpt_put_text(error, str_of(complaint->ours), &message, handler);
	if (complaint->written == NULL || complaint->written->total == 0)
		return 0;
	if (error->len > 0)
		buf_put_char(error, '\n');
	const struct excerpt rest = complaint->excerpt((int64_t)(error->max - error->len));
	return excerpt_put_capture(error, complaint->written, &rest, handler);
}

/* ---- the outcome --------------------------------------------------------------------- */

struct verdict {
	enum outcome outcome;
	char *code;      /* OUTCOME_MAX_CODE + 1 bytes */
	char error[600]; /* what the runner has to say, or empty */
};

static void set_verdict(struct verdict *verdict, enum outcome outcome, const char *code)
{
	verdict->outcome = outcome;
	snprintf(verdict->code, OUTCOME_MAX_CODE + 1, "%s", code);
}

/* Returns the document, or NULL when there is none or it is unusable. */
static const struct outcome_document *read_document(const struct attempt *attempt,
	struct outcome_document *document, struct err *err)
{
	const struct capture *result = &attempt->result;
	int64_t dropped = capture_dropped(result);

	*document = (struct outcome_document){.after_ms = -1};
	if (result->total == 0)
		return NULL;
	if (dropped > 0)
		err_set(err, ERR_DATA, "the outcome document has more than %zu bytes",
			OUTCOME_MAX_DOCUMENT);
	else if (outcome_document_parse(result->head.data, result->head.len, document, err) ==
		0)
		return document;
	return NULL;
}

static void conclude(const struct attempt *attempt,
	const struct outcome_document *document, const struct err *document_err,
	struct verdict *verdict)
{
	verdict->outcome = outcome_conclude(attempt->exit_status, attempt->signal_number,
		&attempt->handler->exits, document, verdict->code);
	if (document_err->class != ERR_NONE && attempt->signal_number == 0) {
		set_verdict(verdict, OUTCOME_RETRY, "bad_outcome");
		snprintf(verdict->error, sizeof(verdict->error), "%s", document_err->text);
	}
}

/* Being told to stop outweighs what the handler then says, except that an ok stands: the
 * effect has happened. Too late is too late, though. */
static void apply_stop(const struct attempt *attempt, struct verdict *verdict)
{
	if (attempt->stop == ATTEMPT_TIMEOUT) {
		set_verdict(verdict, OUTCOME_RETRY, "timeout");
		snprintf(verdict->error, sizeof(verdict->error), "ran longer than %" PRId64 " ms",
			attempt->handler->timeout_ms);
		return;
	}
	if (verdict->outcome == OUTCOME_OK)
		return;
	if (attempt->stop == ATTEMPT_CANCELLED)
		set_verdict(verdict, OUTCOME_CANCEL, "cancelled");
	else if (attempt->stop == ATTEMPT_INTERRUPTED)
		set_verdict(verdict, OUTCOME_RELEASE, "interrupted");
	else if (attempt->stop == ATTEMPT_LEASE_LOST)
		set_verdict(verdict, OUTCOME_RELEASE, "lease_lost");
}

/* Texts that leave the runner. */
struct texts {
	struct buf response, error, reason;
	int64_t dropped_bytes;
};

static void texts_init(struct texts *texts, const struct attempt *attempt,
	const struct outcome_document *document, const struct verdict *verdict)
{
	const struct attempt_options *options = attempt->options;
	const struct excerpt response = excerpt_of_response(options->max_response_bytes);
	const struct excerpt reason = excerpt_of_message(options->max_error_bytes);
	const struct handler *handler = attempt->handler;
	const struct complaint complaint = {
		.ours = verdict->error[0] != '\0' ? verdict->error : NULL,
		.said = document != NULL ? document->error : NULL,
		.written = &attempt->error,
		.excerpt = excerpt_of_error,
	};

	buf_init(&texts->response, (size_t)options->max_response_bytes);
	buf_init(&texts->error, (size_t)options->max_error_bytes);
	buf_init(&texts->reason, (size_t)options->max_error_bytes);
	texts->dropped_bytes = excerpt_put_capture(&texts->response, &attempt->out, &response,
		handler);
	if (verdict->outcome != OUTCOME_OK)
		texts->dropped_bytes += put_error(&texts->error, handler, &complaint);
	if (document != NULL && document->reason != NULL)
		excerpt_put_text(&texts->reason, str_of(document->reason), &reason, handler);
}

static void texts_release(struct texts *texts)
{
	buf_release(&texts->response);
	buf_release(&texts->error);
	buf_release(&texts->reason);
}

static void put_result(struct attempt *attempt, struct str worker,
	const struct verdict *verdict, const struct outcome_document *document)
{
	struct frame_result result = result_of(attempt->job, worker);
	struct texts texts;

	texts_init(&texts, attempt, document, verdict);
	result.outcome = str_of(outcome_name(verdict->outcome));
	result.code = verdict->code[0] != '\0' ? str_of(verdict->code) : STR_NULL;
	result.response = view(&texts.response);
	result.response_is_json = json_is_valid(texts.response.data, texts.response.len,
		JSON_MAX_DEPTH);
	result.error = view(&texts.error);
	result.reason = view(&texts.reason);
	result.started_at_us = attempt->started_at_us;
	result.duration_ms = attempt->duration_us / 1000;
	result.exit_status = attempt->exit_status;
	result.signal = attempt->signal_number;
	result.dropped_bytes = texts.dropped_bytes;
	if (document != NULL)
		result.after_ms = document->after_ms;
	if (document != NULL && verdict->outcome == OUTCOME_OK) {
		result.commit = str_of(document->commit);
		result.enqueue = str_of(document->enqueue);
	}
	if (attempt->stop == ATTEMPT_CANCELLED)
		result.reason = str_of(attempt->cancel_reason);
	frame_put_result(&attempt->job->result, &result);
	texts_release(&texts);
}

enum outcome report_ended(struct attempt *attempt, struct str worker,
	char code[OUTCOME_MAX_CODE + 1])
{
	struct outcome_document storage;
	struct err document_err = ERR_INIT;
	struct verdict verdict = {.code = code};

	const struct outcome_document *document = read_document(attempt, &storage,
		&document_err);
	conclude(attempt, document, &document_err, &verdict);
	apply_stop(attempt, &verdict);
	put_result(attempt, worker, &verdict, document);
	outcome_document_release(&storage);
	return verdict.outcome;
}

/* ---- resident handlers --------------------------------------------------------------- */

/* As it is, if it may be; then nothing is copied. */
static void put_response(struct frame_result *result, struct buf *text,
	const struct report_answered *report)
{
	const struct excerpt excerpt = excerpt_of_response(report->max_response_bytes);
	struct str response = report->answer->response;

	if (response.n > (size_t)report->max_response_bytes ||
		(response.s != NULL && handler_redacts(report->handler))) {
		result->dropped_bytes = excerpt_put_text(text, response, &excerpt,
			report->handler);
		response = view(text);
	}
	result->response = response;
	result->response_is_json = response.s != NULL &&
		(text->len == 0 || json_is_valid(text->data, text->len, JSON_MAX_DEPTH));
}

static void put_answer(struct frame_result *result, struct texts *texts,
	const struct report_answered *report)
{
	const struct outcome_document *document = &report->answer->document;
	const struct excerpt reason = excerpt_of_message(report->max_error_bytes);

	put_response(result, &texts->response, report);
	if (document->reason != NULL)
		excerpt_put_text(&texts->reason, str_of(document->reason), &reason,
			report->handler);
	result->reason = view(&texts->reason);
	result->after_ms = document->after_ms;
	result->commit = str_of(document->commit);
	result->enqueue = str_of(document->enqueue);
}

void report_answered(struct job *job, struct str worker,
	const struct report_answered *report)
{
	struct frame_result result = result_of(job, worker);
	struct texts texts;
	const struct complaint complaint = {
		.ours = report->error,
		.said = report->answer != NULL ? report->answer->document.error : NULL,
		.written = report->tail,
		.excerpt = excerpt_of_tail,
	};

	buf_init(&texts.response, (size_t)report->max_response_bytes);
	buf_init(&texts.error, (size_t)report->max_error_bytes);
	buf_init(&texts.reason, (size_t)report->max_error_bytes);
	result.outcome = str_of(outcome_name(report->outcome));
	result.code = report->code[0] != '\0' ? str_of(report->code) : STR_NULL;
	result.started_at_us = report->started_at_us;
	result.duration_ms = report->duration_us / 1000;
	result.exit_status = report->exit_status;
	result.signal = report->signal_number;
	if (report->answer != NULL)
		put_answer(&result, &texts, report);
	if (report->outcome != OUTCOME_OK)
		result.dropped_bytes += put_error(&texts.error, report->handler, &complaint);
	result.error = view(&texts.error);
	buf_reserve(&job->result, USUAL_BYTES);
	frame_put_result(&job->result, &result);
	texts_release(&texts);
}
