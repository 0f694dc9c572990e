#!/bin/sh
# outbox drain: runs what is owed until nothing is, with or without moving the clock.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

# The status is that of drain; what it prints is in $work/drain.out and .log.
drain() { # OPTION ...
	outbox drain --handlers "$handlers" "$@" >"$work/drain.out" 2>"$work/drain.log"
}

assert_drained() { # STATUS OPTION ...
	expected=$1
	shift
	drain "$@"
	assertEquals "exit status of drain $*" "$expected" $? || show_logs
	assert_sql 'the clock is back' 00:00:00 'select outbox.clock_offset()'
}

# One kind's line of the table: kind, succeeded, dead, cancelled, retrying, pending, due, attempts.
assert_counts() { # KIND NUMBER ...
	assertEquals "counts of kind $1" "$*" "$(awk -v kind="$1" '$1 == kind { $1 = $1; print }' "$work/drain.out")"
}

# Succeeds at the attempt that it is told in $1.
flaky_handler() { # KIND ATTEMPT
	noting_handler "$1" "[ \$OUTBOX_ATTEMPT -ge $2 ] || exit 75"
}

test_nothing_is_owed() {
	noting_handler idle
	assert_drained 0
	assertEquals 'counts' 1 "$(wc -l <"$work/drain.out")"
	assertEquals 'complaints' '' "$(cat "$work/drain.log")"
}

test_retries_and_delays_run_at_once() {
	flaky_handler flaky 5
	noting_handler later
	enqueue flaky '{"n":1}' >/dev/null
	enqueue later '{"n":1}' ", delay => '10 years'" >/dev/null
	assert_drained 0 --skip-ahead
	assert_counts flaky 1 0 0 0 0 0 5
	assert_counts later 1 0 0 0 0 0 1
	assert_sql 'each no earlier than it should' t "select bool_and(started_at >= before)
		from (select started_at, lag(next_at, 1, '-infinity') over (order by attempt) as before
			from outbox.attempt where kind = 'flaky') a"
	assert_sql 'in the time of the schema' t "select started_at > now() + interval '9 years'
		from outbox.attempt where kind = 'later'"
	assertEquals 'the schema is as it was' 0 "$(outbox verify >/dev/null; echo $?)"
	assert_ledger
}

test_without_skipping_only_what_is_due() {
	flaky_handler flaky 2
	noting_handler later
	enqueue flaky '{"n":1}' >/dev/null
	enqueue later '{"n":1}' ", delay => '1 h'" >/dev/null
	assert_drained 1
	assert_counts flaky 0 0 0 1 0 0 1
	assert_counts later 0 0 0 0 1 0 0
}

test_the_counts_are_of_this_drain() {
	flaky_handler flaky 2
	for round in 1 2; do
		enqueue flaky "{\"n\":$round}" >/dev/null
		assert_drained 0 --skip-ahead --json
		assertEquals 'counts' '{"kind":"flaky","succeeded":1,"dead":0,"cancelled":0,"retrying":0,"pending":0,"due":0,"attempts":2}' \
			"$(cat "$work/drain.out")"
	done
}

# Their backoffs differ by chance, and they take no more rounds than one of them.
test_many_flaky_jobs_take_few_rounds() {
	flaky_handler flaky 4
	enqueue_numbers flaky 50
	assert_drained 0 --skip-ahead --max-rounds 5
	assert_counts flaky 50 0 0 0 0 0 200
}

test_some_end_badly() {
	noting_handler good
	noting_handler bad 'exit 65'
	noting_handler worn 'exit 1'
	printf '[handler]\n[retry]\nmax_attempts = 3\n' >"$handlers/worn.ini"
	for kind in good bad worn nobody; do
		enqueue $kind '{"n":1}' >/dev/null
	done
	assert_drained 1 --skip-ahead
	assert_counts good 1 0 0 0 0 0 1
	assert_counts bad 0 1 0 0 0 0 1
	assert_counts worn 0 1 0 0 0 0 3
	assert_counts nobody 0 0 0 0 1 1 0
}

test_what_retries_for_ever_is_given_up() {
	noting_handler never 'exit 1'
	job=$(enqueue never '{"n":1}' ', max_attempts => 10000')
	assert_drained 75 --skip-ahead --max-rounds 7
	assert_counts never 0 0 0 1 0 0 8
	assertEquals 'said' "outbox drain: not done after 7 rounds: job $job of kind \"never\" has been tried 8 times" \
		"$(cat "$work/drain.log")"
	assert_ledger
}

