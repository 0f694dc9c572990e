#include "err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "text.h"

#define TEXT_MAX (sizeof(((struct err *)NULL)->text) - 1) /* without the NUL */

/* Where messages are made: long enough to see whether a character is cut at TEXT_MAX, and
 * apart from err->text, which the arguments of a format may point into. */
#define DRAFT_SIZE (TEXT_MAX + 5)

/* Puts `more` at text[at], ends it before `end` at a character boundary, returns its end. */
static size_t put_clipped(char *text, size_t at, size_t end, const char *more)
{
	size_t length = text_clip(more, strlen(more), end - at);

	memcpy(text + at, more, length);
	text[at + length] = '\0';
	return at + length;
}

int err_set(struct err *err, enum err_class class, const char *format, ...)
{
	if (err == NULL)
		return -1;

	char draft[DRAFT_SIZE];
	va_list args;
	va_start(args, format);
	vsnprintf(draft, sizeof(draft), format, args);
	va_end(args);
	*err = (struct err){.class = class};
	put_clipped(err->text, 0, TEXT_MAX, draft);
	return -1;
}

int err_set_errno(struct err *err, enum err_class class, int errnum, const char *format,
	...)
{
	if (err == NULL)
		return -1;

	char draft[DRAFT_SIZE];
	va_list args;
	va_start(args, format);
	vsnprintf(draft, sizeof(draft), format, args);
	va_end(args);

	char reason[80];
	const char *description = strerrordesc_np(errnum);
	if (description != NULL)
		snprintf(reason, sizeof(reason), ": %s", description);
	else
		snprintf(reason, sizeof(reason), ": unknown error %d", errnum);
	*err = (struct err){.class = class, .errnum = errnum};
	size_t end = put_clipped(err->text, 0, TEXT_MAX - strlen(reason), draft);
	put_clipped(err->text, end, TEXT_MAX, reason);
	return -1;
}

int err_prefix(struct err *err, const char *format, ...)
{
	if (err == NULL)
		return -1;

	char draft[DRAFT_SIZE];
	va_list args;
	va_start(args, format);
	vsnprintf(draft, sizeof(draft), format, args);
	va_end(args);

	char old[TEXT_MAX + 1];
	memcpy(old, err->text, sizeof(old));
	size_t end = put_clipped(err->text, 0, TEXT_MAX - 2, draft);
	end = put_clipped(err->text, end, TEXT_MAX, ": ");
	put_clipped(err->text, end, TEXT_MAX, old);
	return -1;
}

static const struct {
	int exit_code;
	bool temporary;
} class_table[] = {
	[ERR_NONE] = {0, false},
	[ERR_USAGE] = {EX_USAGE, false},
	[ERR_DATA] = {EX_DATAERR, false},
	[ERR_NOINPUT] = {EX_NOINPUT, false},
	[ERR_UNAVAILABLE] = {EX_UNAVAILABLE, true},
	[ERR_SOFTWARE] = {EX_SOFTWARE, false},
	[ERR_OS] = {EX_OSERR, true},
	[ERR_IO] = {EX_IOERR, true},
	[ERR_TEMP] = {EX_TEMPFAIL, true},
	[ERR_PROTOCOL] = {EX_PROTOCOL, false},
	[ERR_PERM] = {EX_NOPERM, false},
	[ERR_CONFIG] = {EX_CONFIG, false},
};

bool err_is_temporary(const struct err *err)
{
	return class_table[err->class].temporary;
}

int err_exit_code(const struct err *err)
{
	return class_table[err->class].exit_code;
}

enum err_class err_class_of_sqlstate(const char *sqlstate)
{
	static const struct {
		const char *prefix; /* of the SQLSTATE, or all of it */
		enum err_class class;
	} table[] = {
		{"08", ERR_UNAVAILABLE},
		{"57P01", ERR_UNAVAILABLE},
		{"57P02", ERR_UNAVAILABLE},
		{"57P03", ERR_UNAVAILABLE},
		{"57P05", ERR_UNAVAILABLE},
		{"25006", ERR_UNAVAILABLE},
		{"25P03", ERR_UNAVAILABLE},
		{"25P04", ERR_UNAVAILABLE},
		{"26000", ERR_UNAVAILABLE},
		{"42P05", ERR_UNAVAILABLE},
		{"40001", ERR_TEMP},
		{"40P01", ERR_TEMP},
		{"55P03", ERR_TEMP},
		{"53", ERR_TEMP},
		{"57014", ERR_TEMP},
		{"58", ERR_TEMP},
		{"42501", ERR_PERM},
		{"28", ERR_PERM},
		{"22", ERR_DATA},
		{"23", ERR_DATA},
		{"3F000", ERR_CONFIG},
		{"42P01", ERR_CONFIG},
		{"42883", ERR_CONFIG},
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strncmp(sqlstate, table[i].prefix, strlen(table[i].prefix)) == 0)
			return table[i].class;
	return ERR_SOFTWARE;
}

bool err_is_timeout(const struct err *err)
{
	return strcmp(err->sqlstate, "57014") == 0 || strcmp(err->sqlstate, "25P04") == 0;
}
