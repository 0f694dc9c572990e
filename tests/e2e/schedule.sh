#!/bin/sh
# Schedules, fired by sweepers. A tick may be any instant, so tests set the next one themselves
# and need not wait for a full minute.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

schedule() { # ACTION NAME ...
	outbox schedule "$@" >>"$work/schedule.out" 2>>"$work/schedule.log" ||
		fail_with_logs "outbox schedule $*"
}

# The next tick, an SQL interval from now; sweepers are told, as schedule_set does. Ticks have
# whole minutes between them, so the keys of their jobs count only seconds.
due_in() { # NAME INTERVAL
	sql "update outbox.schedule
		set next_at = greatest(now() + interval '$2', last_at + interval '1 s')
		where name = '$1' returning next_at" >"$work/$1.nominal"
	sql "select pg_notify('outbox_schedule', '')" >/dev/null
}

start_sweepers() {
	for sweeper in sweep1 sweep2 sweep3; do
		start $sweeper outbox-sweep --log-level debug || return
	done
}

logged() { # EVENT: how often all sweepers have logged it
	cat "$work"/sweep*.log | grep -c "event=$1 "
}

has_moved_on() { # NAME
	sql "select next_at > now() + interval '10 s' from outbox.schedule where name = '$1'" | grep -q t
}

# ---- SCH-03

test_three_sweepers_fire_a_tick_once() {
	schedule set report '0 0 1 1 *' --kind report --payload '{"at":"{{nominal}}"}'
	start_sweepers || return
	for tick in 1 2 3 4 5; do
		due_in report '300 ms'
		assert_soon 10 has_moved_on report || return
		assert_sql "jobs after tick $tick" "$tick" 'select count(*) from outbox.job'
		assert_sql 'it ran within 250 ms of its time' t "select max(j.created_at) - max(s.last_at)
			between interval '0' and interval '250 ms' from outbox.job j, outbox.schedule s"
	done
	assert_sql 'the keys name the ticks' 5 "select count(*) from outbox.job
		where dedupe_key = 'schedule:report:' || (payload ->> 'at')"
	assertEquals 'logged by one of them each' 5 "$(logged schedule_fired)"
	for sweeper in sweep1 sweep2 sweep3; do
		stop $sweeper
		assertEquals "exit status of $sweeper" 0 $?
	done
}

test_a_sleeping_sweeper_fires_nothing_twice() {
	schedule set report '0 0 1 1 *' --kind report
	start_sweepers || return
	signal sweep1 STOP
	due_in report '100 ms'
	assert_soon 10 has_moved_on report || return
	signal sweep1 CONT
	due_in report '100 ms'
	assert_soon 10 has_moved_on report || return
	stop sweep1
	assert_sql 'jobs' 2 'select count(*) from outbox.job'
}

# ---- SCH-04

test_a_restart_neither_loses_nor_doubles() {
	schedule set report '0 0 1 1 *' --kind report
	due_in report '-50 s'
	start sweep outbox-sweep --log-level debug || return
	assert_soon 10 has_moved_on report || return
	assert_sql 'jobs' 1 'select count(*) from outbox.job'
	kill_program sweep
	# as if the row came from a backup: the key of the tick still knows it
	sql "update outbox.schedule set next_at = '$(cat "$work/report.nominal")'"
	start sweep outbox-sweep --log-level debug || return
	assert_soon 10 has_moved_on report || return
	assert_sql 'jobs' 1 'select count(*) from outbox.job'
	assertEquals 'said' 1 "$(logged schedule_exists)"
}

test_a_missed_tick_is_skipped_and_said_so() {
	schedule set report '0 0 1 1 *' --kind report
	due_in report '-10 minutes'
	outbox-sweep --once 2>"$work/sweep.log"
	assertEquals 'exit status' 0 $?
	assertEquals 'event' 1 "$(logged 'schedule_skipped schedule=report')"
	assert_sql 'jobs' 0 'select count(*) from outbox.job'
	outbox-sweep --once 2>"$work/sweep.log"
	assertEquals 'not again' 0 "$(logged schedule_skipped)"
}

