#!/bin/sh
# The database goes away and comes back in the middle of work.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here

# These tests restart the server, so it is never one that is shared with other tests.
if [ -z "${OUTBOX_OWN_SERVER:-}" ]; then
	export OUTBOX_OWN_SERVER=1
	unset OUTBOX_TEST_DB
fi
. "$(dirname "$0")/../e2e/lib.sh"
. "$(dirname "$0")/../e2e/orders.sh"

restart_under_load() { # MODE
	noting_handler work 'sleep 0.01'
	start_pipeline -j 4 || return
	prepare_orders work
	start_stubborn_orders 200
	for orders in 200 500 800; do
		assert_soon 30 orders_reach "$orders" || return
		pg-temp restart "$PGHOST" -m "$1"
	done
	assert_soon 30 orders_reach 1000 || return
	stop_stubborn_orders
	assert_soon 60 none_is_open || return

	assert_orders_survived work
	assert_ledger
	stop_pipeline
}

test_restart() {
	restart_under_load fast
}

test_crash() {
	restart_under_load immediate
}

# Claims commit asynchronously, so a crash can take them back; the jobs are then claimed once
# more, maybe for the runner that has them still, as the same attempts.
lose_claims() {
	sql 'with c as (delete from outbox.claim returning ids)
		insert into outbox.ready (kind, priority, due_at, job_id, version, attempt)
		select j.kind, j.priority, j.run_at, j.id, coalesce(j.version, 0), 0
		from c, unnest(c.ids) i (id) join outbox.job j using (id)'
	enqueue work '{"n":0}' >/dev/null # makes the claimer look
	assert_soon 10 nothing_is_owed
}

nothing_is_owed() {
	[ "$(sql 'select count(*) from outbox.ready')" = 0 ]
}

runs_reach() { # COUNT
	[ "$(runs_of work)" -ge "$1" ]
}

test_claims_lost_of_jobs_that_have_ended() {
	noting_handler work
	start_pipeline -j 4 || return
	signal settle STOP
	enqueue_numbers work 4
	assert_soon 10 runs_reach 4 || return
	lose_claims || return
	signal settle CONT
	assert_soon 20 none_is_open || return
	assertTrue 'every job has succeeded' 'jobs_are succeeded 5'
	assert_ledger
}

test_claims_lost_of_jobs_that_run() {
	noting_handler work 'sleep 1'
	start_pipeline -j 8 || return
	enqueue_numbers work 4
	assert_soon 10 runs_reach 4 || return
	lose_claims || return
	assert_soon 20 none_is_open || return
	assertTrue 'every job has succeeded' 'jobs_are succeeded 5'
	assert_ledger
}

# The programs may be there before their database is, and wait for it.
test_started_while_the_database_is_down() {
	noting_handler work
	enqueue_numbers work 10
	pg-temp stop "$PGHOST"
	for instance in settle sweep claim listen; do
		start_unready "$instance" "outbox-$instance"
	done
	start_unready run outbox-run --handlers "$handlers"
	pg-temp start "$PGHOST"
	assert_soon 30 none_is_open || return
	assertEquals 'runs' 10 "$(runs_of work)"
	assert_ledger
	stop_pipeline
}

# As `start`, without waiting for what cannot come yet.
start_unready() { # INSTANCE PROGRAM [ARGUMENT ...]
	instance=$1
	shift
	"$@" </dev/null >>"$work/$instance.out" 2>>"$work/$instance.log" &
	echo $! >"$work/$instance.pid"
}

. shunit2
