#!/bin/sh
# Clean-up that could never win (SWP-04): much to delete under a timeout, and a forgotten
# transaction that keeps vacuum from its work.
#
# environment: CLEAN_UP_ROWS   rows to delete (default 400, each of which takes 5 ms then)
#              CLEAN_UP_MS     statement_timeout or transaction_timeout (default 200)
#              PINNED_S        seconds that a snapshot is held under load (default 4)
#              PINNED_RATE     jobs a second (default 200)
# The long form:
#   CLEAN_UP_ROWS=3000000 CLEAN_UP_MS=5000 PINNED_S=900 PINNED_RATE=500 tests/fault/clean_up.sh
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/../e2e/lib.sh"
. "$(dirname "$0")/../e2e/orders.sh"

rows=${CLEAN_UP_ROWS:-400}
timeout_ms=${CLEAN_UP_MS:-200}
pinned_s=${PINNED_S:-4}
pinned_rate=${PINNED_RATE:-200}

# ---- deleting

make_old_jobs() { # COUNT
	sql "with made as (
			insert into outbox.job (id, created_at, run_at, priority, kind, payload)
			select outbox.id_at(now() - interval '8 days') + n, now() - interval '8 days',
				now() - interval '8 days', 2, 'old', '{}'
			from generate_series(1, $1) n returning id)
		insert into outbox.attempt (job_id, attempt, kind, outcome, finished_at)
		select id, 1, 'old', 'succeeded', now() - interval '8 days' from made"
}

# So that a few rows stand for millions: a step of 1000 would take 5 s.
make_deleting_slow() {
	sql "create function slow() returns trigger language plpgsql as \$\$
			begin perform pg_sleep(0.005); return old; end \$\$;
		create trigger slow before delete on outbox.job for each row execute function slow()"
}

old_jobs_are_left() { # COUNT
	[ "$(sql "select count(*) from (select from outbox.job where kind = 'old' limit $1 + 1) j")" -eq "$1" ]
}

losses_are() { # COUNT
	[ "$(sql "select count(*) from outbox.attempt where outcome = 'lost'")" -eq "$1" ]
}

delete_under() { # statement_timeout|transaction_timeout
	make_old_jobs "$rows"
	[ "$rows" -gt 10000 ] || make_deleting_slow
	sql "alter database $PGDATABASE set $1 = $timeout_ms"
	start sweep outbox-sweep --interval 200ms || return
	assert_soon 30 is_deleting || return
	for n in 1 2; do
		enqueue "lost$n" '{}' >/dev/null
		sql "select count(*) from outbox.claim('gone$n', 'default', '{lost$n}', '{1}', 1)" >/dev/null
		assert_soon 5 losses_are $n
	done
	assertFalse 'there was still much to delete' 'old_jobs_are_left 0'
	assert_soon $((30 + rows / 1000)) old_jobs_are_left 0
	stop sweep
	assertEquals 'exit status' 0 $?
}

test_deleting_goes_on_under_a_statement_timeout() {
	delete_under statement_timeout
}

# This one ends the session as well.
test_deleting_goes_on_under_a_transaction_timeout() {
	has_setting transaction_timeout || startSkipping
	isSkipping || delete_under transaction_timeout
}

is_deleting() {
	! old_jobs_are_left "$rows"
}

# ---- the horizon

# A session that holds a snapshot until it is killed.
hold_snapshot() {
	mkfifo "$work/forgotten.in"
	PGAPPNAME=forgotten psql -qXAt <"$work/forgotten.in" >"$work/forgotten.out" 2>&1 &
	echo $! >"$work/forgotten.pid"
	exec 8>"$work/forgotten.in"
	echo 'begin isolation level repeatable read; select 1;' >&8
	assert_soon 10 test -s "$work/forgotten.out"
}

test_a_snapshot_that_somebody_holds() {
	handler work <<-'END'
		#!/bin/sh
		exec sed -u -E 's/^\{"id":"([0-9]+)".*/{"id":"\1"}/'
	END
	printf '[handler]\nmode = stream\n' >"$handlers/work.ini"
	start_pipeline || return
	assert_soon 10 are_asleep 1 || return
	hold_snapshot || return
	prepare_orders work
	start_orders -R "$pinned_rate" -T "$pinned_s"
	wait_for_end load $((pinned_s + 30))
	assertEquals 'exit status of the load' 0 $?
	assert_soon 30 none_is_open || return
	assert_sql 'all have succeeded at once' t "select count(*) = (select count(*) from orders)
		and bool_and(outcome = 'succeeded') from outbox.attempt"
	assert_sql 'without waiting for it' t "select percentile_cont(0.95) within group (
		order by a.started_at - j.run_at) < interval '5 s'
		from outbox.attempt a join outbox.job j on j.id = a.job_id"

	assert_soon 20 metric_is_at_least 'outbox_dead_rows{table="ready"}' $((pinned_s * pinned_rate / 2))
	assert_soon 20 metric_is_at_least outbox_oldest_snapshot_seconds "$pinned_s"
	outbox doctor >"$work/doctor.out"
	assertContains 'who holds it' "$(cat "$work/doctor.out")" \
		"(forgotten, user $PGUSER, idle in transaction) has held one for 00:"
	sql "vacuum outbox.ready"
	assertTrue 'vacuum can do nothing' \
		"metric_is_at_least 'outbox_dead_rows{table=\"ready\"}' $((pinned_s * pinned_rate / 2))"
	exec 8>&-
	wait_for_end forgotten
	sql "vacuum outbox.ready"
	assert_soon 20 metric_is_at_most 'outbox_dead_rows{table="ready"}' 10
	assert_ledger
	stop_pipeline
}

metric() { # NAME: its value, in whole numbers
	outbox metrics | awk -v name="$1" '$1 == name { print int($2) }'
}

metric_is_at_least() { # NAME VALUE
	[ "$(metric "$1")" -ge "$2" ]
}

metric_is_at_most() { # NAME VALUE
	[ "$(metric "$1")" -le "$2" ]
}

. shunit2
