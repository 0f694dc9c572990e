#!/bin/sh
# The five programs together: what is committed runs, what is rolled back does not.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/orders.sh"

# The scripts of orders that are not kept: rolled back, whole or to a savepoint.
prepare_rollbacks() { # KIND
	sed 's/commit/rollback/' "$work/order.sql" >"$work/rollback.sql"
	cat >"$work/savepoint.sql" <<-END
		begin;
		insert into orders default values returning id \gset
		select status from outbox.enqueue('$1', format('{"n":%s}', :id));
		savepoint s;
		insert into orders default values returning id \gset
		select status from outbox.enqueue('$1', format('{"n":%s}', :id));
		rollback to s;
		commit;
	END
}

test_commit_runs_and_rollback_does_not() {
	noting_handler order.placed
	prepare_orders order.placed
	prepare_rollbacks order.placed
	start_pipeline -j 4 || return
	pgbench -n -c 4 -j 1 -t 2500 -f "$work/order.sql@5" -f "$work/rollback.sql@4" \
		-f "$work/savepoint.sql@1" >"$work/pgbench.log" 2>&1
	assertContains 'the load itself' "$(cat "$work/pgbench.log")" \
		'number of transactions actually processed: 10000/10000'
	assert_soon 120 none_is_open || return

	assert_orders_were_run order.placed
	assertEquals 'runs' "$(wc -l <"$work/orders.kept")" "$(runs_of order.placed)"
	assert_sql 'attempts' "succeeded|1|$(wc -l <"$work/orders.kept")" \
		'select outcome, attempt, count(*) from outbox.attempt group by 1, 2'
	assert_ledger
	stop_pipeline
}

# The reply of a handler is kept, and the four ways of ending are told apart.
test_outcomes() {
	handler is.ok <<-'END'
		#!/bin/sh
		cat
	END
	handler is.permanent <<-'END'
		#!/bin/sh
		echo 'no such user' >&2
		exit 65
	END
	handler is.temporary <<-'END'
		#!/bin/sh
		test "$OUTBOX_ATTEMPT" -gt 2
	END
	handler is.unwanted <<-'END'
		#!/bin/sh
		echo '{"outcome":"cancel","code":"unsubscribed","reason":"the user left"}' >&3
	END
	for kind in is.ok is.permanent is.temporary is.unwanted; do
		enqueue "$kind" '{"n":1}' >/dev/null
	done
	start_pipeline || return
	assert_soon 20 none_is_open || return

	assert_sql 'states' 'is.ok|succeeded|1|
is.permanent|dead|1|exit_65
is.temporary|succeeded|3|
is.unwanted|cancelled|1|unsubscribed' \
		'select kind, state, attempts, code from outbox.jobs order by kind'
	assert_sql 'a permanent failure keeps its error' 'no such user' \
		"select trim(e'\n' from error) from outbox.attempt where kind = 'is.permanent'"
	assert_sql 'temporary failures back off' 't|t|t' "
		select bool_and(outcome = 'failed'), bool_and(code = 'exit_1'),
			bool_and(next_at between finished_at + interval '0.5 s' * attempt
				and finished_at + interval '1 s' * attempt + interval '0.1 s')
		from outbox.attempt where kind = 'is.temporary' and attempt < 3"
	assert_sql 'the reply is kept' '{"n": 1}' \
		"select response::jsonb -> 'payload' from outbox.attempt where kind = 'is.ok'"
	assert_ledger
}

test_a_second_runner_shares_the_work() {
	noting_handler slow 'sleep 0.1'
	enqueue_numbers slow 60
	start_pipeline -j 2 || return
	assert_soon 20 test -s "$work/slow.runs" || return
	start run2 outbox-run --handlers "$handlers" -j 2 || return
	assert_soon 30 none_is_open || return

	assert_sql 'all jobs once, by two runners that each did a fair part' '60|2|t' "
		select sum(n), count(*), min(n) >= 15 from (
			select worker, count(*) as n from outbox.attempt where outcome = 'succeeded'
			group by 1) w"
	assertEquals 'runs' 60 "$(runs_of slow)"
	assert_ledger
}

test_plain_shell_pipe() {
	noting_handler work
	enqueue_numbers work 130
	outbox-claim --once --limit 100 --jobs - 2>"$work/claim.log" |
		tee "$work/jobs.frames" |
		outbox-run --handlers "$handlers" --jobs - --results - 2>"$work/run.log" |
		tee "$work/results.frames" |
		outbox-settle --results - 2>"$work/settle.log"
	assertEquals 'exit status' 0 $? || show_logs

	assertEquals 'runs' 100 "$(numbers_run work | wc -l)"
	assertTrue 'jobs' 'jobs_are succeeded 100 && jobs_are pending 30' || show_logs
	assert_sql 'nothing stays in flight' 0 'select count(*) from outbox.claim'
	assertEquals 'frames of jobs' 'hello 1, job 100' "$(count_frames "$work/jobs.frames")"
	assertEquals 'frames of results' 'hello 1, result 100' \
		"$(count_frames "$work/results.frames")"
	assert_ledger
}

