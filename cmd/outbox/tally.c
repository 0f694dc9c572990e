#include "tally.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "options.h"
#include "table.h"

static void count_status(struct tally *tally, const char *status)
{
	size_t i = 0;

	while (tally->counts[i].jobs > 0 && strcmp(tally->counts[i].status, status) != 0)
		i++;
	snprintf(tally->counts[i].status, sizeof(tally->counts[i].status), "%s", status);
	tally->counts[i].jobs++;
}

static bool is_refusal(const char *status)
{
	static const char *const refusals[] = {"in_flight", "not_ended", "ended",
		"occupied_key", "attempt_limit", "not_found"};

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		if (strcmp(status, refusals[i]) == 0)
			return true;
	return false;
}

enum { JOB_ID, STATUS, BLOCKING_ID, COLUMNS };

void tally_batch(struct tally *tally, const PGresult *result)
{
	for (int row = 0; row < PQntuples(result); row++) {
		const char *status = PQgetvalue(result, row, STATUS);

		count_status(tally, status);
		tally->refused = tally->refused || is_refusal(status);
		tally->jobs++;
		if (output_options.json)
			continue;
		printf("%s %s", PQgetvalue(result, row, JOB_ID), status);
		if (!PQgetisnull(result, row, BLOCKING_ID))
			printf(" by %s", PQgetvalue(result, row, BLOCKING_ID));
		putchar('\n');
	}
	if (output_options.json)
		table_print(result, TABLE_JSON, COLUMNS);
	fflush(stdout);
}

void tally_summary(const struct tally *tally)
{
	const char *separator = "";

	if (output_options.json || tally->jobs == 1)
		return;
	if (tally->jobs == 0)
		fprintf(stderr, "no jobs");
	for (size_t i = 0; tally->counts[i].jobs > 0; i++) {
		fprintf(stderr, "%s%" PRId64 " %s", separator, tally->counts[i].jobs,
			tally->counts[i].status);
		separator = ", ";
	}
	fputc('\n', stderr);
}
