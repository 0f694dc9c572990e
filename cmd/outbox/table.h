/*
 * Showing the result of a query: to people as an aligned table, as one name and value a line,
 * or as one row a line with its names; to programs as one JSON object a line.
 *
 * For people, control characters are escaped, so that no handler's error message can play
 * with a terminal; values of a table are cut after 60 characters; instants lose their
 * fractions. Widths count characters, not what a terminal makes of wide or combining ones.
 *
 * In JSON, numbers are numbers, but ids ("id" and names that end in "_id") are strings: they
 * are above 2^53, where many readers lose digits. json columns stand as they are, with line
 * breaks between their tokens replaced by spaces. Instants are in the form of RFC 3339, and
 * nulls are there.
 */
#ifndef OUTBOX_TABLE_H
#define OUTBOX_TABLE_H

#include <libpq-fe.h>

enum table_form { TABLE_ROWS, TABLE_RECORD, TABLE_LINES, TABLE_JSON };

/* Prints the first `columns` columns of a text-format result to stdout; 0 columns: all. The
 * caller finds failures to write with ferror. */
void table_print(const PGresult *result, enum table_form form, int columns);

#endif
