#!/bin/sh
# What waking the claimer costs producers who do nothing but enqueue, one job a transaction:
# a NOTIFY holds a lock of the whole server until its commit is flushed.
#
#   silent   lane.notify is off: never a NOTIFY
#   asleep   the claimer sleeps, and what is enqueued is not for it, so that it goes on
#            sleeping: every commit may have to wake it, the worst case
#   loaded   the pipeline runs jobs meanwhile, on the same processors; it begins with a backlog
#   loaded_silent  the same with lane.notify off
#
# environment: BENCH_ENQUEUE_S  seconds a measurement (default 5)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

cat >"$work/enqueue.sql" <<'SQL'
select status from outbox.enqueue(:kind, '{"id":1000000,"kind":"welcome_email","to":"user.name@example.com","ref":"0b9f6a52-7c1e-4d7a-9a55-2f8f3f0c1d11"}');
SQL
handler bench.nudge "$tools/noop"

measure() { # FIGURE CLIENTS KIND NOTIFY
	fresh_database
	sql "update outbox.lane set notify = $4"
	[ "$3" = bench.of_nobody ] || preload "$3" 30000
	start_pipeline -j 1
	rate=$(pgbench_rate "$2" "$work/enqueue.sql" -D "kind=$3")
	stop_pipeline
	emit "nudge.$1_$2" "$rate" jobs/s
}

for clients in 8 32; do
	measure silent "$clients" bench.of_nobody false
	silent=$rate
	measure asleep "$clients" bench.of_nobody true
	emit "nudge.asleep_of_silent_$clients" "$(calculate "100 * $rate / $silent" %.1f)" %
	measure loaded_silent "$clients" bench.nudge false
	silent=$rate
	measure loaded "$clients" bench.nudge true
	emit "nudge.loaded_of_silent_$clients" "$(calculate "100 * $rate / $silent" %.1f)" %
done
