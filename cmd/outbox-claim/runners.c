#include "runners.h"

#include <stdlib.h>
#include <string.h>

struct runner *runners_find(struct runners *runners, const struct link_peer *address)
{
	struct runner *runner = runners->first;

	while (runner != NULL &&
		(runner->address.length != address->length ||
			memcmp(runner->address.id, address->id, address->length) != 0))
		runner = runner->next;
	return runner;
}

struct runner *runners_find_worker(struct runners *runners, struct str worker)
{
	struct runner *runner = runners->first;

	while (runner != NULL && !str_equal(str_of(runner->worker), worker))
		runner = runner->next;
	return runner;
}

struct runner *runners_add(struct runners *runners, const struct link_peer *address)
{
	struct runner *runner = mem_alloc(1, sizeof(*runner));

	runner->address = *address;
	buf_init(&runner->hello, FRAME_MAX_BYTES);
	runner->next = runners->first;
	runners->first = runner;
	return runner;
}

static void free_kinds(struct runner *runner)
{
	for (size_t i = 0; i < runner->kinds_count; i++)
		free(runner->kinds[i].name);
	free(runner->kinds);
	runner->kinds = NULL;
	runner->kinds_count = 0;
}

static void runner_free(struct runner *runner)
{
	free_kinds(runner);
	buf_release(&runner->hello);
	free(runner->in_transit);
	free(runner->worker);
	free(runner);
}

void runners_prune(struct runners *runners, const struct runner *busy)
{
	struct runner **link = &runners->first;
	struct runner *runner;

	while ((runner = *link) != NULL) {
		if (runner == busy || !runner->gone) {
			link = &runner->next;
		} else {
			*link = runner->next;
			runner_free(runner);
		}
	}
}

void runners_release(struct runners *runners)
{
	for (struct runner *runner = runners->first; runner != NULL; runner = runner->next)
		runner->gone = true;
	runners_prune(runners, NULL);
}

void runner_regreet(struct runner *runner, int64_t epoch)
{
	runner->epoch = epoch;
	runner->state = RUNNER_GREETED;
	runner->last_seq = 0;
	runner->sent_seq = 0;
	runner->total = 0;
	runner->gone = false;
	for (size_t i = 0; i < runner->kinds_count; i++) {
		runner->kinds[i].credit = 0;
		runner->kinds[i].sent = 0;
		runner->kinds[i].held = 0;
	}
	buf_clear(&runner->hello);
}

static void take_kinds(struct runner *runner, const struct frame_hello *hello,
	const char *lane)
{
	free_kinds(runner);
	runner->kinds = mem_alloc(hello->kinds_count + 1, sizeof(*runner->kinds));
	for (size_t i = 0; i < hello->kinds_count; i++) {
		const struct frame_hello_kind *kind = &hello->kinds[i];

		if (!str_equal(kind->lane, str_of(lane)))
			continue;
		runner->kinds[runner->kinds_count++] = (struct runner_kind){
			.name = mem_strndup(kind->kind.s, kind->kind.n),
			.version = kind->version,
		};
	}
}

bool runner_answer(struct runner *runner, const struct frame_hello *hello,
	const void *frame, size_t length, const char *lane)
{
	if (hello->epoch != runner->epoch || hello->id.s == NULL)
		return false;
	buf_clear(&runner->hello);
	buf_put(&runner->hello, frame, length);
	free(runner->worker);
	runner->worker = mem_strndup(hello->id.s, hello->id.n);
	runner->slots = hello->slots;
	take_kinds(runner, hello, lane);
	runner->state = RUNNER_ANSWERED;
	return true;
}

int64_t runner_find_kind(const struct runner *runner, struct str kind)
{
	for (size_t i = 0; i < runner->kinds_count; i++)
		if (str_equal(str_of(runner->kinds[i].name), kind))
			return (int64_t)i;
	return -1;
}

