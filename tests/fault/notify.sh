#!/bin/sh
# NOTIFY takes one lock of the whole server at commit (ENQ-05). Who enqueues while a claimer is
# awake, or in a lane that only polls, does not need it: shown by holding it.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here

# The server is changed, so it is never one that is shared with other tests.
if [ -z "${OUTBOX_OWN_SERVER:-}" ]; then
	export OUTBOX_OWN_SERVER=1
	unset OUTBOX_TEST_DB
fi
. "$(dirname "$0")/../e2e/lib.sh"

# A commit that carries a NOTIFY, and something to replicate, holds the lock until a standby has it,
# which there is none of.
hold_the_lock() {
	on_server "alter system set synchronous_commit = local"
	on_server "alter system set synchronous_standby_names = 'nobody'"
	on_server 'select pg_reload_conf()' >/dev/null
	assert_soon 10 standby_is_wanted || return
	PGOPTIONS='-c synchronous_commit=on' psql -qXAt -c 'begin; create table written (); notify held; commit' >"$work/holder.out" 2>&1 &
	echo $! >"$work/holder.pid"
	assert_soon 10 lock_is_held
}

standby_is_wanted() {
	[ "$(sql "select current_setting('synchronous_commit') || ' '
		|| current_setting('synchronous_standby_names')")" = 'local nobody' ]
}

lock_is_held() {
	[ "$(sql "select count(*) from pg_locks where locktype = 'object' and database = 0
		and classid = 'pg_database'::regclass and mode = 'AccessExclusiveLock' and granted")" = 1 ]
}

let_the_lock_go() {
	on_server 'alter system reset synchronous_standby_names'
	on_server 'select pg_reload_conf()' >/dev/null
	wait_for_end holder
}

# Whether a producer commits while the lock is held.
commits() {
	timeout 3 psql -qXAt -v ON_ERROR_STOP=1 -c "set lock_timeout = '1s'" \
		-c "select count(*) from outbox.enqueue_many(array['k'], array_fill('{}'::text, array[1000]))" \
		>"$work/producer.out" 2>&1
}

# A claimer that sleeps; it ends with its input.
fall_asleep() {
	mkfifo "$work/sleeper"
	psql -qXAt <"$work/sleeper" >"$work/sleeper.out" 2>&1 &
	echo $! >"$work/sleeper.pid"
	exec 8>"$work/sleeper"
	echo "select outbox.sleep_begin('default');" >&8
	assert_soon 10 grep -q asleep "$work/sleeper.out"
}

test_commits_do_not_queue_for_notifications() {
	hold_the_lock || return
	assertTrue 'while a claimer is awake' commits
	fall_asleep
	assertFalse 'while one sleeps, it is the price of being heard' commits
	assertContains "$(cat "$work/producer.out")" 'lock timeout'
	sql 'update outbox.lane set notify = false' >/dev/null
	assertTrue 'in a lane that only polls' commits
	sql 'update outbox.lane set notify = true' >/dev/null
	exec 8>&-
	wait_for_end sleeper
	assertTrue 'and when it is awake again' commits
	let_the_lock_go
	assert_sql 'what was refused has rolled back' 3000 'select count(*) from outbox.job'
}

. shunit2
