#!/bin/sh
# What keeps an installation healthy: retention, roles, verify, doctor, tail, metrics,
# completion.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

# Jobs that ended so many days ago.
ended_jobs() { # KIND OUTCOME COUNT DAYS
	sql "with made as (
			insert into outbox.job (id, created_at, run_at, priority, kind, payload)
			select outbox.id_at(now() - interval '$4 days') | nextval('outbox.job_seq'),
				now() - interval '$4 days', now() - interval '$4 days', 2, '$1', '{}'
			from generate_series(1, $3) returning id)
		insert into outbox.attempt (job_id, attempt, kind, outcome, finished_at)
		select id, 1, '$1', '$2', now() - interval '$4 days' from made"
}

jobs_left() { # KIND: prints how many
	sql "select count(*) from outbox.job where kind = '$1'"
}

# ---- retention

test_sweep_deletes_what_is_past_its_time() {
	ended_jobs old succeeded 250 8
	ended_jobs young succeeded 5 6
	ended_jobs dead dead 40 400
	ended_jobs cancelled cancelled 3 91
	enqueue pending '{}' >/dev/null
	"$bin/outbox-sweep" --once --no-retention --events none 2>>"$work/sweep.log"
	assertEquals 'nothing goes without retention' 250 "$(jobs_left old)"
	"$bin/outbox-sweep" --once --retention-batch 20 --events none 2>>"$work/sweep.log"
	assertEquals 'exit status' 0 $?
	assert_sql 'what is left' 'dead:40 pending:1 young:5' "
		select string_agg(kind || ':' || count, ' ' order by kind)
		from (select kind, count(*) from outbox.job group by 1) j"
	assertContains 'one line with the counts' "$(cat "$work/sweep.log")" \
		'event=retained succeeded=250 cancelled=3'
}

recovered() {
	[ "$(sql "select count(*) from outbox.attempt where outcome = 'lost'")" = 1 ]
}

test_recovery_goes_on_while_there_is_much_to_delete() {
	ended_jobs old succeeded 20000 8
	enqueue lost '{}' >/dev/null
	start sweep outbox-sweep --interval 200ms --retention-batch 1 || return
	sql "select count(*) from outbox.claim('gone', 'default', '{lost}', '{1}', 1)" >/dev/null
	assert_soon 10 recovered
	assertNotEquals 'there is still much to delete' 0 "$(jobs_left old)"
	stop sweep
	assertEquals 'and the sweeper stops at once' 0 $?
	assertContains 'and says how far it came' "$(cat "$work/sweep.log")" 'event=retained succeeded='
}

# shellcheck disable=SC1091
. shunit2
