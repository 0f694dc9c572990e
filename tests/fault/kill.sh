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

# RUN-12: the orphaned handler must not go on working beside the next attempt.
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

# SWP-01, RUN-12: a runner that is frozen past its lease is taken for dead; it must not settle
# afterwards.
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

# ---- RUN-11: a job that takes its runner along, each time

# Runners that are started again as a supervisor does it, until $work/enough exists.
start_supervised_runner() {
	(
		until [ -e "$work/enough" ]; do
			env -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE outbox-run --handlers "$handlers" \
				>>"$work/run.out" 2>>"$work/run.log" &
			echo $! >"$work/run.pid"
			wait $!
		done
	) 2>/dev/null &
	echo $! >"$work/supervisor.pid"
}

ledger_of() { # ID
	sql "select string_agg(outcome || coalesce(' ' || code, ''), ', ' order by attempt)
		from outbox.attempt where job_id = $1"
}

job_is() { # ID STATE
	[ "$(sql "select outbox.job_state($1)")" = "$2" ]
}

runs_are() { # KIND COUNT
	[ "$(runs_of "$1")" -eq "$2" ]
}

test_a_job_that_kills_its_runner() {
	# shellcheck disable=SC2016 # for the handler
	noting_handler killer 'kill -9 $PPID; sleep 60'
	noting_handler quick
	printf '[retry]\nmax_attempts = 1\n' >"$handlers/killer.ini"
	start settle outbox-settle && start sweep outbox-sweep --interval 200ms &&
		start claim outbox-claim --lease 1s && start listen outbox-listen || return
	start_supervised_runner
	killer=$(enqueue killer '{"n":1}')
	assert_soon 60 job_is "$killer" dead || return
	assertEquals 'crashes use up no attempts, and the third is the last' \
		'lost worker_lost, lost worker_lost, dead crash_loop' "$(ledger_of "$killer")"
	assertEquals 'runs' 3 "$(runs_of killer)"

	killer=$(enqueue killer '{"n":2}')
	assert_soon 20 runs_are killer 4 || return
	assert_sql 'while it circles' requested "select outbox.cancel($killer, 'ann', 'stop it')"
	assert_soon 20 job_is "$killer" cancelled || return
	assertEquals 'it is recovered and not run again' 'cancelled worker_lost' "$(ledger_of "$killer")"
	enqueue_numbers quick 1
	assert_soon 20 runs_are quick 1
	assertEquals 'runs' 4 "$(runs_of killer)"
	touch "$work/enough"
	assert_ledger
}

# ---- SWP-01: the lease is a matter of beats, however long a job takes and whoever enqueued it

test_long_jobs_are_not_rescued() {
	noting_handler long 'sleep 3'
	outbox schedule set tick '0 0 1 1 *' --kind long --payload '{"n":2}' >/dev/null
	start settle outbox-settle && start sweep outbox-sweep --interval 200ms &&
		start run outbox-run --handlers "$handlers" && start claim outbox-claim --lease 1s &&
		start listen outbox-listen || return
	enqueue_numbers long 1
	sql "update outbox.schedule set next_at = now() returning pg_notify('outbox_schedule', '')" >/dev/null
	assert_soon 10 runs_are long 2 || return
	assert_soon 20 none_is_open || return
	assert_sql 'one attempt each' 'succeeded|1|2' 'select outcome, attempt, count(*)
		from outbox.attempt group by 1, 2'
	assertEquals 'runs' '1 2' "$(numbers_run long | xargs)"
	assert_ledger
}

# ---- OPS-03: who is busy is given nothing, so nothing is lost with it but what it runs

test_a_busy_runner_hoards_nothing() {
	noting_handler endless 'sleep 600'
	noting_handler quick
	start settle outbox-settle && start sweep outbox-sweep --interval 200ms &&
		start run outbox-run --handlers "$handlers" -j 1 && start claim outbox-claim --lease 1s &&
		start listen outbox-listen || return
	endless=$(enqueue endless '{"n":1}')
	assert_soon 10 runs_are endless 1 || return
	start run2 outbox-run --handlers "$handlers" -j 1 || return
	enqueue_numbers quick 100
	assert_soon 30 jobs_are succeeded 100 || return
	assert_sql 'all at once, by one runner' '1|1' "select max(attempt), count(distinct worker)
		from outbox.attempt where kind = 'quick'"
	noting_handler endless
	kill_program run
	assert_soon 20 none_is_open || return
	assert_sql 'nothing else was lost' "$endless" "select string_agg(job_id::text, ' ')
		from outbox.attempt where outcome <> 'succeeded'"
	assert_ledger
}

. shunit2
