#!/bin/sh
# The disk is full (SET-06): that of the tables, that of the whole cluster, that of its log of
# transactions, and that of our own logs. Nothing is lost and nothing charged for it; the
# programs wait without a flood of lines and go on by themselves.
#
# environment: DISK_FULL_S  seconds that a disk stays full (default 3). The long form:
#                           DISK_FULL_S=180 TEST_LIMIT=1200 scripts/check fault
#
# The disks are small tmpfs in a mount namespace of this test, which root may make; for others
# all of this counts as skipped.
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets and reads what is not here

may_mount() {
	[ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null
}

if [ -z "${OUTBOX_OWN_MOUNTS:-}" ] && may_mount; then
	export OUTBOX_OWN_MOUNTS=1
	exec unshare --mount --propagation private "$0" "$@"
fi

export OUTBOX_TEST_DB=none # each test has a cluster of its own, on disks of its own
. "$(dirname "$0")/../e2e/lib.sh"
. "$(dirname "$0")/../e2e/orders.sh"

full_s=${DISK_FULL_S:-3}
programs='settle sweep run claim listen'

oneTimeSetUp() { :; }
oneTimeTearDown() { :; }

setUp() {
	make_work
	if [ -z "${OUTBOX_OWN_MOUNTS:-}" ]; then
		echo 'skipped: only root may mount small disks'
		startSkipping
	fi
}

tearDown() {
	[ -n "$work" ] || return 0
	kill_programs
	[ ! -d "$work/cluster/data" ] || stop_cluster
	for mounted in "$work"/*/; do
		umount "$mounted" 2>/dev/null
	done
	rm -rf "$work"
	work=
}

# ---- disks

make_disk() { # NAME SIZE
	mkdir "$work/$1"
	mount -t tmpfs -o "size=$2" "outbox-$1" "$work/$1"
}

# Until it is full, and again whenever something on it was deleted.
fill_disk() { # NAME
	(
		while :; do
			cat /dev/zero >>"$work/$1/filler" 2>/dev/null
			sleep 0.1
		done
	) &
	echo $! >"$work/filler.pid"
	assert_soon 30 is_full "$1"
}

is_full() { # NAME
	[ "$(df --output=avail "$work/$1" | tail -n 1)" -lt 8 ]
}

free_disk() { # NAME
	kill_program filler
	rm "$work/$1/filler"
}

# ---- the cluster

stop_cluster() {
	pg-temp stop "$work/cluster" >"$work/pg-temp.log" 2>&1
}

# A server that cannot write its log of transactions ends, and may not come up before it can.
start_cluster() {
	pg-temp start "$work/cluster" >"$work/pg-temp.log" 2>&1
}

server_is_up() {
	pg_isready -q
}

make_cluster() {
	[ -d "$work/cluster" ] || mkdir "$work/cluster"
	pg-temp start "$work/cluster" || return
	eval "$(pg-temp env "$work/cluster")"
	for setting in 'min_wal_size = 32MB' 'max_wal_size = 32MB' 'autovacuum = off'; do
		echo "$setting"
	done >>"$work/cluster/data/postgresql.conf"
	pg-temp restart "$work/cluster" && outbox migrate >"$work/migrate.out"
	sql 'create table orders (id bigint primary key generated always as identity)'
}

# The tables that grow with each job go to a disk of their own.
move_tables() { # NAME
	chown postgres: "$work/$1"
	on_cluster "create tablespace $1 location '$work/$1'"
	sql "select format('alter %s outbox.%I set tablespace $1;', case c.relkind when 'r' then 'table' else 'index' end, c.relname)
		from pg_class c where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'i')
			and c.relname ~ '^(job|attempt|ready|dedupe)' " >"$work/move.sql"
	psql -qX -v ON_ERROR_STOP=1 -f "$work/move.sql"
}

on_cluster() {
	psql -qXAt -v ON_ERROR_STOP=1 -d postgres -c "$1"
}

# ---- the load

# One order and its job in a transaction, again and again, until $work/enough exists. What a
# producer is told goes to $work/refusals.
start_producer() {
	(
		until [ -e "$work/enough" ]; do
			psql -qXAt -v ON_ERROR_STOP=1 -v VERBOSITY=verbose -f - <<-'END' || sleep 0.1
				begin;
				insert into orders default values returning id \gset
				select status from outbox.enqueue('work', format('{"n":%s}', :id)) \g /dev/null
				commit;
			END
		done
	) >"$work/producer.out" 2>>"$work/refusals" &
	echo $! >"$work/producer.pid"
}

start_work() {
	noting_handler work 'sleep 0.01'
	start_pipeline -j 4 && start_producer || return
	for _ in 1 2 3 4; do # of these there are always some in flight
		sql "with o as (insert into orders select from generate_series(1, 150) returning id)
			select count(*) from outbox.enqueue_many(array['work'],
				(select array_agg(format('{\"n\":%s}', id)) from o))" >/dev/null
	done
	assert_soon 30 runs_reach 200
}

runs_reach() { # COUNT
	[ "$(runs_of work)" -ge "$1" ]
}

was_refused() { # PATTERN: whether a producer was told so
	grep -q "$1" "$work/refusals"
}

has_logged() { # INSTANCE PATTERN
	grep -q "$2" "$work/$1.log"
}

# ---- what is used while nothing can be done

ticks_of() { # INSTANCE: user and system time so far, in 10 ms
	awk '{ print $14 + $15 }' "/proc/$(pid_of "$1")/stat"
}

note_use() { # FILE: ticks and lines of each program
	for instance in $programs; do
		echo "$instance $(ticks_of "$instance") $(wc -l <"$work/$instance.log")"
	done >"$1"
}

# The disk is full by now and stays so for a while. A loop that is busy uses 100 ticks a second.
stay_full() {
	note_use "$work/use.before"
	let_pass "$full_s"
	note_use "$work/use.after"
	paste -d' ' "$work/use.before" "$work/use.after" |
		awk '{ print $1, $5 - $2, $6 - $3 }' >"$work/use"
	while read -r instance ticks lines; do
		assertTrue "$instance: $ticks ticks in $full_s s" "[ $ticks -le $((10 * full_s)) ]"
		assertTrue "$instance: $lines log lines in $full_s s" "[ $lines -le $((10 + 2 * full_s)) ]"
	done <"$work/use"
	[ -z "${DISK_FULL_VERBOSE:-}" ] || cat "$work/use" >&2
}

# All is as if nothing had been, by the same processes.
assert_recovered() {
	assert_soon 60 server_is_up || return
	touch "$work/enough"
	wait_for_end producer
	assert_soon 90 none_is_open || return
	assert_orders_survived work
	assert_ledger
	stop_pipeline
}

# ---- the disks of the database

# Whatever the server needs room for first: a table, an index, or its log of transactions,
# without which it ends.
test_the_disk_of_the_cluster_is_full() {
	isSkipping && return
	make_disk cluster 200M
	make_cluster && start_work || return
	fill_disk cluster
	assert_soon 60 cannot_work || return
	stay_full
	assertFalse 'no result is taken for a bad one' 'has_logged settle settle_failed'
	free_disk cluster
	server_is_up || start_cluster
	assert_recovered
}

cannot_work() {
	has_logged settle 'event=settle_delayed .*sqlstate=53100' || ! server_is_up
}

test_the_disk_of_the_transaction_log_is_full() {
	isSkipping && return
	make_disk wal 80M
	make_cluster || return
	stop_cluster
	cp -a "$work/cluster/data/pg_wal" "$work/wal/pg_wal"
	rm -r "$work/cluster/data/pg_wal"
	ln -s "$work/wal/pg_wal" "$work/cluster/data/pg_wal"
	start_cluster
	start_work || return
	fill_disk wal
	assert_soon 60 server_has_ended || return
	stay_full
	free_disk wal
	server_is_up || start_cluster
	assert_recovered
}

# Each time that it begins another segment, one more is needed.
server_has_ended() {
	sql 'create table if not exists filler (); select pg_switch_wal()' >/dev/null 2>&1
	grep -q PANIC "$work/cluster/server.log"
}

test_the_disk_of_the_tables_is_full() {
	isSkipping && return
	make_disk tables 24M
	make_cluster && move_tables tables && start_work || return
	fill_disk tables
	assert_soon 30 was_refused 'ERROR:  53100' || return
	assert_soon 30 has_logged settle 'event=settle_delayed .*sqlstate=53100' || return
	stay_full
	assert_sql 'orders and jobs are committed together' t "
		select (select count(*) from orders) = (select count(*) from outbox.job)"
	assertFalse 'no result is taken for a bad one' 'has_logged settle settle_failed'
	free_disk tables
	assert_recovered
}

# ---- our own logs

# Sends the logs of all programs to one place, or each to a file in a folder.
send_logs_to() { # FILE|FOLDER
	for instance in $programs; do
		rm -f "$work/$instance.log"
		if [ -d "$1" ]; then
			: >"$1/$instance.log"
			ln -s "$1/$instance.log" "$work/$instance.log"
		else
			ln -s "$1" "$work/$instance.log"
		fi
	done
}

# Some jobs that succeed, some that a line is written for.
assert_work_is_done() { # MESSAGE
	rounds=$((rounds + 1))
	start_pipeline -j 4 || return
	enqueue_numbers work 100
	enqueue_numbers fails 50
	assert_soon 60 none_is_open || return
	assertEquals "$1: runs" $((100 * rounds)) "$(runs_of work)"
	assert_sql "$1: each at its first attempt" \
		"succeeded|$((100 * rounds)),dead|$((50 * rounds))" "
		select string_agg(outcome || '|' || count, ',' order by outcome) from (
			select outcome, count(*) from outbox.attempt where attempt = 1 group by 1) o"
	assert_ledger
	stop_pipeline
}

# A full disk, with the folder of temporary files on it; writes that always fail; and a pipe
# whose reader stands still. A log that can be written again is written on.
test_logs_that_cannot_be_written() {
	isSkipping && return
	make_disk logs 1M
	make_cluster && fill_disk logs || return
	rounds=0
	noting_handler work
	handler fails <<-'END'
		#!/bin/sh
		exit 65
	END

	send_logs_to "$work/logs"
	TMPDIR=$work/logs
	export TMPDIR
	assert_work_is_done 'a full disk'
	unset TMPDIR
	assertEquals 'nothing could be written' 0 "$(cat "$work"/logs/*.log | wc -c)"
	start settle outbox-settle && free_disk logs && stop settle
	assertContains 'what is lacking is said' "$(cat "$work/logs/settle.log")" 'dropped='

	send_logs_to /dev/full
	assert_work_is_done 'writes that fail'

	mkfifo "$work/pipe"
	sleep 1000 <>"$work/pipe" &
	echo $! >"$work/reader.pid"
	head -c 65536 /dev/zero >"$work/pipe"
	send_logs_to "$work/pipe"
	assert_work_is_done 'a pipe that nobody reads'
}

. shunit2