/* The jobs up to seq have arrived: they are part of what the runner says that it can take. */
static void forget_arrived(struct runner *runner, int64_t seq)
{
	if (seq > runner->sent_seq)
		seq = runner->sent_seq;
	while (runner->last_seq < seq) {
		size_t slot = (size_t)++runner->last_seq & (runner->in_transit_capacity - 1);

		runner->kinds[runner->in_transit[slot]].sent--;
	}
}

bool runner_take_credit(struct runner *runner, const struct frame_credit *credit)
{
	if (credit->epoch != runner->epoch)
		return false;
	forget_arrived(runner, credit->last_seq);
	runner->total = credit->total;
	for (size_t i = 0; i < runner->kinds_count; i++)
		runner->kinds[i].credit = 0;
	for (size_t i = 0; i < credit->kinds_count; i++) {
		int64_t kind = runner_find_kind(runner, credit->kinds[i].kind);

		if (kind >= 0) {
			runner->kinds[kind].credit = credit->kinds[i].count;
			runner->kinds[kind].held = credit->kinds[i].held;
			runner->kinds[kind].apart = credit->kinds[i].apart;
		}
	}
	return true;
}

static int64_t at_least_zero(int64_t value)
{
	return value > 0 ? value : 0;
}

static int64_t shared_room(const struct runner *runner)
{
	int64_t room = runner->total;

	for (size_t i = 0; i < runner->kinds_count; i++)
		if (!runner->kinds[i].apart)
			room -= runner->kinds[i].sent;
	return at_least_zero(room);
}

int64_t runner_kind_room(const struct runner *runner, size_t kind)
{
	int64_t room = at_least_zero(runner->kinds[kind].credit - runner->kinds[kind].sent);
	int64_t total = runner->kinds[kind].apart ? room : shared_room(runner);

	return room < total ? room : total;
}

int64_t runner_room(const struct runner *runner, bool apart)
{
	int64_t room = 0;

	if (!apart)
		return shared_room(runner);
	for (size_t i = 0; i < runner->kinds_count; i++)
		if (runner->kinds[i].apart)
			room += runner_kind_room(runner, i);
	return room;
}

int64_t runner_free_slots(const struct runner *runner)
{
	int64_t free_slots = runner->slots;

	for (size_t i = 0; i < runner->kinds_count; i++)
		if (!runner->kinds[i].apart)
			free_slots -= runner->kinds[i].held + runner->kinds[i].sent;
	return at_least_zero(free_slots);
}

bool runners_have_apart(const struct runners *runners, struct str kind)
{
	for (const struct runner *r = runners->first; r != NULL; r = r->next) {
		int64_t index = runner_find_kind(r, kind);

		if (index >= 0 && r->kinds[index].apart)
			return true;
	}
	return false;
}

int64_t runners_in_flight(const struct runners *runners, struct str kind)
{
	int64_t in_flight = 0;

	for (const struct runner *r = runners->first; r != NULL; r = r->next) {
		int64_t index = runner_find_kind(r, kind);

		if (index >= 0 && !r->gone)
			in_flight += r->kinds[index].held + r->kinds[index].sent;
	}
	return in_flight;
}

static void grow_in_transit(struct runner *runner)
{
	size_t capacity = runner->in_transit_capacity == 0 ? 64
													   : runner->in_transit_capacity * 2;
	size_t *grown = mem_alloc(capacity, sizeof(*grown));

	for (int64_t seq = runner->last_seq + 1; seq <= runner->sent_seq; seq++)
		grown[(size_t)seq & (capacity - 1)] =
			runner->in_transit[(size_t)seq & (runner->in_transit_capacity - 1)];
	free(runner->in_transit);
	runner->in_transit = grown;
	runner->in_transit_capacity = capacity;
}

void runner_note_sent(struct runner *runner, size_t kind)
{
	if ((size_t)(runner->sent_seq - runner->last_seq) + 1 >= runner->in_transit_capacity)
		grow_in_transit(runner);
	runner->kinds[kind].sent++;
	runner->sent_seq++;
	runner->in_transit[(size_t)runner->sent_seq & (runner->in_transit_capacity - 1)] =
		kind;
}
