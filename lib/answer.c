#include "answer.h"

#include <string.h>

#include "json.h"
#include "json_read.h"

/* ---- plain answers, which most are --------------------------------------------------- */

static void skip_space(struct json_reader *reader)
{
	while (reader->at < reader->end && strchr(" \t\r", *reader->at) && *reader->at)
		reader->at++;
}

/* Steps over the token if it is next. */
static bool take_here(struct json_reader *reader, struct str token)
{
	if ((size_t)(reader->end - reader->at) < token.n ||
		memcmp(reader->at, token.s, token.n) != 0)
		return false;
	reader->at += token.n;
	return true;
}

/* The same behind white space. */
static bool take(struct json_reader *reader, struct str token)
{
	skip_space(reader);
	return take_here(reader, token);
}

/* Ids begin with 1 to 9 and fit into 63 bits. */
static bool take_digits(struct json_reader *reader, int64_t *number)
{
	const char *start = reader->at;

	*number = 0;
	while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9')
		if (__builtin_mul_overflow(*number, 10, number) ||
			__builtin_add_overflow(*number, *reader->at++ - '0', number))
			return false;
	return reader->at > start && *start != '0';
}

static bool take_id(struct json_reader *reader, int64_t *id)
{
	bool quoted = take(reader, STR("\""));

	return take_digits(reader, id) && (!quoted || take_here(reader, STR("\"")));
}

/* {"id":…, the head of a plain answer. */
static bool take_head(struct json_reader *reader, int64_t *id)
{
	return take(reader, STR("{")) && take(reader, STR("\"id\"")) &&
		take(reader, STR(":")) && take_id(reader, id);
}

static bool is_plain(struct str line, int64_t *id)
{
	struct json_reader reader = {line.s, line.s + line.n};

	if (!take_head(&reader, id))
		return false;
	if (take(&reader, STR(",")) &&
		!(take(&reader, STR("\"outcome\"")) && take(&reader, STR(":")) &&
			take(&reader, STR("\"ok\""))))
		return false;
	if (!take(&reader, STR("}")))
		return false;
	skip_space(&reader);
	return reader.at == reader.end;
}

/* ---- all others ---------------------------------------------------------------------- */

/* An id as it stands in JSON, as a string or a number. 0: neither. */
static int64_t id_of(struct str value)
{
	struct json_reader reader = {value.s, value.s + value.n};
	int64_t id;

	return take_id(&reader, &id) && reader.at == reader.end ? id : 0;
}

static int get_member(struct answer *answer, struct str key, struct str value,
	struct err *err)
{
	if (json_read_is(value, "null"))
		return 0;
	if (str_equal(key, STR("\"id\""))) {
		int64_t id = id_of(value);
		if (id == 0 || answer->id != 0)
			return err_set(err, ERR_DATA, "\"id\" is not the id of a job, once");
		answer->id = id;
	} else if (str_equal(key, STR("\"attempt\""))) {
		if (json_read_int(value, &answer->attempt) != 0 || answer->attempt <= 0)
			return err_set(err, ERR_DATA, "\"attempt\" is not a number from 1");
	} else if (str_equal(key, STR("\"response\""))) {
		answer->response = value;
	} else if (str_equal(key, STR("\"cancel\""))) {
		answer->wants_cancels = json_read_is(value, "true");
	}
	return 0;
}

/* Of a line that is no JSON, perhaps because it was cut, though not within the id. */
static int64_t id_at_head(struct str line)
{
	struct json_reader reader = {line.s, line.s + line.n};
	int64_t id;

	if (!take_head(&reader, &id))
		return 0;
	return take(&reader, STR(",")) || take(&reader, STR("}")) ? id : 0;
}

/* All members are looked at even if one is wrong: the id may come last. */
static int get_members(struct answer *answer, struct str line, struct err *err)
{
	struct json_reader members;
	struct str key, value;
	int result = 0;

	if (!json_read_begin(&members, line, '{'))
		return err_set(err, ERR_DATA, "the answer is not an object");
	while (json_read_member(&members, &key, &value))
		if (get_member(answer, key, value, result == 0 ? err : NULL) != 0)
			result = -1;
	return result;
}

int answer_parse(struct answer *answer, struct str line, struct err *err)
{
	int64_t id;

	*answer = (struct answer){.document = {.after_ms = -1}};
	if (is_plain(line, &id)) {
		answer->id = id;
		return 0;
	}
	if (!json_is_valid(line.s, line.n, OUTCOME_MAX_DEPTH)) {
		answer->id = id_at_head(line);
		return err_set(err, ERR_DATA, "the answer is not one JSON value");
	}
	if (get_members(answer, line, err) != 0)
		return -1;
	if (answer->id == 0 && !answer->wants_cancels)
		return err_set(err, ERR_DATA, "there is no \"id\" in the answer");
	if (outcome_document_read(line, &answer->document, err) != 0)
		return err_prefix(err, "in the answer");
	return 0;
}

void answer_release(struct answer *answer)
{
	outcome_document_release(&answer->document);
}