test_schedules_fire() {
	noting_handler nightly
	flaky_handler yearly 2
	outbox schedule set nightly '0 3 * * *' --kind nightly --payload '{"n":1}' >/dev/null
	assert_drained 0 --skip-ahead
	assert_counts nightly 1 0 0 0 0 0 1
	assert_drained 0 --skip-ahead --until 3d
	assert_counts nightly 2 0 0 0 0 0 2
	outbox schedule set yearly '0 0 1 1 *' --kind yearly --payload '{"n":1}' >/dev/null
	assert_drained 0 --skip-ahead --until "$(sql "select next_at + interval '1 h' from outbox.schedule
		where name = 'yearly'")" --max-rounds 1000
	assert_counts yearly 1 0 0 0 0 0 2
	assert_drained 0
	assertEquals 'none without moving the clock' 1 "$(wc -l <"$work/drain.out")"
}

test_every_lane_and_what_handlers_enqueue() {
	handler first <<-'END'
		#!/bin/sh
		echo '{"outcome":"ok","enqueue":[{"kind":"second","payload":{"n":2},"delay":"1d"}]}' >&3
	END
	noting_handler second
	printf '[handler]\nlane = bulk\n' >"$handlers/second.ini"
	enqueue first '{"n":1}' >/dev/null
	assert_drained 0 --skip-ahead
	assert_counts first 1 0 0 0 0 0 1
	assert_counts second 1 0 0 0 0 0 1
}

test_a_paused_lane_is_left_alone() {
	noting_handler quick
	outbox lane pause default >/dev/null
	enqueue quick '{"n":1}' >/dev/null
	assert_drained 1 --skip-ahead
	assert_counts quick 0 0 0 0 1 1 0
}

start_draining() {
	noting_handler long "echo \$PPID >$work/runner; sleep 30"
	noting_handler later
	enqueue later '{"n":1}' ", delay => '1 h'" >/dev/null
	enqueue long '{"n":1}' ", delay => '2 h'" >/dev/null
	OUTBOX_GRACE=1s outbox drain --handlers "$handlers" --skip-ahead >"$work/drain.out" \
		2>"$work/drain.log" &
	echo $! >"$work/drain.pid"
	assert_soon 20 test -s "$work/runner"
}

has_gone() { # PID
	[ ! -e "/proc/$1" ]
}

test_an_interrupted_drain_puts_everything_back() {
	start_draining || return
	assert_sql 'the clock is ahead' t "select outbox.clock_offset() > '1 h'"
	signal drain TERM
	wait_for_end drain
	assertEquals 'exit status' 143 $?
	assert_sql 'the clock is back' 00:00:00 'select outbox.clock_offset()'
	assertTrue 'the runner has gone' "has_gone $(cat "$work/runner")"
	assert_counts later 1 0 0 0 0 0 1
	assert_counts long 0 0 0 1 0 1 0
	assert_ledger
}

test_a_killed_drain_leaves_no_programs() {
	start_draining || return
	left=$(tr '\0' '\n' <"/proc/$(cat "$work/runner")/environ" | sed -n 's/^OUTBOX_RUNTIME_DIR=//p')
	kill_program drain
	assert_soon 20 has_gone "$(cat "$work/runner")"
	rm -rf "$left"
}

test_a_lost_connection() {
	start_draining || return
	sql "select count(pg_terminate_backend(pid)) from pg_stat_activity
		where application_name = 'outbox' and datname = current_database()" >/dev/null
	wait_for_end drain
	assertEquals 'exit status' 69 $?
	assert_sql 'the clock is back' 00:00:00 'select outbox.clock_offset()'
	assertTrue 'the runner has gone' "has_gone $(cat "$work/runner")"
}

test_what_cannot_be_done() {
	assert_drained 66
	assertContains 'no handlers' "$(cat "$work/drain.log")" 'there is no handler in'
	noting_handler quick
	assert_drained 64 --until 1d
	assert_drained 65 --skip-ahead --until yesterdays
	drain --db 'host=/nowhere'
	assertEquals 'no database' 69 $?
	sql "create role visitor_$$ login; grant usage on schema outbox to visitor_$$;
		grant all on all tables in schema outbox to visitor_$$"
	drain --db "user=visitor_$$" --skip-ahead
	assertEquals 'not the owner' 77 $?
	assertEquals 'nothing ran' 0 "$(runs_of quick)"
	sql "drop owned by visitor_$$; drop role visitor_$$"
	printf '[handler]\nmode = wrong\n' >"$handlers/quick.ini"
	assert_drained 78
}

# shellcheck disable=SC1091
. shunit2
