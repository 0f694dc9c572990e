/*
 * How the tools of the benchmark fail.
 */
#ifndef OUTBOX_BENCH_DIE_H
#define OUTBOX_BENCH_DIE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

/* Says why on stderr and exits with a status of sysexits.h; "%m" stands for errno's text. */
__attribute__((format(printf, 2, 3))) static inline _Noreturn void die(int status,
	const char *format, ...)
{
	va_list arguments;

	fputs("bench: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(status);
}

#endif