test_a_paused_one_waits() {
	schedule set report '0 0 1 1 *' --kind report
	schedule set beside '0 0 1 1 *' --kind beside
	schedule pause report
	start sweep outbox-sweep || return
	due_in report '0 s'
	due_in beside '200 ms'
	assert_soon 10 has_moved_on beside || return
	assert_sql 'jobs' 'beside' 'select kind from outbox.job'
	schedule resume report
	due_in report '200 ms'
	assert_soon 10 has_moved_on report || return
	assert_sql 'jobs' 'beside,report' "select string_agg(kind, ',' order by id) from outbox.job"
}

test_a_failing_function_stops_no_other() {
	sql "create function fan_out(scheduled_at timestamptz) returns void language plpgsql as \$\$
		begin
			perform outbox.enqueue('child', format('{\"n\":%s}', n)) from generate_series(1, 3) n;
			if current_setting('fan_out.fails', true) = 'on' then
				raise exception 'no customers';
			end if;
		end \$\$;
		alter database $PGDATABASE set fan_out.fails = 'on'"
	schedule set a '0 0 1 1 *' --function fan_out
	schedule set b '0 0 1 1 *' --kind beside
	start sweep outbox-sweep || return
	due_in a '0 s'
	due_in b '0 s'
	assert_soon 10 has_moved_on a || return
	assert_soon 10 has_moved_on b || return
	assert_sql 'only the other one ran' beside 'select kind from outbox.job'
	assertEquals 'said' 1 "$(logged 'schedule_failed schedule=a')"
	assertContains 'listed' "$(outbox schedule list)" 'no customers'
	stop sweep

	sql "alter database $PGDATABASE reset fan_out.fails"
	start sweep outbox-sweep || return
	due_in a '0 s'
	assert_soon 10 has_moved_on a || return
	assert_sql 'all that it enqueues' 3 "select count(*) from outbox.job where kind = 'child'"
}

# The sweeper learns of it at once, however long its interval is.
test_a_new_schedule_is_heard_of() {
	start sweep outbox-sweep --interval 1h || return
	schedule set soon '* * * * *' --kind soon
	sql "update outbox.schedule set next_at = now() + interval '1 s'"
	schedule set soon '* * * * *' --kind soon
	assert_soon 5 jobs_are pending 1
}

# Without notifications it looks once an interval.
test_behind_a_pooler() {
	start sweep outbox-sweep --pooled --interval 200ms || return
	schedule set report '0 0 1 1 *' --kind report
	sql "update outbox.schedule set next_at = now()"
	assert_soon 10 has_moved_on report || return
	assert_sql 'jobs' 1 'select count(*) from outbox.job'
}

# The database goes away and comes back within the tick.
test_ticks_survive_lost_connections() {
	schedule set report '0 0 1 1 *' --kind report
	start sweep outbox-sweep || return
	sql "select count(pg_terminate_backend(pid)) from pg_stat_activity
		where application_name = 'outbox-sweep' and datname = current_database()" >/dev/null
	due_in report '100 ms'
	assert_soon 20 has_moved_on report || return
	assert_sql 'jobs' 1 'select count(*) from outbox.job'
}

test_a_schedule_drives_a_handler() {
	noting_handler tick
	schedule set tick '0 0 1 1 *' --kind tick --payload '{"n":7,"at":"{{nominal_date}}"}' \
		--time-zone Pacific/Kiritimati
	start_pipeline || return
	due_in tick '500 ms'
	assert_soon 10 jobs_are succeeded 1
	assertEquals 'runs' '1 7' "$(cat "$work/tick.runs")"
	stop_pipeline
}

# Random expressions around shifts of the clocks, against a search minute by minute.
test_ticks_agree_with_a_plain_search() {
	python3 "$root/tests/fuzz/cron.py" --seed 1 --count 300 >"$work/cron.log" 2>&1
	assertEquals 'exit status' 0 $? || show_logs
}

# shellcheck disable=SC1091
. shunit2
