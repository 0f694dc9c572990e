#!/bin/sh
# Upgrades: a program does not touch a schema whose version it does not speak, and migrating
# holds up nobody.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

assert_refuses() { # PROGRAM [ARGUMENT ...]
	timeout 20 "$@" </dev/null >"$work/out" 2>"$work/err"
	assertEquals "exit status of $* for version $version: $(cat "$work/err")" 78 $?
	assertContains "$* names the schema's version" "$(cat "$work/err")" "version $version"
	assertContains "$* names its own" "$(cat "$work/err")" "speaks"
}

test_programs_refuse_other_versions() {
	for version in 0 99; do
		sql "update outbox.meta set schema_version = $version"
		assert_refuses outbox list
		assert_refuses outbox doctor
		assert_refuses outbox-claim
		assert_refuses outbox-settle
		assert_refuses outbox-sweep
		assert_refuses outbox-listen
	done
	"$bin/outbox" migrate >"$work/out" 2>"$work/err"
	assertEquals 'a newer schema is not taken back' 78 $?
	assertContains 'both versions' "$(cat "$work/err")" 'has version 99'
	assert_sql 'nothing was changed' 99 'select schema_version from outbox.meta'
}

# The first migration, with those of today's functions that do not need later ones.
install_first_version() {
	sql 'set client_min_messages = error; drop schema outbox cascade'
	"$bin/outbox" migrate --print | awk '
		/^-- (migrations|functions)\// { wanted = /functions|0001-/ }
		/^(begin|commit);$/ || /^insert into outbox.meta / { next }
		/^insert into outbox.migration / && !/0001-/ { next }
		NR == 1, /^-- migrations/ { print; next }
		wanted' >"$work/first.sql"
	psql -qX -c 'set check_function_bodies = off; set client_min_messages = error' \
		-f "$work/first.sql" >"$work/first.out" 2>&1
	sql "insert into outbox.meta (schema_version, installation) values (1, 'old')
		on conflict do nothing"
}

fill() { # COUNT
	sql "insert into outbox.job (id, created_at, run_at, priority, kind, payload)
		select outbox.new_id(), now(), now(), 2, 'old', '{\"n\":1}' from generate_series(1, $1)"
	sql "insert into outbox.attempt (job_id, attempt, kind, outcome, finished_at)
		select id, 1, kind, 'succeeded', now() from outbox.job"
}

# Enqueues without a pause for so many seconds; the log has the time of each transaction.
enqueue_for() { # SECONDS
	echo "select outbox.enqueue('mail', '{\"n\":1}'::text)" >"$work/enqueue.sql"
	(cd "$work" && exec pgbench -n -c 4 -j 1 -T "$1" -f enqueue.sql -l --log-prefix=wait) \
		>"$work/load.out" 2>"$work/load.log" &
	echo $! >"$work/load.pid"
}

longest_wait_ms() {
	cat "$work"/wait.* | sort -k3,3n | awk 'END { print int($3 / 1000) }'
}

load_is_running() {
	[ "$(sql "select count(*) from outbox.job where kind = 'mail'")" -gt 0 ]
}

# A transaction that has enqueued, and takes its time: it holds a lock on all that enqueue has
# read, and whoever wants a stronger one has to wait for it, with everybody queued behind.
slow_producer() { # SECONDS
	psql -qX -c "begin; select outbox.enqueue('slow', '{}'::text); select pg_sleep($1); commit" \
		>"$work/slow.out" 2>&1 &
	echo $! >"$work/slow.pid"
}

slow_producer_sleeps() {
	[ "$(sql "select count(*) from pg_stat_activity where wait_event = 'PgSleep'")" = 1 ]
}

test_migrating_a_million_jobs_holds_up_no_producer() {
	install_first_version
	assert_sql 'an old schema' 1 'select count(*) from outbox.migration'
	fill 1000000
	enqueue_for 15
	assert_soon 10 load_is_running
	slow_producer 4
	assert_soon 10 slow_producer_sleeps
	"$bin/outbox" migrate >"$work/migrate.out" 2>"$work/migrate.log"
	assertEquals "exit status: $(cat "$work/migrate.log")" 0 $?
	assertContains 'it gave way to the slow producer' "$(cat "$work/migrate.log")" 'trying again'
	wait_for_end slow
	wait_for_end load
	assertEquals 'exit status of the load' 0 $?
	assertNotContains 'errors of producers' "$(cat "$work/load.out")" 'aborted'
	longest=$(longest_wait_ms)
	assertTrue "the longest wait was $longest ms" "[ $longest -lt 1000 ]"
	assertTrue 'it is complete' "$bin/outbox verify"
	assert_sql 'no job is lost' 1 "select count(*) from outbox.ready where kind = 'slow'"
}

# shellcheck disable=SC1091
. shunit2
