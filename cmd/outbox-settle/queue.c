#include "queue.h"

#include <stdlib.h>
#include <string.h>

void queue_init(struct queue *queue)
{
	*queue = (struct queue){.head = NULL};
	queue->tail = &queue->head;
}

void queue_release(struct queue *queue)
{
	struct entry *entry;

	while ((entry = queue_take(queue)) != NULL)
		entry_free(entry);
}

struct entry *entry_new(const void *frame, size_t length, struct peer *peer,
	struct err *err)
{
	struct entry *entry = mem_alloc(1, sizeof(*entry) + length);

	memcpy(entry->frame, frame, length);
	entry->length = length;
	if (frame_get_result(entry->frame, length, &entry->result, err) < 0) {
		free(entry);
		return NULL;
	}
	entry->peer = peer;
	if (peer != NULL)
		peer->waiting++;
	return entry;
}

void entry_free(struct entry *entry)
{
	if (entry->peer != NULL)
		entry->peer->waiting--;
	free(entry->failure);
	free(entry);
}

bool entry_has_effects(const struct entry *entry)
{
	return entry->result.commit.s != NULL || entry->result.enqueue.s != NULL;
}

void queue_put(struct queue *queue, struct entry *entry)
{
	entry->next = NULL;
	*queue->tail = entry;
	queue->tail = &entry->next;
	queue->count++;
	queue->bytes += entry->length;
}

struct entry *queue_take(struct queue *queue)
{
	struct entry *entry = queue->head;

	if (entry == NULL)
		return NULL;
	queue->head = entry->next;
	if (queue->head == NULL)
		queue->tail = &queue->head;
	queue->count--;
	queue->bytes -= entry->length;
	entry->next = NULL;
	return entry;
}
