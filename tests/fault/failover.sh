#!/bin/sh
# Failover (SET-02): the server stops taking writes while the sessions of the programs live
# on, and another one, or the same again, takes them later. Nothing is restarted, nothing
# charged to any job, and what ended meanwhile is settled.
#
# environment: FAILOVER_NAME_S  seconds from the promotion to the move of the name that the
#                               programs connect to (default 0; the case says 20)
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets and reads what is not here

# The servers are those of the tests.
export OUTBOX_TEST_DB=none
. "$(dirname "$0")/../e2e/lib.sh"
. "$(dirname "$0")/../e2e/orders.sh"

: "${FAILOVER_NAME_S:=0}"

oneTimeSetUp() { :; }

# The primary, in $work/a, has the schema.
setUp() {
	make_work
	pg-temp start "$work/a"
	eval "$(pg-temp env "$work/a")"
	server_port=$PGPORT
	outbox migrate >"$work/migrate.log" 2>&1 || fail_with_logs 'could not make the schema'
}

tearDown() {
	[ -n "$work" ] || return 0
	kill_programs
	for server in a b; do
		[ ! -d "$work/$server" ] || pg-temp stop "$work/$server"
	done
	rm -rf "$work"
	work=
	unset PGHOST PGPORT PGTARGETSESSIONATTRS
}

oneTimeTearDown() { :; }

# ---- the servers

on() { # SERVER SQL
	PGTARGETSESSIONATTRS=any psql -qXAt -v ON_ERROR_STOP=1 \
		-h "$work/$1" -p "$server_port" -c "$2"
}

# A standby in $work/b, which streams from the primary. Their sockets differ by folder only.
start_standby() {
	mkdir -m 700 "$work/b"
	pg_basebackup --pgdata="$work/b/data" --write-recovery-conf --checkpoint=fast --no-sync ||
		return
	echo "unix_socket_directories = '$work/b'" >>"$work/b/data/postgresql.conf"
	[ "$(id -u)" -ne 0 ] || chown -R "$(stat -c %U "$work/a/data"):" "$work/b"
	pg-temp start "$work/b"
}

# Sessions and their transactions of now go on; what begins from now on cannot write.
make_read_only() {
	on a 'alter system set default_transaction_read_only = on'
	on a 'select pg_reload_conf()' >/dev/null
	assert_soon 10 is_read_only &&
		read_only_since=$(on a 'select clock_timestamp()')
}

is_read_only() {
	[ "$(on a 'show default_transaction_read_only')" = on ]
}

make_writable() {
	PGOPTIONS='-c default_transaction_read_only=off' \
		on a 'alter system reset default_transaction_read_only'
	on a 'select pg_reload_conf()' >/dev/null
}

standby_has_all() {
	[ "$(on a "select count(*) from pg_stat_activity where xact_start < '$read_only_since'")" = 0 ] &&
		[ "$(on b "select pg_last_wal_replay_lsn() >=
			'$(on a 'select pg_current_wal_insert_lsn()')'")" = t ]
}

promote_standby() {
	assert_soon 20 standby_has_all && on b 'select pg_promote()' >/dev/null
}

# The name is a folder that a link leads to, as a name of the DNS leads to an address.
point_name_at() { # SERVER
	ln -s "$1" "$work/name.new" && mv -T "$work/name.new" "$work/name"
}

sessions_on() { # SERVER: prints the programs that are connected to it
	on "$1" "select string_agg(application_name, ' ' order by application_name)
		from pg_stat_activity where application_name like 'outbox-%'"
}

nobody_is_on() { # SERVER
	[ -z "$(sessions_on "$1")" ]
}

# ---- the work

lines_reach() { # FILE COUNT
	[ "$(wc -l <"$work/$1")" -ge "$2" ]
}

has_succeeded() { # ID
	[ "$(sql "select state from outbox.jobs where id = $1")" = succeeded ]
}

# Under load and with two attempts in the middle, the server becomes read-only, the second
# command says what else happens then, and the last one ends it.
outage() { # COMMAND COMMAND
	noting_handler work 'sleep 0.01'
	noting_handler slow "sleep 1; echo >>$work/slow.ended"
	: >"$work/slow.ended"
	lease=1m start_pipeline -j 4 || return
	programs=$(cat "$work"/*.pid)
	prepare_orders work
	start_stubborn_orders 100
	assert_soon 30 orders_reach 100 || return
	enqueue_numbers slow 2
	assert_soon 10 lines_reach slow.runs 2 || return
	make_read_only || return
	before=$(on a 'select count(*) from orders')
	"$1" || return
	assert_soon 20 lines_reach slow.ended 2 || return
	let_pass "$FAILOVER_NAME_S"
	"$2" || return
	back_at=$(date +%s)
	assert_soon 30 orders_reach $((before + 50)) || return
	last=$(enqueue work '{"n":0}')
	assert_soon $((back_at + 30 - $(date +%s))) has_succeeded "$last" || return
	stop_stubborn_orders
	assert_soon 30 none_is_open
}

# A claimer that sleeps hears of a job only when its listener has moved, too.
assert_woken() {
	assert_soon 20 are_asleep 1 || return
	assert_soon 5 has_succeeded "$(enqueue work '{"n":0}')"
}

assert_untouched() {
	for pid in $programs; do
		assertFalse "process $pid has gone on" "has_ended $pid"
	done
	(
		echo 0
		sql 'select id from orders order by id'
	) >"$work/orders.kept"
	numbers_run work >"$work/orders.run"
	assertTrue 'every order that was kept was handled, and no other' \
		"cmp $work/orders.kept $work/orders.run"
	assert_sql 'attempts that are no success at once' '' "
		select outcome, code, attempt, count(*) from outbox.attempt
		where outcome <> 'succeeded' or attempt <> 1 group by 1, 2, 3"
	assertEquals 'runs of what ended meanwhile' 2 "$(wc -l <"$work/slow.runs")"
	assert_ledger
}

# ---- the cheap stand-in: one server, read-only for a while

test_read_only_for_a_while() {
	outage true make_writable || return
	assert_woken
	assert_untouched
	stop_pipeline
}

# ---- a primary and its standby

become_standby_name() {
	point_name_at b
}

test_name_moves_to_the_standby() {
	start_standby || fail 'could not start the standby'
	point_name_at a
	export PGHOST="$work/name"
	outage promote_standby become_standby_name || return
	assert_soon 30 nobody_is_on a
	assert_woken
	assert_untouched
	stop_pipeline
}

test_list_of_both_servers() {
	start_standby || fail 'could not start the standby'
	export PGHOST="$work/a,$work/b" PGPORT="$server_port,$server_port"
	export PGTARGETSESSIONATTRS=read-write
	outage true promote_standby || return
	assert_soon 30 nobody_is_on a
	assert_woken
	assert_untouched
	stop_pipeline
}

# CLM-02: where LISTEN is refused, the listener says so and keeps trying for a primary.
test_a_listener_at_a_standby() {
	start_standby || fail 'could not start the standby'
	outbox-listen --db "host=$work/b" --nudges - >"$work/frames" 2>"$work/listen.log" &
	echo $! >"$work/listen.pid"
	assert_soon 10 grep -q 'event=database_down .*session is read-only' "$work/listen.log" || return
	assertEquals 'nothing is promised' 0 "$(wc -c <"$work/frames")"
	read_only_since=$(on a 'select clock_timestamp()')
	promote_standby
	assert_soon 30 grep -q event=listening "$work/listen.log"
}

. shunit2
