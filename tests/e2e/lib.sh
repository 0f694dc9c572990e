# shellcheck shell=sh
# Helpers of the end-to-end and fault tests (shunit2). A test file starts with
#
#   . "$(dirname "$0")/../e2e/lib.sh"
#
# and ends with `. shunit2`. Run by itself, it gets a PostgreSQL of its own.
#
# Every test has a fresh database with the schema in it, an empty folder $handlers, an empty
# folder $work for what it makes, and a runtime directory of its own; what it started is
# killed at its end. Waiting is always for a condition and up to a deadline, never a sleep.

root=$(cd "$(dirname "$0")/../.." && pwd)
case ${B:=build} in
/*) bin=$B ;;
*) bin=$root/$B ;;
esac
# For the handlers of tests, whose environment is empty otherwise.
export PATH="$bin:$root/scripts:$PATH"

if [ -z "${OUTBOX_TEST_DB:-}" ]; then
	exec "$root/scripts/pg-temp" run "$root/${0#"$root/"}" "$@"
fi
server_database=$PGDATABASE
template=e2e_template_$$
test_number=0
work=

# ---- before and after each test

oneTimeSetUp() {
	on_server "create database $template" &&
		PGDATABASE=$template "$bin/outbox" migrate >"$SHUNIT_TMPDIR/migrate.log" 2>&1 && return
	cat "$SHUNIT_TMPDIR/migrate.log" >&2
	echo 'lib.sh: could not make the template database' >&2
	exit 1
}

make_work() {
	# Not below SHUNIT_TMPDIR, so that the paths of ipc sockets stay short.
	work=$(mktemp -d /tmp/outbox-test-XXXXXX)
	handlers=$work/handlers.d
	mkdir -m 755 "$handlers"
	chmod 755 "$work" # one test runs as somebody else
	logs_shown=
	export OUTBOX_RUNTIME_DIR="$work/run"
	export TMPDIR="$work" # so that nothing stays of what is killed
}

kill_programs() {
	for file in "$work"/*.pid; do
		[ -e "$file" ] || continue
		read -r pid <"$file"
		kill -KILL "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
}

setUp() {
	test_number=$((test_number + 1))
	make_work
	export PGDATABASE="e2e_$$_$test_number"
	on_server "create database $PGDATABASE template $template"
}

# shunit2 calls it once more when it exits.
tearDown() {
	[ -n "$work" ] || return 0
	kill_programs
	on_server "drop database if exists e2e_$$_$test_number with (force)"
	rm -rf "$work"
	work=
	PGDATABASE=$server_database
}

oneTimeTearDown() {
	on_server "drop database if exists $template"
}

# ---- the database

on_server() { # SQL: in the database that the server came with
	PGOPTIONS='-c client_min_messages=warning' psql -qXAt -v ON_ERROR_STOP=1 \
		-d "$server_database" -c "$1"
}

sql() { # SQL: prints the result, columns separated by |
	psql -qXAt -v ON_ERROR_STOP=1 -c "$1"
}

has_setting() { # NAME: whether this version of the server has it
	[ "$(sql "select count(*) from pg_settings where name = '$1'")" = 1 ]
}

enqueue() { # KIND PAYLOAD [, NAME => VALUE ...]: prints the id
	sql "select id from outbox.enqueue('$1', '$2' ${3:-})"
}

enqueue_numbers() { # KIND COUNT: one transaction, payloads {"n":1} and so on
	sql "select count(*) from outbox.enqueue_many(array['$1'],
		array(select format('{\"n\":%s}', n) from generate_series(1, $2) n))" >/dev/null
}

jobs_are() { # STATE COUNT: whether exactly so many jobs are in this state
	[ "$(sql "select count(*) from outbox.jobs where state = '$1'")" = "$2" ]
}

none_is_open() { # whether nothing is owed and nothing in flight
	[ "$(sql 'select (select count(*) from outbox.ready) + (select count(*) from outbox.claim)')" = 0 ]
}

# ---- waiting

# Whether the command succeeds within so many seconds; it is tried every 50 ms.
wait_until() { # SECONDS COMMAND [ARGUMENT ...]
	deadline=$(($(date +%s) + $1))
	shift
	until "$@"; do
		if [ "$(date +%s)" -ge "$deadline" ]; then
			echo "did not come true in time: $*" >&2
			return 1
		fi
		sleep 0.05
	done
}

# The same as an assertion, which shows the logs.
assert_soon() { # SECONDS COMMAND [ARGUMENT ...]
	wait_until "$@" && return
	shift
	fail_with_logs "did not come true: $*"
	return 1
}

is_past() { # SECONDS SINCE 1970
	[ "$(date +%s)" -ge "$1" ]
}

# Where the time itself is what is tested, and for nothing else.
let_pass() { # SECONDS
	wait_until $(($1 + 30)) is_past $(($(date +%s) + $1))
}

# ---- programs

# Starts a program and waits until it says that it is ready. Its stderr goes to
# $work/INSTANCE.log, its stdout to $work/INSTANCE.out. No password, no PG* variable and no
# connection string reaches a runner.
start() { # INSTANCE PROGRAM [ARGUMENT ...]
	instance=$1
	program=$bin/$2
	shift 2
	case $program in
	*/outbox-run)
		set -- env -u PGHOST -u PGPORT -u PGUSER -u PGDATABASE -u OUTBOX_TEST_DB "$program" "$@"
		;;
	*) set -- "$program" "$@" ;;
	esac
	: >"$work/$instance.ready"
	"$@" --ready-fd 9 9>"$work/$instance.ready" </dev/null >>"$work/$instance.out" \
		2>>"$work/$instance.log" &
	echo $! >"$work/$instance.pid"
	assert_soon 20 is_ready_or_gone "$instance" || return
	[ -s "$work/$instance.ready" ] && return
	fail_with_logs "$instance has ended at its start"
	return 1
}

