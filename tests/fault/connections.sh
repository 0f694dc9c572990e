#!/bin/sh
# Everything connects at once and the server has no room, refuses them, or goes away (OPS-01):
# runners cost no sessions, the others a fixed number; nobody gives up, and nobody spins.
#
# environment: REFUSED_S  seconds for which passwords are refused (default 3; the case says 60)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here

# These tests change how the server is set up, so it is never one that is shared.
if [ -z "${OUTBOX_OWN_SERVER:-}" ]; then
	export OUTBOX_OWN_SERVER=1
	unset OUTBOX_TEST_DB
fi
. "$(dirname "$0")/../e2e/lib.sh"
. "$(dirname "$0")/../e2e/orders.sh"

refused_s=${REFUSED_S:-3}
with_sessions='settle sweep claim1 claim2 listen'

# ---- the server

set_up_server() { # SETTING ...: with 3 reserved connections, and others for the tests
	for setting in "$@"; do
		on_server "alter system set $setting"
	done
	pg-temp restart "$PGHOST"
}

# As the role of the programs, which is no superuser and may not have reserved sessions.
make_worker() {
	outbox migrate --roles >"$work/migrate.out" 2>"$work/migrate.log"
	on_server "do \$\$ begin
			if not exists (select from pg_roles where rolname = 'e2e_worker') then
				create role e2e_worker login;
			end if;
		end \$\$;
		grant outbox_worker to e2e_worker"
}

# One that is refused tries again: sessions that were closed just now still take room.
take_session() { # NUMBER
	until psql -qXAt -U e2e_worker -c 'select pg_sleep(600)' >"$work/taken$1.out" 2>&1 ||
		! grep -q 'connection slots\|too many clients' "$work/taken$1.out"; do
		sleep 0.1
	done
}

# Sessions that take what room there is, each until it is killed.
take_sessions() { # COUNT
	for n in $(seq "$1"); do
		take_session "$n" &
		echo $! >"$work/taken$n.pid"
	done
	assert_soon 20 sessions_of_worker_are "$1"
}

give_sessions_back() {
	on_server "select count(pg_terminate_backend(pid)) from pg_stat_activity
		where query = 'select pg_sleep(600)'" >/dev/null
}

sessions_of_worker_are() { # COUNT
	[ "$(on_server "select count(*) from pg_stat_activity where usename = 'e2e_worker'")" -eq "$1" ]
}

sessions_by_program() {
	on_server "select string_agg(application_name || ' ' || count, ', ' order by application_name)
		from (select application_name, count(*) from pg_stat_activity
			where usename = 'e2e_worker' group by 1) a"
}

# ---- the programs

# As `start`, without waiting for what cannot come yet.
start_unready() { # INSTANCE PROGRAM [ARGUMENT ...]
	instance=$1
	shift
	"$@" </dev/null >>"$work/$instance.out" 2>>"$work/$instance.log" &
	echo $! >"$work/$instance.pid"
}

start_fleet() {
	superuser=$PGUSER
	PGUSER=e2e_worker
	start_unready settle outbox-settle
	start_unready sweep outbox-sweep
	start_unready claim1 outbox-claim --lease 3s
	start_unready claim2 outbox-claim --lease 3s --jobs "ipc://$OUTBOX_RUNTIME_DIR/jobs-2"
	start_unready listen outbox-listen
	PGUSER=$superuser
	for n in $(seq 5); do
		start "run$n" outbox-run --handlers "$handlers" -j 2 &&
			start "run2$n" outbox-run --handlers "$handlers" -j 2 \
				--jobs "ipc://$OUTBOX_RUNTIME_DIR/jobs-2" || return
	done
}

assert_none_has_ended() {
	for instance in $with_sessions run1 run25; do
		assertFalse "$instance has ended" "has_ended $(pid_of "$instance")" || show_logs
	done
}

have_logged() { # PATTERN: whether each of those with sessions has
	for instance in $with_sessions; do
		grep -q "$1" "$work/$instance.log" || return 1
	done
}

