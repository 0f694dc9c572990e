#!/bin/sh
# How late delayed jobs start on a system that has nothing else to do, and what the claimer costs
# while a million of them wait.
#
# environment: BENCH_DELAYED_JOBS  jobs, one every 100 ms (default 100)
#              BENCH_IDLE_S        seconds of watching (default 20)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

jobs=${BENCH_DELAYED_JOBS:-100}
seconds=${BENCH_IDLE_S:-20}
handler bench.delayed "$tools/noop"

fresh_database
start_pipeline -j 4
sleep 5 # until the first greetings and looks are over
sql "select count(*) from generate_series(1, $jobs) n
	cross join lateral outbox.enqueue('bench.delayed', '{}', delay => n * interval '100 ms')" >/dev/null
sleep $((jobs / 10))
wait_until_done 60
sql "select percentile_cont(array[0.5, 0.99, 1]) within group (order by late)
	from (select extract(epoch from a.started_at - j.run_at) * 1000 as late
		from outbox.attempt a join outbox.job j on j.id = a.job_id) l" |
	tr -d '{}' | {
	IFS=, read -r p50 p99 max
	emit delayed.late_p50 "$(calculate "$p50")" ms
	emit delayed.late_p99 "$(calculate "$p99")" ms
	emit delayed.late_max "$(calculate "$max")" ms
}

# Rows of ready are all that a claimer could look at.
sql "insert into outbox.ready (kind, priority, due_at, job_id, attempt)
	select 'bench.delayed', 2, outbox.now() + interval '1 h' + n * interval '1 ms', n, 0
	from generate_series(1, 1000000) n; analyze outbox.ready"
claimer=$(programs | awk '$2 == "outbox-claim" { print $1 }')
before=$(cpu_ns "$claimer")
sleep "$seconds"
emit delayed.claim_cpu_with_1m_waiting \
	"$(calculate "100 * ($(cpu_ns "$claimer") - $before) / ($seconds * 1e9)" %.3f)" %
