#include "results.h"

#include <stdlib.h>

#include "log.h"
#include "program.h"

#define MESSAGE_BYTES ((size_t)1 << 20) /* about so many in one message */
#define RETRY_US INT64_C(100000)        /* until a full queue is tried again */
#define FRAME_DROPPED_INTERVAL_MS 10000

static void on_timer(void *ctx)
{
	struct results *results = ctx;

	results->due = true;
	results->blocked = false;
}

/* ---- what the settler says ----------------------------------------------------------- */

void results_forget(struct results *results, struct job *job)
{
	job_list_remove(job->sent ? &results->sent : &results->unsent, job);
	results->bytes -= job->result.len;
	jobs_forget(results->jobs, job);
}

static void settled(struct results *results, const struct frame_ack_item *item)
{
	struct job *job = jobs_find(results->jobs, item->job_id, item->attempt);

	if (job == NULL || !job_has_ended(job)) /* a repeat */
		return;
	if (!item->accepted) {
		log_event(LOG_WARNING, "result_refused", LOG_INT("job", item->job_id),
			LOG_INT("attempt", item->attempt));
		/* What was refused is not this one, which waits to be sent, but an earlier result
		 * of the attempt, by a claim that a crash of the database has taken back. */
		if (!job->sent)
			return;
	}
	/* Accepted though it waits to be sent once more: the first copy arrived. */
	results_forget(results, job);
}

static void on_ack(struct results *results, const void *frame, size_t length)
{
	static struct frame_ack_item items[FRAME_MAX_ACKS];
	struct frame_ack ack;
	struct err err = ERR_INIT;

	if (frame_get_ack(frame, length, &ack, items, FRAME_MAX_ACKS, &err) != 0)
		log_error(LOG_WARNING, "frame_dropped", &err);
	else
		for (size_t i = 0; i < ack.count; i++)
			settled(results, &ack.items[i]);
}

static void on_greeting(struct results *results)
{
	for (struct job *job = results->sent.first; job != NULL; job = job->next)
		job->sent = false;
	log_event(LOG_INFO, "settler_greeted", LOG_INT("resent", results->sent.count));
	job_list_prepend_all(&results->unsent, &results->sent);
	results->greeted = true;
	results->blocked = false;
	results->due = true;
}

static void on_frame(void *ctx, const struct link_peer *peer, const void *frame,
	size_t length, int64_t version, int64_t type)
{
	static struct log_limit limit;
	struct results *results = ctx;

	(void)peer;
	if (version == FRAME_VERSION && type == FRAME_HELLO)
		on_greeting(results);
	else if (version == FRAME_VERSION && type == FRAME_ACK)
		on_ack(results, frame, length);
	else if (log_allow(&limit, FRAME_DROPPED_INTERVAL_MS) >= 0)
		log_event(LOG_WARNING, "frame_dropped", LOG_TEXT("link", "results"),
			LOG_INT("version", version), LOG_INT("type", type));
}

static void on_end(void *ctx, const struct err *err)
{
	struct results *results = ctx;

	if (err != NULL)
		results->on_broken(results->ctx, err);
}

/* ---- sending ------------------------------------------------------------------------- */

int results_open(struct results *results, const char *endpoint, struct err *err)
{
	const struct link_options options = {
		.pattern = LINK_DEALER,
		.routing_id = program_incarnation(),
		.writes = true,
		.on_frame = on_frame,
		.on_end = on_end,
		.ctx = results,
	};

	results_set_worker(results, str_of(program_incarnation()));
	results->timer.fn = on_timer;
	results->timer.ctx = results;
	results->link = program_open_link(results->loop, &options, endpoint, "results", err);
	if (results->link == NULL)
		return -1;
	results->greeted = link_is_stdio(results->link);
	return 0;
}

void results_close(struct results *results)
{
	loop_stop_timer(results->loop, &results->timer);
	link_free(results->link);
	results->link = NULL;
	free(results->worker);
	results->worker = NULL;
}

void results_set_worker(struct results *results, struct str worker)
{
	free(results->worker);
	results->worker = mem_strndup(worker.s, worker.n);
}

void results_add(struct results *results, struct job *job)
{
	job_drop_frame(job);
	job->sent = false;
	job_list_append(&results->unsent, job);
	results->bytes += job->result.len;
}

static bool is_pipe(const struct results *results)
{
	return link_is_stdio(results->link);
}

/* The first `count` unsent ones are with the link now. */
static void note_sent(struct results *results, size_t count)
{
	while (count-- > 0) {
		struct job *job = results->unsent.first;
		job_list_remove(&results->unsent, job);
		if (is_pipe(results)) {
			results->bytes -= job->result.len;
			jobs_forget(results->jobs, job);
		} else {
			job->sent = true;
			job_list_append(&results->sent, job);
		}
	}
}

/* One message. -1: the link takes nothing now. */
static int send_some(struct results *results, struct buf *message)
{
	size_t count = 0;

	buf_clear(message);
	for (struct job *job = results->unsent.first; job != NULL; job = job->next) {
		if (count > 0 && message->len + job->result.len > MESSAGE_BYTES)
			break;
		buf_put(message, job->result.data, job->result.len);
		count++;
	}
	if (link_send(results->link, NULL, message, NULL) != 0)
		return -1;
	note_sent(results, count);
	return 0;
}

static void send_all(struct results *results)
{
	struct buf message;

	buf_init(&message, FRAME_MAX_BYTES + MESSAGE_BYTES);
	results->due = false;
	loop_stop_timer(results->loop, &results->timer);
	while (results->unsent.count > 0) {
		if (send_some(results, &message) != 0) {
			results->blocked = true;
			loop_set_timer(results->loop, &results->timer, RETRY_US);
			break;
		}
	}
	buf_release(&message);
}

void results_turn(struct results *results, bool idle)
{
	if (results->unsent.count == 0 || !results->greeted || results->blocked)
		return;
	if (results->due || idle || results->unsent.count >= RESULTS_BATCH)
		send_all(results);
	else if (results->timer.at_us == 0)
		loop_set_timer(results->loop, &results->timer, RESULTS_LINGER_MS * 1000);
}

void results_put(struct results *results, const struct buf *frame)
{
	struct err err = ERR_INIT;

	if (link_send(results->link, NULL, frame, &err) != 0)
		log_error(LOG_DEBUG, "send_failed", &err);
}

size_t results_unsettled(const struct results *results)
{
	return results->unsent.count + results->sent.count;
}

size_t results_room(const struct results *results)
{
	size_t unsettled = results_unsettled(results);

	if (unsettled >= results->max_unsettled || results->bytes >= RESULTS_MAX_BYTES ||
		link_backlog(results->link) > RESULTS_MAX_BACKLOG)
		return 0;
	return results->max_unsettled - unsettled;
}

bool results_are_settled(const struct results *results)
{
	return results_unsettled(results) == 0 && link_backlog(results->link) == 0;
}