ticks_of() { # INSTANCE: user and system time so far, in 10 ms
	awk '{ print $14 + $15 }' "/proc/$(pid_of "$1")/stat"
}

# A sweeper has two sessions, one of which is for schedules.
fixed='outbox-claim 2, outbox-listen 1, outbox-settle 1, outbox-sweep 2'

sessions_are_fixed() {
	[ "$(sessions_by_program)" = "$fixed" ]
}

# ---- trouble

test_no_room_at_the_start() {
	noting_handler work
	set_up_server 'max_connections = 15' 'superuser_reserved_connections = 3'
	make_worker
	take_sessions 12
	start_fleet || return
	assert_soon 20 have_logged 'remaining connection slots are reserved\|too many clients' || return
	assert_none_has_ended
	enqueue_numbers work 100
	give_sessions_back
	assert_soon 60 none_is_open || return
	assertEquals 'runs' 100 "$(runs_of work)"
	assertTrue "ten runners, and sessions: $(sessions_by_program)" 'wait_until 20 sessions_are_fixed'
	assert_none_has_ended
	assert_sql 'nothing was charged' 'succeeded|100' 'select outcome, count(*) from outbox.attempt group by 1'
	assert_ledger
}

# And all come back at once.
test_a_restart_under_load() {
	noting_handler work 'sleep 0.01'
	set_up_server 'max_connections = 20' 'superuser_reserved_connections = 3'
	make_worker
	prepare_orders work
	start_fleet || return
	assert_soon 30 sessions_are_fixed || return
	start_stubborn_orders 100
	for orders in 100 300; do
		assert_soon 30 orders_reach $orders || return
		pg-temp restart "$PGHOST" -m fast
	done
	assert_soon 30 orders_reach 500 || return
	stop_stubborn_orders
	assert_soon 60 none_is_open || return
	assert_orders_survived work
	assertTrue "sessions: $(sessions_by_program)" 'wait_until 20 sessions_are_fixed'
	assert_none_has_ended
	assert_ledger
}

# A password that is wrong for a while. What is claimed goes back or is settled later.
test_sessions_are_refused_for_a_while() {
	noting_handler work 'sleep 0.01'
	set_up_server 'max_connections = 50'
	make_worker
	start_fleet || return
	assert_soon 30 sessions_are_fixed || return
	enqueue_numbers work 200
	assert_soon 20 test -s "$work/work.runs" || return
	cp "$PGHOST/data/pg_hba.conf" "$work/hba"
	{
		echo 'local all e2e_worker reject'
		cat "$work/hba"
	} >"$PGHOST/data/pg_hba.conf"
	on_server 'select pg_reload_conf()' >/dev/null
	on_server "select count(pg_terminate_backend(pid)) from pg_stat_activity
		where usename = 'e2e_worker'" >/dev/null
	assert_soon 20 have_logged 'pg_hba.conf rejects' || return
	for instance in $with_sessions; do
		ticks_of "$instance" >"$work/$instance.ticks"
	done
	end=$(($(date +%s) + refused_s))
	wait_until $((refused_s + 10)) is_past $end
	for instance in $with_sessions; do
		used=$(($(ticks_of "$instance") - $(cat "$work/$instance.ticks")))
		assertTrue "$instance used $used ticks in $refused_s s" "[ $used -le $((5 * refused_s)) ]"
	done
	assert_none_has_ended
	cat "$work/hba" >"$PGHOST/data/pg_hba.conf"
	on_server 'select pg_reload_conf()' >/dev/null
	assert_soon 60 none_is_open || return
	assert_sql 'every job has succeeded, once' '200|200' "
		select count(*), count(distinct job_id) from outbox.attempt where outcome = 'succeeded'"
	assert_sql 'nothing was charged to the jobs' '' "select outcome, code, count(*) from outbox.attempt
		where outcome not in ('succeeded', 'lost', 'released') group by 1, 2"
	assert_none_has_ended
	assert_ledger
}

is_past() { # SECONDS SINCE 1970
	[ "$(date +%s)" -ge "$1" ]
}

. shunit2
