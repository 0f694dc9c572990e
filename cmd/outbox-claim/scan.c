#include "scan.h"

#define FIXED_JOBS 50.0 /* what a claim costs beside its jobs, as jobs */
#define FIRST_US 10.0   /* taken for the usual cost until one is known */
#define COSTLY 4.0      /* times the usual cost: start at the positions */
#define CHEAP 2.0       /* times the usual cost: back to the head */
#define LEAST_US 3000   /* a claim faster than this is never costly */
#define HEAD_US INT64_C(1000000)
#define SHARE 20 /* looks from the head take at most one part in so many */

bool scan_begin(struct scan *scan, int64_t now_us)
{
	scan->started_us = now_us;
	scan->is_from_head = !scan->is_costly || now_us >= scan->head_at_us;
	return scan->is_from_head;
}

/* A snapshot may be older than the claimer: what its first look costs need not be usual. */
static double usual_us(const struct scan *scan)
{
	return scan->usual_us > 0 ? scan->usual_us : FIRST_US;
}

/* The usual cost follows a lower one at once and a higher one slowly. */
static void learn(struct scan *scan, double cost_us)
{
	if (scan->usual_us == 0 || cost_us < scan->usual_us)
		scan->usual_us = cost_us;
	else
		scan->usual_us += (cost_us - scan->usual_us) / 1000;
}

void scan_end(struct scan *scan, int64_t now_us, int64_t jobs)
{
	int64_t took_us = now_us - scan->started_us;
	double cost_us = (double)took_us / (FIXED_JOBS + (double)jobs);

	if (!scan->is_from_head) {
		learn(scan, cost_us);
		return;
	}
	scan->head_at_us = now_us + (took_us * SHARE > HEAD_US ? took_us * SHARE : HEAD_US);
	scan->is_costly = took_us >= LEAST_US &&
		cost_us > (scan->is_costly ? CHEAP : COSTLY) * usual_us(scan);
	if (!scan->is_costly)
		learn(scan, cost_us);
}

int64_t scan_wait_us(const struct scan *scan, int64_t now_us)
{
	if (!scan->is_costly)
		return INT64_MAX;
	return scan->head_at_us > now_us ? scan->head_at_us - now_us : 0;
}
