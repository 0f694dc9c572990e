#include "choose.h"

#include <string.h>

void choose_part(struct claimer *claimer, const struct wanted_kind *kind, int64_t limit,
	int64_t version)
{
	if (claimer->parts_count == claimer->parts_capacity) {
		claimer->parts_capacity = claimer->parts_capacity * 2 + 8;
		claimer->parts = mem_realloc(claimer->parts, claimer->parts_capacity,
			sizeof(*claimer->parts));
	}
	claimer->parts[claimer->parts_count++] = (struct claim_part){
		.kind = str_of(kind->name),
		.limit = limit,
		.version = version,
		.round = kind->round,
	};
}

/* A runner that has been silent for two beats may be stopped or cut off. */
static bool may_be_given(const struct claimer *claimer, const struct runner *runner)
{
	int64_t silent_us = loop_now_us(claimer->loop) - runner->heard_us;

	return runner->state == RUNNER_READY && !runner->gone && !runner->draining &&
		silent_us < claimer->options.lease_ms * 1000 * 2 / 3;
}

static bool is_reserved(const struct claimer *claimer, const char *kind)
{
	for (size_t i = 0; i < claimer->options.reserves_count; i++)
		if (strcmp(claimer->options.reserves[i].kind, kind) == 0)
			return true;
	return false;
}

static int64_t at_least_zero(int64_t value)
{
	return value > 0 ? value : 0;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/*
 * What kinds without a reserve may take: the free slots of all runners less what is kept free.
 * Nothing ahead of time: it would have the next slot, and its job may be a long one.
 */
static int64_t unreserved_room(const struct claimer *claimer)
{
	int64_t room = 0;

	for (const struct runner *r = claimer->runners.first; r != NULL; r = r->next)
		if (may_be_given(claimer, r))
			room += least(runner_room(r, false), runner_free_slots(r));
	for (size_t i = 0; i < claimer->options.reserves_count; i++) {
		const struct reserve *reserve = &claimer->options.reserves[i];

		if (runners_have_apart(&claimer->runners, str_of(reserve->kind)))
			continue; /* it needs none of this room */
		room -= at_least_zero(
			reserve->count - runners_in_flight(&claimer->runners, str_of(reserve->kind)));
	}
	return at_least_zero(room);
}

/* One claim cannot hold the limits of several classes. */
enum kind_class {
	KIND_APART, /* with room of its own */
	KIND_RESERVED,
	KIND_UNRESERVED,
};

static enum kind_class class_of(const struct claimer *claimer,
	const struct runner_kind *kind)
{
	if (kind->apart)
		return KIND_APART;
	return is_reserved(claimer, kind->name) ? KIND_RESERVED : KIND_UNRESERVED;
}

/* What this runner has room for among the kinds that may be due, as the claim's parts. */
static void choose_class(struct claimer *claimer, const struct runner *runner,
	enum kind_class class)
{
	claimer->parts_count = 0;
	claimer->found_by = "poll";
	for (size_t i = 0; i < runner->kinds_count; i++) {
		const struct runner_kind *kind = &runner->kinds[i];
		long index = wanted_find(&claimer->wanted, str_of(kind->name));
		int64_t room = runner_kind_room(runner, i);

		if (index < 0 || room == 0)
			continue;
		const struct wanted_kind *wanted = &claimer->wanted.kinds[index];
		if (!wanted->may_be_due || kind->passed == wanted->round ||
			class_of(claimer, kind) != class)
			continue;
		if (wanted->was_nudged)
			claimer->found_by = "nudge";
		choose_part(claimer, wanted, room, kind->version);
	}
}

static void choose_parts(struct claimer *claimer, const struct runner *runner)
{
	claimer->asked = runner_room(runner, claimer->apart);
	if (claimer->apart) {
		choose_class(claimer, runner, KIND_APART);
		return;
	}
	if (claimer->options.reserves_count > 0) {
		choose_class(claimer, runner, KIND_RESERVED);
		if (claimer->parts_count > 0)
			return;
		claimer->asked = least(claimer->asked, unreserved_room(claimer));
	}
	choose_class(claimer, runner, KIND_UNRESERVED);
	if (claimer->asked == 0)
		claimer->parts_count = 0;
}

/* The runner with the most room that can run something which may be due; among equals the
 * one that was served least recently. Leaves its parts in the claimer. */
static struct runner *choose_best(struct claimer *claimer, bool apart)
{
	struct runner *best = NULL;
	int64_t most = 1;

	claimer->apart = apart;
	for (struct runner *r = claimer->runners.first; r != NULL; r = r->next) {
		int64_t room = runner_room(r, apart);

		if (!may_be_given(claimer, r) || room < most ||
			(best != NULL && room == most && r->served > best->served))
			continue;
		choose_parts(claimer, r);
		if (claimer->parts_count > 0) {
			best = r;
			most = room;
		}
	}
	if (best != NULL)
		choose_parts(claimer, best);
	return best;
}

struct runner *choose_runner(struct claimer *claimer)
{
	/* in turn, so that neither keeps the claimer to itself */
	bool apart = !claimer->apart;
	struct runner *runner = choose_best(claimer, apart);

	if (runner == NULL)
		runner = choose_best(claimer, !apart);
	claimer->asked = least(claimer->asked, claimer->options.batch);
	return runner;
}
