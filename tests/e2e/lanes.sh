#!/bin/sh
# Lanes keep kinds apart: what is slow in one delays nothing in another; pausing, resuming and
# moving kinds between them; --reserve within one.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

lane() { # ACTION ...
	outbox lane "$@" >>"$work/lane.out" 2>>"$work/lane.log" || fail_with_logs "outbox lane $*"
}

manifest() { # KIND, and what is below [handler] on stdin
	{
		echo '[handler]'
		cat
	} >"$handlers/$1.ini"
}

# A runner and a claimer of one more lane; the options are the runner's.
start_lane() { # LANE [OPTION ...]
	name=$1
	shift
	start "run-$name" outbox-run --lane "$name" --handlers "$handlers" "$@" &&
		start "claim-$name" outbox-claim --lane "$name" --lease 5s
}

# The longest that a job of the kind has waited until it began, in whole milliseconds.
longest_wait() { # KIND
	sql "select (max(extract(epoch from a.started_at - j.run_at)) * 1000)::integer
		from outbox.attempt a join outbox.job j on j.id = a.job_id where j.kind = '$1'"
}

assert_prompt() { # KIND MILLISECONDS
	longest=$(longest_wait "$1")
	assertTrue "a job of kind $1 has waited for $longest ms" "[ $longest -lt $2 ]" || show_logs
}

count_succeeded() { # KIND
	sql "select count(*) from outbox.attempt where kind = '$1' and outcome = 'succeeded'"
}

has_succeeded() { # KIND COUNT
	[ "$(count_succeeded "$1")" = "$2" ]
}

is_running() { # KIND COUNT
	[ "$(sql "select count(*) from outbox.jobs where kind = '$1' and state = 'running'")" -ge "$2" ]
}

# Five jobs, each enqueued when the one before has succeeded.
run_one_by_one() { # KIND
	for number in 1 2 3 4 5; do
		enqueue "$1" "{\"n\":$number}" >/dev/null
		assert_soon 10 has_succeeded "$1" "$number" || return
	done
}

test_a_slow_lane_delays_no_other() {
	noting_handler slow 'sleep 3'
	noting_handler quick
	echo 'lane = bulk' | manifest slow
	start_pipeline -j 1 && start_lane bulk -j 1 || return
	assert_soon 10 are_asleep 2 || return
	enqueue_numbers slow 4
	assert_soon 10 is_running slow 1 || return
	run_one_by_one quick || return
	assertTrue 'slow ones are still waiting' "[ $(count_succeeded slow) -le 2 ]"
	assert_prompt quick 1000
	assert_sql 'each in its lane' 'bulk|1,default|1' "select string_agg(lane || '|' || kinds, ','
		order by lane) from outbox.lane_list()"
}

# What outbox-claim(1) promises: below its reserve, a kind waits for no other.
test_a_flood_does_not_delay_a_reserved_kind() {
	noting_handler flood 'sleep 1'
	noting_handler reserved
	start settle outbox-settle && start sweep outbox-sweep &&
		start run outbox-run --handlers "$handlers" -j 3 &&
		start claim outbox-claim --reserve reserved=1 && start listen outbox-listen || return
	assert_soon 10 are_asleep 1 || return
	enqueue_numbers flood 10
	assert_soon 10 is_running flood 2 || return
	run_one_by_one reserved || return
	assertTrue 'the flood is still there' "[ $(count_succeeded flood) -lt 8 ]"
	assert_prompt reserved 1000
	assert_soon 20 has_succeeded flood 10 || return
	assert_sql 'and has all slots but one' 2 "select max(count) from (select count(*)
		from outbox.attempt a join outbox.attempt b on b.kind = a.kind
			and a.started_at >= b.started_at and a.started_at < b.started_at + interval '900 ms'
		where a.kind = 'flood' group by a.job_id) o"
}

test_a_paused_lane_waits_and_goes_on() {
	noting_handler quick
	noting_handler beside
	echo 'lane = other' | manifest beside
	start_pipeline -j 2 && start_lane other || return
	lane pause default --by alice
	enqueue_numbers quick 3
	enqueue_numbers beside 1
	assert_soon 10 has_succeeded beside 1 || return
	assertEquals 'runs' 0 "$(runs_of quick)"
	assertContains 'explained' "$(outbox explain "$(sql 'select job_id from outbox.ready limit 1')")" \
		'paused by alice'
	assert_sql 'listed' 't|3|0' "select paused, owed, running from outbox.lane_list()
		where lane = 'default'"
	lane resume default
	assert_soon 3 has_succeeded quick 3
	assert_ledger
}

# Claimers that sleep, and ones that nobody wakes.
test_resuming_wakes_a_sleeping_claimer() {
	noting_handler quick
	start_pipeline || return
	enqueue_numbers quick 1
	assert_soon 10 has_succeeded quick 1 || return
	lane pause default
	enqueue_numbers quick 1
	lane set default --notify off
	lane resume default
	assert_soon 3 has_succeeded quick 2
	assert_sql 'and they are left alone now' f "select notify from outbox.lane"
}

# Its manifest says another lane, under a higher version, while a runner with the old one is
# still there.
test_a_kind_moves_while_its_jobs_wait() {
	# shellcheck disable=SC2016 # for the handler
	noting_handler moves 'echo "$PPID" >>'"$work/runners"
	printf 'version = 1\nlane = default\n' | manifest moves
	start_pipeline -j 2 || return
	enqueue_numbers moves 1
	assert_soon 10 has_succeeded moves 1 || return
	lane pause default
	enqueue_numbers moves 5
	printf 'version = 2\nlane = bulk\n' | manifest moves
	start_lane bulk -j 2 || return
	assert_soon 10 has_succeeded moves 6 || return
	lane resume default
	enqueue_numbers moves 5
	assert_soon 10 has_succeeded moves 11 || return
	assertEquals 'those that ran it' "$(pid_of run) $(pid_of run-bulk)" "$(uniq "$work/runners" | paste -sd ' ')"

	# a runner that has the old manifest, and comes later, does not bring it back
	printf 'version = 1\nlane = default\n' | manifest moves
	stop run
	start run outbox-run --handlers "$handlers" || return
	enqueue_numbers moves 5
	assert_soon 10 has_succeeded moves 16 || return
	assertEquals 'still the new one' "$(pid_of run-bulk)" "$(tail -n 1 "$work/runners")"
	assert_ledger
}

test_the_command_line() {
	assertContains 'a new lane' "$(outbox lane pause new --by bob)" 'bob'
	assertContains 'as JSON' "$(outbox lane list --json)" '{"lane":"new","paused":true,'
	outbox lane resume none 2>"$work/error"
	assertEquals 'no such lane' 1 $?
	assertEquals 'said' 'outbox lane: there is no lane "none"' "$(cat "$work/error")"
	outbox lane pause 'No Lane' 2>"$work/error"
	assertEquals 'no name for a lane' 65 $?
	for wrong in '' 'stop x' 'pause' 'list x' 'set x' 'pause x --notify on' 'set x --notify maybe'; do
		# shellcheck disable=SC2086 # words
		outbox lane $wrong 2>"$work/error"
		assertEquals "outbox lane $wrong" 64 $?
	done
}

# shellcheck disable=SC1091
. shunit2
