#!/bin/sh
# The listener goes deaf, in each way that it can, and says so or recovers (CLM-02; CLM-04 behind
# a pooler).
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/../e2e/lib.sh"
. "$(dirname "$0")/pgbouncer.sh"

# A listener of its own, whose frames are in $work/frames as JSON lines.
start_listener() { # [OPTION ...]
	# producers notify without a sleeping claimer
	sql "update outbox.lane set pooled = true" >/dev/null
	mkfifo "$work/pipe"
	outbox-frame decode <"$work/pipe" >"$work/frames" 2>"$work/decode.log" &
	echo $! >"$work/decode.pid"
	outbox-listen --nudges - "$@" >"$work/pipe" 2>"$work/listen.log" &
	echo $! >"$work/listen.pid"
}

# A relay to the server at $work/relay, which PGHOST can name.
start_relay() {
	mkdir -p "$work/relay"
	python3 "$root/tests/fault/relay.py" "$work/relay/.s.PGSQL.$PGPORT" \
		"$server_host/.s.PGSQL.$PGPORT" 2>"$work/relay.log" &
	echo $! >"$work/relay.pid"
}

frames_are() { # COUNT PATTERN
	[ "$(grep -c "$2" "$work/frames")" -ge "$1" ]
}

events_are() { # COUNT NAME
	[ "$(grep -c "event=$2" "$work/listen.log")" -ge "$1" ]
}

everywhere='"type":"nudge","kind":null'

cpu_ticks() { # INSTANCE: user and system time so far, in 10 ms
	awk '{ print $14 + $15 }' "/proc/$(pid_of "$1")/stat"
}

listener_backend() {
	on_server "select pid from pg_stat_activity
		where application_name = 'outbox-listen' and datname = '$PGDATABASE'"
}

# Silent for good: neither side gets an error, only the round trip fails.
test_half_open_connection() {
	start_relay
	assert_soon 10 test -S "$work/relay/.s.PGSQL.$PGPORT" || return
	start_listener --db "host=$work/relay"
	assert_soon 10 events_are 1 listening || return
	backend=$(listener_backend)
	signal relay STOP
	on_server "select pg_terminate_backend($backend)" >/dev/null
	assert_soon 20 events_are 1 round_trip_failed || return
	beats=$(grep -c '"type":"beat"' "$work/frames")
	enqueue a.b '{}' >/dev/null
	signal relay CONT
	assert_soon 20 events_are 2 listening || return
	assertTrue 'it looks everywhere again' "frames_are 2 '$everywhere'"
	assertTrue 'no beats while deaf' "[ $beats -le 8 ]"
	enqueue c.d '{}' >/dev/null
	assert_soon 5 frames_are 1 '"kind":"c.d"'
}

test_terminated_session_does_not_spin() {
	start_listener
	assert_soon 10 events_are 1 listening || return
	before=$(cpu_ticks listen)
	for reconnect in 2 3 4; do
		on_server "select pg_terminate_backend($(listener_backend))" >/dev/null
		assert_soon 10 events_are "$reconnect" listening || return
	done
	assertTrue 'it looks everywhere after each' "frames_are 4 '$everywhere'"
	used=$(($(cpu_ticks listen) - before))
	assertTrue "CPU time: $used ticks of 10 ms" "[ $used -le 20 ]"
	enqueue a.b '{}' >/dev/null
	assert_soon 5 frames_are 1 '"kind":"a.b"'
}

test_started_before_the_server() {
	start_listener --db "host=$work/relay"
	assert_soon 10 events_are 1 database_down || return
	start_relay
	assert_soon 20 events_are 1 listening || return
	assertTrue 'it looks everywhere' "frames_are 1 '$everywhere'"
}

# As on a standby: libpq looks for a session that can write.
test_read_only_server_is_refused() {
	sql "alter database $PGDATABASE set default_transaction_read_only = on"
	start_listener
	assert_soon 10 events_are 1 database_down || return
	assertContains "$(cat "$work/listen.log")" 'session is read-only'
	assertFalse 'it does not listen there' 'events_are 1 listening'
	on_server "alter database $PGDATABASE reset default_transaction_read_only"
	assert_soon 20 events_are 1 listening
}

# The pooler has one server connection, so it serves the LISTEN and the listener's NOTIFY by
# the same session: the hardest case to notice.
test_transaction_pooler_is_named() {
	start_pooler transaction 1 || return
	start_listener --db "host=$work/pooler dbname=$PGDATABASE user=$PGUSER"
	assert_soon 30 events_are 1 deaf || return
	assertContains "$(grep event=deaf "$work/listen.log")" 'a transaction pooler is in between'
	assertFalse 'it never claims to listen' 'events_are 1 listening'
	assertFalse 'nor to live' 'frames_are 1 "type":"beat"'
	assertFalse 'it stays' "has_ended $(pid_of listen)"
}

test_options() {
	timeout 10 outbox-listen --db 'nonsense=1' 2>"$work/log"
	assertEquals 'malformed connection string' 78 $?
	timeout 10 outbox-listen --nudges tcp://127.0.0.1:55999 2>"$work/log"
	assertEquals 'tcp without keys' 78 $?
	PGDATABASE=template1 timeout 10 outbox-listen 2>"$work/log"
	assertEquals 'a database without the schema' 78 $?
	start listen outbox-listen || return
	timeout 10 outbox-listen 2>"$work/log"
	assertEquals 'a second listener at the same endpoint' 75 $?
	stop listen
	assertEquals 'TERM' 0 $?
}

. shunit2
