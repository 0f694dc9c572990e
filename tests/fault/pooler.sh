#!/bin/sh
# All but the listener behind a transaction pooler (CLM-04), with fewer sessions than programs:
# each job is run once, and no session is left with anything of ours. Whether or not the programs
# are told of it.
#
# environment: POOLER_S  seconds of load (default 3; the case says 600)
# shellcheck disable=SC1091,SC2034,SC2154 # lib.sh sets and reads what is not here
. "$(dirname "$0")/../e2e/lib.sh"
. "$(dirname "$0")/../e2e/orders.sh"
. "$(dirname "$0")/pgbouncer.sh"

pooler_s=${POOLER_S:-3}
claimers='1 2 3 4'

# Of each claimer two runners.
start_many() { # [OPTION OF THOSE WITH A DATABASE ...]
	start settle outbox-settle "$@" && start settle2 outbox-settle "$@" --events none \
		--results "ipc://$OUTBOX_RUNTIME_DIR/results-2" || return
	start sweep outbox-sweep --interval 500ms "$@" &&
		start sweep2 outbox-sweep --interval 500ms --events none "$@" || return
	for n in $claimers; do
		start "claim$n" outbox-claim --lease 3s --jobs "ipc://$OUTBOX_RUNTIME_DIR/jobs-$n" "$@" &&
			start_runner "run$n.1" "$n" results &&
			start_runner "run$n.2" "$n" results-2 || return
	done
}

start_runner() { # INSTANCE CLAIMER RESULTS
	start "$1" outbox-run --handlers "$handlers" -j 2 --lane default \
		--jobs "ipc://$OUTBOX_RUNTIME_DIR/jobs-$2" --results "ipc://$OUTBOX_RUNTIME_DIR/$3"
}

# What each of the pooler's sessions says, asked at once: settings, statements, locks.
ask_sessions() {
	for n in 1 2 3; do
		psql -qXAt -h "$work/pooler" -c "select pg_backend_pid(), pg_sleep(0.5),
			(select string_agg(name || '=' || setting, ' ' order by name) from pg_settings
				where source = 'session' and name not in ('application_name', 'client_encoding')),
			(select count(*) from pg_prepared_statements),
			(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid())" \
			>"$work/session.$n" &
		echo $! >"$work/session$n.pid"
	done
	for n in 1 2 3; do
		wait_for_end "session$n"
	done
	cat "$work"/session.[123]
}

three_sessions_are_clean() {
	ask_sessions >"$work/sessions"
	[ "$(cut -d'|' -f1 "$work/sessions" | sort -u | wc -l)" -eq 3 ] &&
		[ "$(cut -d'|' -f3- "$work/sessions" | sort -u)" = '|0|0' ]
}

run_through_pooler() { # [OPTION OF THOSE WITH A DATABASE ...]
	noting_handler work 'sleep 0.01'
	noting_handler tick
	prepare_orders work
	start_pooler transaction 3 || return
	outbox schedule set tick '0 0 1 1 *' --kind tick --payload '{"n":1}' >/dev/null
	PGHOST=$work/pooler
	start_many "$@" || return
	start_orders -R 100 -T "$pooler_s"
	assert_soon 20 orders_reach 100 || return
	sql "update outbox.schedule set next_at = now() + interval '100 ms'"
	kill_program run1.1 && start_runner run1.1 1 results || return
	kill_program claim2 && start claim2 outbox-claim --lease 3s \
		--jobs "ipc://$OUTBOX_RUNTIME_DIR/jobs-2" "$@" || return
	wait_for_end load $((pooler_s + 30))
	assertEquals 'exit status of the load' 0 $? || show_logs
	assert_soon 60 none_is_open || return
	assert_soon 10 tick_has_run || return

	assert_orders_were_run work
	assert_sql 'each tick and each job once' 't|1' "
		select count(*) filter (where outcome = 'succeeded') = count(distinct job_id),
			count(distinct job_id) filter (where kind = 'tick') from outbox.attempt"
	assert_sql 'nothing was charged to the jobs' '' "select outcome, code, count(*) from outbox.attempt
		where outcome not in ('succeeded', 'lost', 'released') group by 1, 2"
	assert_soon 20 three_sessions_are_clean || cat "$work/sessions"
	for n in $claimers; do
		stop "run$n.1" && stop "run$n.2" && stop "claim$n"
		assertEquals "exit status of those of claimer $n" 0 $?
	done
	for instance in settle settle2 sweep sweep2; do
		stop "$instance"
		assertEquals "exit status of $instance" 0 $?
	done
	PGHOST=$server_host
	assert_ledger
}

tick_has_run() {
	[ "$(runs_of tick)" -eq 1 ]
}

test_programs_that_are_told() {
	run_through_pooler --pooled
}

test_programs_that_find_out() {
	run_through_pooler
	assertEquals 'all say so, the one that was killed twice' 9 "$(cat "$work"/claim*.log "$work"/settle*.log "$work"/sweep*.log |
		grep -c 'event=connected pooler=yes')"
}

. shunit2
