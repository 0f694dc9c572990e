/*
 * What a stream handler says: one line of JSON, an object.
 *
 *   {"id":"4711"}                                   job 4711 is done
 *   {"id":"4711","response":{"sent":true}}          and this came of it
 *   {"id":"4711","outcome":"retry","after":"60s"}   the members of an outcome document
 *   {"cancel":true}                                 about no job: tell me of cancels
 *
 * Without "outcome" it is ok. "attempt" may repeat the job's. Unknown members are ignored,
 * and null is the same as absent.
 */
#ifndef OUTBOX_ANSWER_H
#define OUTBOX_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "err.h"
#include "outcome.h"

#define ANSWER_MAX_BYTES ((size_t)4 << 20) /* of a line */

struct answer {
	int64_t id;      /* 0: none */
	int64_t attempt; /* 0: not said */
	bool wants_cancels;
	struct str response; /* JSON, a view into the line; or absent */
	struct outcome_document document;
};

/*
 * ERR_DATA when the line is malformed. The id is then the job's all the same where the line
 * tells it: anywhere if the line is JSON, else as its first member. The plain ones of the
 * examples above are recognised without reading JSON. Release the answer in any case.
 */
int answer_parse(struct answer *answer, struct str line, struct err *err);

void answer_release(struct answer *answer);

#endif