count_frames() { # FILE
	outbox-frame decode <"$1" | python3 -c '
import collections, json, sys
types = collections.Counter(json.loads(line)["type"] for line in sys.stdin)
print(", ".join(f"{name} {count}" for name, count in sorted(types.items())))'
}

# A runner in a pipe that is killed: what it had goes back to the queue at once.
test_plain_shell_pipe_gives_back_what_was_not_run() {
	noting_handler work
	enqueue_numbers work 20
	outbox-claim --once --limit 20 --jobs - 2>"$work/claim.log" | head -c 200 |
		outbox-run --handlers "$handlers" --jobs - --results - 2>"$work/run.log" |
		outbox-settle --results - 2>"$work/settle.log"
	assert_sql 'nothing stays in flight' 0 'select count(*) from outbox.claim'
	assert_ledger
}

test_a_claim_into_a_pipe_that_fails_says_so() {
	sql 'drop function outbox.kinds_owed(text)'
	outbox-claim --once --jobs - >"$work/jobs.frames" 2>"$work/claim.log"
	assertEquals 'exit status' 78 $? || show_logs
}

# CLM-02: deaf but alive, then gone: the tick finds the jobs.
test_jobs_run_without_a_listener() {
	noting_handler work
	start_pipeline || return
	enqueue_numbers work 10
	assert_soon 10 none_is_open || return

	sql "select pg_terminate_backend(pid) from pg_stat_activity
		where application_name = 'outbox-listen'" >"$work/terminated"
	assertEquals 'one session was cut' t "$(cat "$work/terminated")"
	enqueue_numbers work 10
	assert_soon 15 none_is_open || return
	assertFalse 'the listener survives it' "has_ended $(pid_of listen)"

	kill_program listen
	enqueue_numbers work 10
	assert_soon 15 none_is_open || return
	assertEquals 'runs' 30 "$(runs_of work)"
	assert_ledger
}

# CLM-06: a job that has the lower id, and was due before the other, is committed when that one
# has long been run; the listener, too, was started meanwhile.
test_a_job_that_is_committed_late() {
	noting_handler work
	start_pipeline || return
	assert_soon 10 are_asleep 1 || return
	mkfifo "$work/late"
	psql -qXAt <"$work/late" >"$work/late.out" 2>&1 &
	echo $! >"$work/late.pid"
	exec 8>"$work/late"
	echo "begin; select id from outbox.enqueue('work', '{\"n\":1}');" >&8
	assert_soon 10 test -s "$work/late.out" || return
	for n in 2 3; do
		enqueue_numbers work 1
		assert_soon 20 jobs_are succeeded $((n - 1)) || return
		[ $n -eq 3 ] || { stop listen && start listen outbox-listen; }
	done
	echo 'commit;' >&8
	exec 8>&-
	assert_soon 5 jobs_are succeeded 3
	assert_sql 'it had the lowest id' t "select min(id) = $(cat "$work/late.out") from outbox.job"
	assert_ledger
	stop_pipeline
}

# Two claimers of one lane, each with a runner, contend for the same rows.
test_two_claimers_never_run_one_attempt_twice() {
	noting_handler work
	start settle outbox-settle &&
		start run outbox-run --handlers "$handlers" -j 2 &&
		start run2 outbox-run --handlers "$handlers" -j 2 \
			--jobs "ipc://$OUTBOX_RUNTIME_DIR/jobs-other" &&
		start claim outbox-claim &&
		start claim2 outbox-claim --jobs "ipc://$OUTBOX_RUNTIME_DIR/jobs-other" &&
		start listen outbox-listen || return
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		enqueue_numbers work 200
	done
	assert_soon 60 none_is_open || return
	assertEquals 'runs' 2000 "$(runs_of work)"
	assert_sql 'each attempt once, by both' '2000|1|2' \
		'select count(*), max(attempt), count(distinct worker) from outbox.attempt'
	assert_ledger
}

# A drain lets handlers finish, hands the rest back unchanged, and loses nothing.
test_drain_in_the_middle_of_work() {
	noting_handler slow 'sleep 0.3'
	enqueue_numbers slow 40
	start_pipeline -j 4 || return
	assert_soon 20 test -s "$work/slow.runs" || return
	stop_pipeline
	assert_sql 'nothing stays in flight' 0 'select count(*) from outbox.claim'
	ran=$(runs_of slow)
	assertTrue "some ($ran) were run, not all" "test $ran -gt 0 && test $ran -lt 40"
	assert_sql 'what was run is settled' "$ran" \
		"select count(*) from outbox.attempt where outcome = 'succeeded'"
	assert_sql 'what was not is charged to nothing' '' \
		"select * from outbox.attempt where outcome not in ('succeeded', 'released')"

	start_pipeline -j 4 || return
	assert_soon 30 none_is_open || return
	assertEquals 'runs' 40 "$(runs_of slow)"
	assert_ledger
}

. shunit2
