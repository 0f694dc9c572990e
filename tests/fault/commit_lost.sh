#!/bin/sh
# The settler cannot know whether its commit went through (SET-03): the answer is lost, or the
# server crashes in the middle. It settles again, and every effect is there once.
#
# environment: CRASH_ROUNDS  crashes of the server (default 10; the case says 100)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here

# One of these tests crashes the server, so it is never one that is shared with other tests.
if [ -z "${OUTBOX_OWN_SERVER:-}" ]; then
	export OUTBOX_OWN_SERVER=1
	unset OUTBOX_TEST_DB
fi
. "$(dirname "$0")/../e2e/lib.sh"

: "${CRASH_ROUNDS:=10}"
server_host=$PGHOST
half=25 # of a batch of 50

# Half of the jobs succeed, with a statement that takes so long and a follow-up; the others
# fail once and then succeed.
prepare_work() { # SECONDS
	sql 'create table effect (n bigint)'
	noting_handler follow
	noting_handler chain "n=\${number%%[!0-9]*}
		printf '{\"outcome\":\"ok\",\"commit\":[{\"name\":\"note\",\"args\":[\"%s\"]}],
			\"enqueue\":[{\"kind\":\"follow\",\"payload\":{\"n\":%s}}]}' \$n \$n >&3"
	noting_handler again "[ \$OUTBOX_ATTEMPT -gt 1 ] || exit 75"
	cat >"$handlers/chain.ini" <<-END
		[commit]
		note = insert into effect select \$1::bigint from pg_sleep($1)
	END
	cat >"$handlers/again.ini" <<-END
		[retry]
		backoff = 100ms
	END
}

# Settling is held back until all of a round has been run, so that it goes in one batch.
run_round() { # NUMBER
	signal settle STOP
	sql "select (select count(*) from outbox.enqueue_many(array[kind],
			array(select format('{\"n\":%s}', n)
				from generate_series($half * ($1 - 1) + 1, $half * $1) n)))
		from unnest(array['chain', 'again']) kind" >/dev/null
	assert_soon 60 rounds_have_run "$1" || return
	signal settle CONT
}

rounds_have_run() { # NUMBER
	[ "$(numbers_run chain | wc -l)" -ge $((half * $1)) ] &&
		[ "$(numbers_run again | wc -l)" -ge $((half * $1)) ]
}

# Whatever it took: all succeeded, and what belongs to that is there once.
assert_once() { # ROUNDS
	count=$((half * $1))
	assert_sql 'every job has succeeded, once' "again|$count|$count
chain|$count|$count
follow|$count|$count" "
		select kind, count(*), count(distinct job_id) from outbox.attempt
		where outcome = 'succeeded' group by 1 order by 1"
	assert_sql 'statements' "$count|$count" 'select count(*), count(distinct n) from effect'
	assert_sql 'follow-ups' "$count|$count" "
		select count(*), count(distinct payload ->> 'n') from outbox.job where kind = 'follow'"
	assert_sql 'retries that were charged twice' '' "
		select job_id from outbox.attempt where outcome = 'failed' group by 1 having count(*) > 1"
	assert_sql 'other ends of attempts' '' "
		select kind, outcome, code, count(*) from outbox.attempt
		where outcome not in ('succeeded', 'lost', 'released')
			and (kind, code) <> ('again', 'exit_75') group by 1, 2, 3"
	assert_ledger
}

test_answer_to_the_commit_is_lost() {
	prepare_work 0
	mkdir "$work/relay"
	python3 "$root/tests/fault/relay.py" "$work/relay/.s.PGSQL.$PGPORT" \
		"$server_host/.s.PGSQL.$PGPORT" settle >"$work/relay.out" 2>"$work/relay.log" &
	echo $! >"$work/relay.pid"
	assert_soon 10 test -S "$work/relay/.s.PGSQL.$PGPORT" || return
	start settle outbox-settle --batch 50 --db "host=$work/relay" &&
		start run outbox-run --handlers "$handlers" -j 8 &&
		start claim outbox-claim &&
		start listen outbox-listen || return
	for round in 1 2 3; do
		run_round "$round" || return
	done
	assert_soon 30 none_is_open || return
	lost=$(wc -l <"$work/relay.out")
	assertTrue "$lost answers were lost" "[ $lost -ge 3 ]"
	assert_once 3
	assert_sql 'nothing ran twice' 'again|1|75
chain|1|75
follow|1|75
again|2|75' 'select kind, attempt, count(*) from outbox.attempt group by 1, 2 order by 2, 1'
	for kind in chain follow; do
		assertEquals "runs of $kind" 75 "$(runs_of $kind)"
	done
	assertEquals 'runs of again' 150 "$(runs_of again)"
	assertEquals 'what is repeated is no stale result' '' \
		"$(grep -h 'event=stale_results\|event=result_refused' "$work/settle.log" "$work/run.log")"
	stop_pipeline
}

is_settling() {
	[ "$(sql "select count(*) from pg_stat_activity where application_name = 'outbox-settle'
		and state = 'active' and query like '%outbox.settle(%'")" = 1 ]
}

# Not beyond the lease; after an outage add ten seconds and a pass of the sweeper.
assert_none_stays_open() {
	assert_soon 30 none_is_open
}

test_server_crashes_while_it_settles() {
	prepare_work 0.005
	start settle outbox-settle --batch 50 &&
		start sweep outbox-sweep &&
		start run outbox-run --handlers "$handlers" -j 8 &&
		start claim outbox-claim --lease 10s &&
		start listen outbox-listen || return
	for round in $(seq "$CRASH_ROUNDS"); do
		run_round "$round" || return
		assert_soon 20 is_settling || return
		sleep "0.0$((round % 10))" # somewhere in it, or just after it
		pg-temp restart "$PGHOST" -m immediate
		[ $((round % 5)) -ne 0 ] || assert_none_stays_open || return
	done
	assert_none_stays_open || return
	assert_once "$CRASH_ROUNDS"
	stop_pipeline
}

. shunit2
