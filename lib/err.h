/*
 * Errors: one idiom for the whole project.
 *
 * A function that can fail returns 0 or -1 (or a pointer or NULL) and fills the caller's
 * `struct err`. The text is one complete sentence in PostgreSQL's style: lower case, no
 * full stop, "could not ..." for what may work later, names in double quotes.
 * The class says what to do about it and decides the exit code (sysexits.h).
 */
#ifndef OUTBOX_ERR_H
#define OUTBOX_ERR_H

#include <stdbool.h>

enum err_class {
	ERR_NONE = 0,
	ERR_USAGE,       /* wrong command line                   EX_USAGE 64 */
	ERR_DATA,        /* malformed or refused input           EX_DATAERR 65 */
	ERR_NOINPUT,     /* a named file is missing              EX_NOINPUT 66 */
	ERR_UNAVAILABLE, /* a server cannot be reached           EX_UNAVAILABLE 69, temporary */
	ERR_SOFTWARE,    /* a bug of ours                        EX_SOFTWARE 70 */
	ERR_OS,          /* a system call or a limit of the host EX_OSERR 71, temporary */
	ERR_IO,          /* reading or writing failed            EX_IOERR 74, temporary */
	ERR_TEMP,        /* the same call may succeed later      EX_TEMPFAIL 75, temporary */
	ERR_PROTOCOL,    /* the other side broke the protocol    EX_PROTOCOL 76 */
	ERR_PERM,        /* not allowed                          EX_NOPERM 77 */
	ERR_CONFIG,      /* wrong configuration or schema version  EX_CONFIG 78 */
};

struct err {
	enum err_class class;
	int errnum;       /* errno, or 0 */
	char sqlstate[6]; /* five characters, or empty */
	char text[512];   /* cut at a character boundary when longer */
};

#define ERR_INIT ((struct err){.class = ERR_NONE})

/* Fills *err (which may be NULL) and returns -1, so that callers can `return err_set(...)`. */
int err_set(struct err *err, enum err_class class, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* As err_set, and appends ": " and the text of errnum. */
int err_set_errno(struct err *err, enum err_class class, int errnum, const char *format,
	...) __attribute__((format(printf, 4, 5)));

/* Puts "context: " before the present text. Returns -1. */
int err_prefix(struct err *err, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Whether the same call may succeed later without anybody changing anything. */
bool err_is_temporary(const struct err *err);

/* The sysexits code of the class; 0 for ERR_NONE. */
int err_exit_code(const struct err *err);

/*
 * The class of an SQLSTATE of PostgreSQL. 08*, 57P01..57P03, 57P05, 25P03 and 25P04 (timeouts
 * that end the session), 25006 (read-only after a failover), 26000 and 42P05 (the session is not
 * the one that prepared our statements): ERR_UNAVAILABLE, drop the connection. 40001, 40P01,
 * 55P03, 53*, 57014 and 58* (the server's disk and system): ERR_TEMP. 42501 and 28*: ERR_PERM.
 * 22* and 23*: ERR_DATA. 3F000, 42P01 and 42883: ERR_CONFIG. All others: ERR_SOFTWARE.
 */
enum err_class err_class_of_sqlstate(const char *sqlstate);

/*
 * Whether the server stopped a statement because it took too long: statement_timeout (57014, of
 * ERR_TEMP; so does who cancels it by hand) or transaction_timeout (25P04, of ERR_UNAVAILABLE;
 * from PostgreSQL 17 on). The same call may take too long again.
 */
bool err_is_timeout(const struct err *err);

#endif
