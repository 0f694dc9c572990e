#!/bin/sh
# kill -9 of each program in turn, under load: nothing is lost and nothing settled twice.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/../e2e/lib.sh"
. "$(dirname "$0")/../e2e/orders.sh"

restart() { # INSTANCE
	case $1 in
	run) start run outbox-run --handlers "$handlers" -j 4 ;;
	claim) start claim outbox-claim --lease 2s ;;
	*) start "$1" "outbox-$1" ;;
	esac
}

# Kills the program three times while jobs come and go, 200 a second for four seconds, and
# starts it again each time.
kill_under_load() { # INSTANCE
	noting_handler work 'sleep 0.01'
	start_pipeline -j 4 || return
	prepare_orders work
	start_orders -R 200 -t 400
	for orders in 100 300 500; do
		assert_soon 20 orders_reach "$orders" || return
		kill_program "$1" || fail "$1 had ended before it was killed"
		restart "$1" || return
	done
	wait_for_end load
	assertEquals 'exit status of the load' 0 $? || cat "$work/pgbench.log"
	assert_soon 60 none_is_open || return

	assert_orders_survived work
	# What was in flight in a killed program may have run: at least once, not exactly once.
	repeats=$(($(runs_of work) - 800))
	assertTrue "$repeats repeats are no more than was in flight" "test $repeats -le 200"
	assert_ledger
	stop_pipeline
}

test_kill_run() {
	kill_under_load run
}

test_kill_claim() {
	kill_under_load claim
}

test_kill_settle() {
	kill_under_load settle
}

test_kill_listen() {
	kill_under_load listen
}

test_kill_sweep() {
	kill_under_load sweep
}

# The orphaned handler must not go on working beside the next attempt.
test_handlers_die_with_their_runner() {
	noting_handler slow "echo \$\$ >>$work/handlers.pids; sleep 5; echo survived >>$work/survivors"
	enqueue_numbers slow 4
	start_pipeline -j 4 || return
	assert_soon 10 handlers_started 4 || return
	kill_program run
	while read -r pid; do
		assert_soon 2 has_ended "$pid"
	done <"$work/handlers.pids"

	noting_handler slow
	restart run || return
	assert_soon 20 none_is_open || return
	assert_sql 'one loss each, then success' 'lost|1|4
succeeded|2|4' 'select outcome, attempt, count(*) from outbox.attempt group by 1, 2 order by 2'
	assertFalse 'no handler survived' "test -e $work/survivors"
	assert_ledger
}

handlers_started() { # COUNT
	[ -e "$work/handlers.pids" ] && [ "$(wc -l <"$work/handlers.pids")" -eq "$1" ]
}

# A runner that is frozen past its lease is taken for dead; it must not settle afterwards.
test_frozen_runner_settles_nothing() {
	noting_handler slow 'sleep 1'
	enqueue_numbers slow 4
	start_pipeline -j 4 || return
	assert_soon 10 test -s "$work/slow.runs" || return
	signal run STOP
	start run2 outbox-run --handlers "$handlers" -j 4 || return
	assert_soon 30 none_is_open || return
	signal run CONT
	enqueue_numbers slow 20
	assert_soon 30 none_is_open || return
	assert_sql 'each job succeeded once' '24|24' "
		select count(*), count(distinct job_id) from outbox.attempt where outcome = 'succeeded'"
	assert_ledger
}

# A claimer that is frozen right after its runner has registered. When it goes on, the runner
# registers again, with the beat that was watched standing still.
test_worker_that_registers_again_lives() {
	noting_handler work
	start settle outbox-settle &&
		start sweep outbox-sweep --interval 1s &&
		start claim outbox-claim --lease 5s &&
		start run outbox-run --handlers "$handlers" || return
	assert_soon 10 grep -q event=registered "$work/run.log" || return
	signal claim STOP
	assert_soon 20 grep -q event=worker_dead "$work/sweep.log" || return
	signal claim CONT
	assert_soon 10 runner_beats || return
	assertEquals 'so often it was taken for dead' 1 "$(grep -c event=worker_dead "$work/sweep.log")"
}

runner_beats() {
	[ "$(sql 'select coalesce(max(beat), 0) from outbox.worker')" -ge 1 ]
}

. shunit2