is_ready_or_gone() { # INSTANCE
	[ -s "$work/$1.ready" ] || has_ended "$(pid_of "$1")"
}

# The options are the runner's. A lease of 2 seconds makes lost jobs come back soon.
start_pipeline() { # [OPTION ...]
	start settle outbox-settle &&
		start sweep outbox-sweep &&
		start run outbox-run --handlers "$handlers" "$@" &&
		start claim outbox-claim --lease "${lease:-2s}" &&
		start listen outbox-listen
}

pid_of() { # INSTANCE
	cat "$work/$1.pid"
}

# A child that has ended is a zombie until the shell has waited for it.
has_ended() { # PID
	case $(cat "/proc/$1/stat" 2>/dev/null) in
	'' | *') Z '*) return 0 ;;
	*) return 1 ;;
	esac
}

signal() { # INSTANCE SIGNAL
	kill -"$2" "$(pid_of "$1")"
}

# Prints nothing; the status is the program's. One that does not end in time is killed.
wait_for_end() { # INSTANCE [SECONDS]
	pid=$(pid_of "$1")
	assert_soon "${2:-40}" has_ended "$pid" || kill -KILL "$pid"
	rm "$work/$1.pid"
	wait "$pid" 2>/dev/null
}

stop() { # INSTANCE: drains it; the status is the program's
	signal "$1" TERM && wait_for_end "$1"
}

kill_program() { # INSTANCE
	signal "$1" KILL && wait_for_end "$1"
	[ $? -eq 137 ]
}

# In the order that outbox-up uses; all must end well.
stop_pipeline() {
	for instance in run claim settle sweep listen; do
		[ -e "$work/$instance.pid" ] || continue
		stop "$instance"
		assertEquals "exit status of $instance" 0 $? || show_logs
	done
}

# Whether so many claimers sleep with the lock of their lane, so that enqueueing wakes them.
# Before they have heard the listener, they look every few seconds.
are_asleep() { # COUNT
	[ "$(sql "select count(*) from pg_locks l join pg_database d on d.oid = l.database
		where d.datname = current_database() and l.locktype = 'advisory' and l.classid = 7318349
		and l.mode = 'ExclusiveLock'")" = "$1" ]
}

