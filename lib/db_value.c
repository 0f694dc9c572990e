/* Parameters, arrays and columns in PostgreSQL's binary format: big-endian, see the _recv and
 * _send functions of its types. */
#include "db.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "clock.h"

/* ---- parameters */

void db_params_init(struct db_params *params)
{
	params->count = 0;
}

static void bind(struct db_params *params, const char *value, size_t length, int format)
{
	assert(params->count < DB_MAX_PARAMS);
	int index = params->count++;

	params->values[index] = value;
	params->lengths[index] = (int)length;
	params->formats[index] = format;
}

void db_bind_null(struct db_params *params)
{
	bind(params, NULL, 0, 0);
}

/*
 * Text format suits every type. Only with a NUL inside, where libpq would silently cut the
 * value, it goes in binary: the server then refuses it.
 */
void db_bind_text(struct db_params *params, struct str text)
{
	int format = text.s && memchr(text.s, '\0', text.n) ? 1 : 0;
	bind(params, text.s, text.n, format);
}

static void bind_scratch(struct db_params *params, const void *bytes, size_t length)
{
	char *scratch = params->scratch[params->count];

	memcpy(scratch, bytes, length);
	bind(params, scratch, length, 1);
}

void db_bind_int8(struct db_params *params, int64_t value)
{
	uint64_t wire = htobe64((uint64_t)value);
	bind_scratch(params, &wire, sizeof(wire));
}

void db_bind_int4(struct db_params *params, int32_t value)
{
	uint32_t wire = htobe32((uint32_t)value);
	bind_scratch(params, &wire, sizeof(wire));
}

void db_bind_bool(struct db_params *params, bool value)
{
	char wire = value ? 1 : 0;
	bind_scratch(params, &wire, sizeof(wire));
}

void db_bind_array(struct db_params *params, const struct buf *array)
{
	bind(params, array->data, array->len, 1);
}

/* ---- arrays: see array_recv in src/backend/utils/adt/arrayfuncs.c */

enum {
	ARRAY_FLAGS_OFFSET = 4,
	ARRAY_COUNT_OFFSET = 12,
};

static void put(struct db_array *array, const void *bytes, size_t count)
{
	if (buf_put(array->out, bytes, count) < 0)
		array->is_full = true;
}

static void put_int4(struct db_array *array, int32_t value)
{
	uint32_t wire = htobe32((uint32_t)value);
	put(array, &wire, sizeof(wire));
}

static void put_item(struct db_array *array, const void *bytes, size_t count)
{
	put_int4(array, (int32_t)count);
	put(array, bytes, count);
	array->count++;
}

void db_array_begin(struct db_array *array, struct buf *out, Oid element_type)
{
	*array = (struct db_array){.out = out, .header = out->len};
	put_int4(array, 1); /* dimensions */
	put_int4(array, 0); /* whether there are nulls: known at the end */
	put_int4(array, (int32_t)element_type);
	put_int4(array, 0); /* items: known at the end */
	put_int4(array, 1); /* lower bound */
}

void db_array_int2(struct db_array *array, int16_t value)
{
	uint16_t wire = htobe16((uint16_t)value);
	put_item(array, &wire, sizeof(wire));
}

void db_array_int4(struct db_array *array, int32_t value)
{
	uint32_t wire = htobe32((uint32_t)value);
	put_item(array, &wire, sizeof(wire));
}

void db_array_int8(struct db_array *array, int64_t value)
{
	uint64_t wire = htobe64((uint64_t)value);
	put_item(array, &wire, sizeof(wire));
}

void db_array_bool(struct db_array *array, bool value)
{
	char wire = value ? 1 : 0;
	put_item(array, &wire, sizeof(wire));
}

void db_array_text(struct db_array *array, struct str text)
{
	if (text.s)
		put_item(array, text.s, text.n);
	else
		db_array_null(array);
}

void db_array_null(struct db_array *array)
{
	put_int4(array, -1);
	array->count++;
	array->nulls++;
}

int db_array_end(struct db_array *array)
{
	struct buf *out = array->out;

	if (array->is_full) {
		out->len = array->header;
		return -1;
	}
	uint32_t has_null = htobe32(array->nulls > 0 ? 1 : 0);
	uint32_t count = htobe32((uint32_t)array->count);
	memcpy(out->data + array->header + ARRAY_FLAGS_OFFSET, &has_null, sizeof(has_null));
	memcpy(out->data + array->header + ARRAY_COUNT_OFFSET, &count, sizeof(count));
	return 0;
}

/* ---- columns */

/* An integer of any width, so that a query may return a narrower one than its reader knows. */
int64_t db_get_int8(const PGresult *result, int row, int column)
{
	const char *value = PQgetvalue(result, row, column);
	uint16_t two;
	uint32_t four;
	uint64_t eight;

	switch (PQgetlength(result, row, column)) {
	case sizeof(two):
		memcpy(&two, value, sizeof(two));
		return (int16_t)be16toh(two);
	case sizeof(four):
		memcpy(&four, value, sizeof(four));
		return (int32_t)be32toh(four);
	case sizeof(eight):
		memcpy(&eight, value, sizeof(eight));
		return (int64_t)be64toh(eight);
	default: /* null has length 0 */
		return 0;
	}
}

int32_t db_get_int4(const PGresult *result, int row, int column)
{
	return (int32_t)db_get_int8(result, row, column);
}

int16_t db_get_int2(const PGresult *result, int row, int column)
{
	return (int16_t)db_get_int8(result, row, column);
}

bool db_get_bool(const PGresult *result, int row, int column)
{
	return PQgetlength(result, row, column) == 1 && *PQgetvalue(result, row, column) != 0;
}

struct str db_get_str(const PGresult *result, int row, int column)
{
	if (PQgetisnull(result, row, column))
		return STR_NULL;
	return (struct str){PQgetvalue(result, row, column),
		(size_t)PQgetlength(result, row, column)};
}

int64_t db_get_time_us(const PGresult *result, int row, int column)
{
	int64_t unix_us;

	if (PQgetisnull(result, row, column))
		return INT64_MIN;
	int64_t pg_us = db_get_int8(result, row, column);
	if (pg_us == INT64_MIN) /* -infinity */
		return INT64_MIN;
	if (__builtin_add_overflow(pg_us, CLOCK_PG_EPOCH_US, &unix_us))
		return INT64_MAX; /* infinity */
	return unix_us;
}
