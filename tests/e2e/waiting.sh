#!/bin/sh
# Waiting: delayed jobs start at their time, cost nothing until then, and are due at once when
# the outbox's clock is moved. Sleeping: a claimer hears what it waits for.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

# How tests/bench/delayed.sh measures it, it is milliseconds; here others use the machine too.
test_a_delayed_job_starts_at_its_time() {
	noting_handler later
	start_pipeline || return
	assert_soon 10 are_asleep 1 || return
	for delay in '1 ms' '250 ms' '1.5 s' '2 s'; do
		enqueue later '{"n":1}' ", delay => '$delay'" >/dev/null
	done
	assert_soon 10 jobs_are succeeded 4 || return
	assert_sql 'waits before and after the time' t "select min(w) >= interval '0'
			and max(w) < interval '1 s'
		from (select a.started_at - j.run_at as w from outbox.attempt a
			join outbox.job j on j.id = a.job_id) x"
	stop_pipeline
}

# Woken again and again, the claimer gives the lock up that makes producers notify. It must look
# then and sleep anew, also when nothing that it was woken for is for it.
test_nudges_for_nobody_here_leave_no_job_behind() {
	noting_handler mine
	start_pipeline || return
	for round in 1 2 3; do
		assert_soon 4 are_asleep 1 || return
		for kind in a b c d e f g h; do
			echo "notify outbox, 'nobodys.$kind';"
		done | psql -qX
		enqueue mine '{"n":1}' >/dev/null
		assert_soon 4 jobs_are succeeded "$round" || return
	done
	stop_pipeline
}

transactions() {
	sql "select xact_commit + xact_rollback from pg_stat_database
		where datname = current_database()"
}

# In hundredths of a second.
cpu_time() { # PID
	cut -d ' ' -f 14,15 "/proc/$1/stat" | { read -r user system && echo $((user + system)); }
}

# Rows of ready are all that a claimer could look at; autovacuum's transactions would count.
# What is left are beats, pings, a first tick, and the sessions of psql; a claimer that looked
# every second would add forty.
test_a_million_waiting_jobs_cost_nothing() {
	noting_handler later
	sql "alter table outbox.ready set (autovacuum_enabled = off);
		insert into outbox.ready (kind, priority, due_at, job_id, attempt)
		select 'later', 2, outbox.now() + interval '1 h' + n * interval '1 ms', n, 0
		from generate_series(1, 1000000) n"
	start settle outbox-settle && start run outbox-run --handlers "$handlers" &&
		start claim outbox-claim && start listen outbox-listen || return
	assert_soon 20 are_asleep 1 || return
	transactions_before=$(transactions)
	cpu_before=$(cpu_time "$(pid_of claim)")
	let_pass 20
	asked=$(($(transactions) - transactions_before))
	assertTrue "$asked transactions in 20 s" "[ $asked -lt 40 ]"
	used=$(($(cpu_time "$(pid_of claim)") - cpu_before))
	assertTrue "the claimer has used $used/100 s" "[ $used -lt 10 ]"

	enqueue later '{"n":1}' ", delay => '300 ms'" >/dev/null
	assert_soon 10 jobs_are succeeded 1
}

test_the_clock_moves_under_a_running_pipeline() {
	noting_handler later
	noting_handler tick
	outbox schedule set yearly '0 0 1 1 *' --kind tick --payload '{"n":1}' >/dev/null
	start_pipeline || return
	assert_soon 10 are_asleep 1 || return
	job=$(enqueue later '{"n":1}' ", delay => '400 days'")
	sql "select outbox.clock_move('400 days')" >/dev/null
	assert_soon 5 jobs_are succeeded 1 || return
	assert_sql 'the year went by' t "select started_at >= j.run_at and finished_at >= j.run_at
		and started_at < now() + interval '401 days' and duration_ms < 5000
		from outbox.attempt join outbox.job j on j.id = job_id where job_id = $job"
	sql "select outbox.clock_move(min(next_at) - outbox.now()) from outbox.schedule" >/dev/null
	assert_soon 5 jobs_are succeeded 2 || return
	# a lease and more: beats go on, and nobody is taken for dead
	noting_handler long 'sleep 3'
	stop run && start run outbox-run --handlers "$handlers" || return
	enqueue long '{"n":1}' >/dev/null
	assert_soon 10 jobs_are running 1 || return
	sql "select outbox.clock_move('1 day')" >/dev/null
	assert_soon 10 jobs_are succeeded 3 || return
	sql 'select outbox.clock_move(-outbox.clock_offset())' >/dev/null
	enqueue later '{"n":2}' >/dev/null
	assert_soon 5 jobs_are succeeded 4 || return
	assert_sql 'all at the first attempt' 4 'select count(*) from outbox.attempt'
	assert_ledger
	stop_pipeline
}

# shellcheck disable=SC1091
. shunit2