# Runs the front end; its stdout is in $work/out, its stderr in $work/err.
outbox_exits() { # STATUS ARGUMENT ...
	expected=$1
	shift
	"$bin/outbox" "$@" >"$work/out" 2>"$work/err"
	assertEquals "exit status of outbox $*: $(cat "$work/err")" "$expected" $?
}

out() {
	cat "$work/out"
}

# ---- handlers

handler() { # KIND, and the script on stdin
	cat >"$handlers/$1"
	chmod 755 "$handlers/$1"
}

# A handler that notes each of its runs: attempt, then the payload's number.
noting_handler() { # KIND [MORE SHELL COMMANDS]
	handler "$1" <<-END
		#!/bin/sh
		read -r document || :
		number=\${document#*'"n":'}
		echo "\$OUTBOX_ATTEMPT \${number%%[!0-9]*}" >>$work/$1.runs
		${2:-}
	END
	: >"$work/$1.runs"
}

# A handler that only KILL ends; its pid is in $work/KIND.started.
stubborn_handler() { # KIND
	handler "$1" <<-'END'
		#!/bin/sh
		trap '' TERM
		echo $$ >"${0%/*}/../${0##*/}.started"
		while :; do sleep 0.05; done
	END
}

runs_of() { # KIND: prints how often it ran
	wc -l <"$work/$1.runs"
}

numbers_run() { # KIND: prints the payload numbers that were run, each once, in order
	cut -d' ' -f2 "$work/$1.runs" | sort -nu
}

# ---- assertions

show_logs() {
	[ -z "$logs_shown" ] || return 0
	logs_shown=1
	for file in "$work"/*.log; do
		[ -s "$file" ] || continue
		echo "--- ${file##*/}" >&2
		tail -n 15 "$file" >&2
	done
	echo '--- jobs and attempts' >&2
	psql -qX -c 'select state, count(*) from outbox.jobs group by 1' -c 'select outcome, code,
		count(*), max(left(error, 60)) as error from outbox.attempt group by 1, 2' >&2
}

fail_with_logs() { # MESSAGE
	fail "$1"
	show_logs
}

assert_sql() { # MESSAGE EXPECTED SQL
	assertEquals "$1" "$2" "$(sql "$3")" || show_logs
}

# What must hold at any time, whatever has happened.
assert_ledger() {
	final="outcome in ('succeeded', 'dead', 'cancelled')"
	assert_sql 'jobs with two final attempts and no rearm between' '' "
		select b.job_id from outbox.attempt a join outbox.attempt b using (job_id)
		where a.attempt < b.attempt and a.$final and b.$final and not exists (
			select from outbox.rearm r where r.job_id = a.job_id
			and r.from_attempt >= a.attempt and r.from_attempt < b.attempt)"
	assert_sql 'jobs with gaps in their attempt numbers' '' "
		select job_id from outbox.attempt group by 1 having max(attempt) <> count(*)"
	assert_sql 'jobs owed twice' '' "
		select job_id from outbox.ready group by 1 having count(*) > 1"
	assert_sql 'jobs whose owed row counts other attempts than were recorded' '' "
		select job_id from outbox.ready r where attempt <> (
			select count(*) from outbox.attempt a where a.job_id = r.job_id)"
	in_flight="select i.job_id from outbox.claim c, unnest(c.ids, c.attempts) i (job_id, attempt)
		where not exists (select from outbox.attempt a
			where a.job_id = i.job_id and a.attempt = i.attempt)"
	assert_sql 'jobs both owed and in flight, or in flight twice' '' "
		select job_id from (select job_id from outbox.ready union all $in_flight) o
		group by 1 having count(*) > 1"
	ended="select a.job_id from outbox.attempt a where a.$final and not exists (
			select from outbox.attempt b where b.job_id = a.job_id and b.attempt > a.attempt)
		and not exists (select from outbox.rearm r
			where r.job_id = a.job_id and r.from_attempt >= a.attempt)"
	assert_sql 'jobs that have ended and yet are owed' '' "
		select job_id from outbox.ready intersect ($ended)"
	assert_sql 'lost jobs: not ended, not owed, not in flight' '' "
		select id from outbox.job except select job_id from outbox.ready
		except ($in_flight) except ($ended)"
}
