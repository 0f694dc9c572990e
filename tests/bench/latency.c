/*
 * latency: enqueues jobs at a steady rate and measures how long after its commit each one's
 * handler starts.
 *
 * usage: latency [-r RATE] [-t SECONDS] [-w WARM_UP_SECONDS] KIND FIFO
 *
 * Connects as libpq's environment says. A handler of the kind writes one line into the FIFO
 * as its first act: "JOB NANOSECONDS", by CLOCK_MONOTONIC, or "JOB" alone when it cannot
 * read that clock; then the line's arrival counts, which is some 50 us later. Prints
 * "p50 VALUE ms" and so on, without the jobs of the warm-up.
 *
 * A latency can be negative: a handler may start before its producer, whom the server tells
 * of the commit at the same moment, has heard of it.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "die.h"
#include "samples.h"

#define GIVE_UP_NS INT64_C(15000000000) /* on jobs that never start */
#define PAYLOAD \
	"{\"id\":1000000,\"kind\":\"welcome_email\",\"to\":\"user.name@example.com\"," \
	"\"ref\":\"0b9f6a52-7c1e-4d7a-9a55-2f8f3f0c1d11\"}"

struct job {
	int64_t id;
	int64_t ns; /* when its commit had returned, or when its handler started */
};

struct starts { /* what the handlers say; filled by a thread of its own */
	FILE *fifo;
	struct job *jobs;
	size_t room;
	atomic_size_t count;
};

/* A line without a job's number ends it. */
static void *collect(void *ctx)
{
	struct starts *starts = ctx;
	char line[128];

	while (fgets(line, sizeof(line), starts->fifo) != NULL) {
		int64_t arrived = now_ns();
		struct job start = {0};
		int fields = sscanf(line, "%" SCNd64 " %" SCNd64, &start.id, &start.ns);

		if (fields < 1)
			break;
		if (fields == 1)
			start.ns = arrived;
		size_t count = atomic_load(&starts->count);
		if (count == starts->room) /* jobs that were run again */
			continue;
		starts->jobs[count] = start;
		atomic_store(&starts->count, count + 1);
	}
	return NULL;
}

static void check(PGconn *conn, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		die(EX_UNAVAILABLE, "%s", PQerrorMessage(conn));
}

static PGconn *connect_and_prepare(void)
{
	PGconn *conn = PQconnectdb("fallback_application_name=bench-latency");

	if (PQstatus(conn) != CONNECTION_OK)
		die(EX_UNAVAILABLE, "%s", PQerrorMessage(conn));
	PGresult *result = PQprepare(conn, "enqueue",
		"select id from outbox.enqueue($1::text, $2::text)", 2, NULL);
	check(conn, result);
	PQclear(result);
	return conn;
}

static struct job enqueue(PGconn *conn, const char *kind)
{
	const char *values[] = {kind, PAYLOAD};
	PGresult *result = PQexecPrepared(conn, "enqueue", 2, values, NULL, NULL, 0);
	struct job job = {.ns = now_ns()};

	check(conn, result);
	job.id = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	PQclear(result);
	return job;
}

static void sleep_until(int64_t ns)
{
	const struct timespec at = {ns / 1000000000, ns % 1000000000};

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
		;
}

/* One at a random moment of each period, so that nothing can keep time with it. */
static void produce(const char *kind, int64_t period_ns, struct job *jobs, size_t count)
{
	PGconn *conn = connect_and_prepare();
	int64_t begin = now_ns();

	for (size_t i = 0; i < count; i++) {
		sleep_until(
			begin + (int64_t)i * period_ns + (int64_t)random_below((uint64_t)period_ns));
		jobs[i] = enqueue(conn, kind);
	}
	PQfinish(conn);
}

static int compare_ids(const void *a, const void *b)
{
	const int64_t x = ((const struct job *)a)->id, y = ((const struct job *)b)->id;

	return (x > y) - (x < y);
}

static void wait_for_starts(struct starts *starts, size_t count)
{
	int64_t until = now_ns() + GIVE_UP_NS;

	while (atomic_load(&starts->count) < count && now_ns() < until)
		sleep_until(now_ns() + 10000000);
}

/* Adds the latencies of these jobs and returns how many never started. */
static size_t add_latencies(struct samples *latencies, const struct starts *starts,
	const struct job *jobs, size_t count)
{
	size_t missing = 0;

	for (size_t i = 0; i < count; i++) {
		const struct job *start = bsearch(&jobs[i], starts->jobs, starts->count,
			sizeof(*jobs), compare_ids);

		if (start == NULL)
			missing++;
		else
			samples_add(latencies, start->ns - jobs[i].ns);
	}
	return missing;
}

static void report(const struct starts *starts, const struct job *jobs, size_t count)
{
	struct samples latencies = {0};
	size_t missing;

	qsort(starts->jobs, starts->count, sizeof(*jobs), compare_ids);
	missing = add_latencies(&latencies, starts, jobs, count);
	samples_print(&latencies, "");
	if (missing > 0)
		printf("missing %zu jobs\n", missing);
	samples_release(&latencies);
}

/* Open for writing too, so that there is no end of file between two handlers. */
static FILE *open_fifo(const char *path)
{
	struct stat status;
	FILE *fifo = fopen(path, "r+e");

	if (fifo == NULL || fstat(fileno(fifo), &status) != 0 || !S_ISFIFO(status.st_mode))
		die(EX_NOINPUT, "\"%s\" is not a FIFO that can be opened", path);
	return fifo;
}

struct options {
	double rate, seconds, warm_up;
	const char *kind, *fifo;
};

static struct options parse(int argc, char **argv)
{
	struct options options = {.rate = 50, .seconds = 20, .warm_up = 2};
	int option;

	while ((option = getopt(argc, argv, "r:t:w:")) != -1) {
		double *value = option == 'r' ? &options.rate
			: option == 't'           ? &options.seconds
									  : &options.warm_up;
		*value = option == '?' ? -1 : atof(optarg);
	}
	if (argc - optind != 2 || options.rate <= 0 || options.seconds <= 0 ||
		options.warm_up < 0)
		die(EX_USAGE, "usage: latency [-r RATE] [-t SECONDS] [-w SECONDS] KIND FIFO");
	options.kind = argv[optind];
	options.fifo = argv[optind + 1];
	return options;
}

int main(int argc, char **argv)
{
	const struct options options = parse(argc, argv);
	const int64_t period_ns = (int64_t)(1e9 / options.rate);
	const size_t warm_up = (size_t)(options.rate * options.warm_up);
	const size_t count = warm_up + (size_t)(options.rate * options.seconds);
	struct job *jobs = mem_alloc(count, sizeof(*jobs));
	struct starts starts = {.fifo = open_fifo(options.fifo), .room = 2 * count};
	pthread_t collector;

	starts.jobs = mem_alloc(starts.room, sizeof(*starts.jobs));
	if (pthread_create(&collector, NULL, collect, &starts) != 0)
		die(EX_OSERR, "could not start a thread");
	produce(options.kind, period_ns, jobs, count);
	wait_for_starts(&starts, count);
	dprintf(fileno(starts.fifo), "end\n");
	pthread_join(collector, NULL);
	report(&starts, jobs + warm_up, count - warm_up);
	fclose(starts.fifo);
	free(starts.jobs);
	free(jobs);
	return 0;
}
