#!/bin/sh
# Hosts whose clocks are wrong, or jump (CLM-05, SCH-03): when a job or a tick is due and how long
# a lease lasts is the database's to say, and how long a handler runs is the monotonic clock's.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/../e2e/lib.sh"

plain=$bin
preload=$(faketime -f +1h printenv LD_PRELOAD)

# Puts the programs, with a clock that says something else, below $work/bin/NAME. Only the time
# of day is wrong; handlers do not inherit it.
make_clock() { # NAME SETTING OF libfaketime
	mkdir -p "$work/bin/$1"
	for program in claim listen run settle sweep; do
		cat >"$work/bin/$1/outbox-$program" <<-END
			#!/bin/sh
			export LD_PRELOAD='$preload' FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1
			export FAKETIME_NO_CACHE=1 $2
			exec $plain/outbox-$program "\$@"
		END
		chmod 755 "$work/bin/$1/outbox-$program"
	done
	bin=$work/bin
}

# The time in the log of a program; its first line.
assert_clock_is_off() { # INSTANCE MINUTES
	off=$((($(date -d "$(sed -n '1s/^time=\([^ ]*\).*/\1/p' "$work/$1.log")" +%s) - $(date +%s)) / 60))
	assertTrue "the clock of $1 is $off minutes off" "[ $off -ge $(($2 - 1)) ] && [ $off -le $(($2 + 1)) ]"
}

# Handlers run for longer than a lease, and wait for each other in the queue.
test_hosts_that_differ_by_minutes() {
	noting_handler long 'sleep 4'
	noting_handler later
	noting_handler tick
	outbox schedule set tick '0 0 1 1 *' --kind tick --payload '{"n":1}' >/dev/null
	make_clock fast 'FAKETIME=+10m'
	make_clock slow 'FAKETIME=-10m'
	start settle fast/outbox-settle &&
		start sweep fast/outbox-sweep --interval 200ms &&
		start sweep2 slow/outbox-sweep --interval 200ms --events none &&
		start run slow/outbox-run --handlers "$handlers" -j 10 &&
		start run2 fast/outbox-run --handlers "$handlers" -j 10 \
			--jobs "ipc://$OUTBOX_RUNTIME_DIR/jobs-2" &&
		start claim fast/outbox-claim --lease 2s &&
		start claim2 slow/outbox-claim --lease 2s --jobs "ipc://$OUTBOX_RUNTIME_DIR/jobs-2" &&
		start listen slow/outbox-listen || return
	assert_clock_is_off claim 10
	assert_clock_is_off claim2 -10
	enqueue_numbers long 40
	sql "update outbox.schedule set next_at = now() + interval '2 s' returning next_at" >"$work/tick.at"
	sql "select pg_notify('outbox_schedule', '')" >/dev/null
	for n in 1 2 3 4 5; do
		enqueue later "{\"n\":$n}" ", delay => '$n s'" >/dev/null
	done
	assert_soon 60 none_is_open || return
	assertEquals 'runs' 40 "$(runs_of long)"
	assert_sql 'the tick fired once, at its time' '1|t' "
		select count(*), min(created_at) - '$(cat "$work/tick.at")'
			between interval '0' and interval '5 s' from outbox.job where kind = 'tick'"
	assert_sql 'all at the first attempt, by two runners' '46|1|1|2' "
		select count(*), min(attempt), max(attempt), count(distinct worker)
		from outbox.attempt where outcome = 'succeeded'"
	assert_sql 'none too early, none much too late' t "
		select bool_and(a.started_at - j.run_at between interval '0' and interval '10 s')
		from outbox.attempt a join outbox.job j on j.id = a.job_id where a.kind = 'later'"
	assert_sql 'instants are the database'\''s' t "
		select min(started_at) > now() - interval '2 min' and max(finished_at) <= now()
			and bool_and(duration_ms between 0 and 9000) from outbox.attempt"
	bin=$plain
	assert_ledger
}

# The settings of the clock are read again each time.
set_clock() { # OFFSET
	echo "$1" >"$work/clock.new"
	mv "$work/clock.new" "$work/clock"
}

test_a_clock_that_jumps_while_handlers_run() {
	noting_handler short 'sleep 3'
	noting_handler endless 'sleep 60'
	printf '[handler]\ntimeout = 4s\ngrace = 100ms\n[retry]\nmax_attempts = 1\n' \
		>"$handlers/endless.ini"
	set_clock +0
	make_clock jumping "FAKETIME_TIMESTAMP_FILE=$work/clock"
	start settle jumping/outbox-settle && start sweep jumping/outbox-sweep --interval 200ms &&
		start run jumping/outbox-run --handlers "$handlers" -j 4 &&
		start claim jumping/outbox-claim --lease 2s && start listen jumping/outbox-listen || return
	for jump in +1h -1h; do
		set_clock +0
		: >"$work/short.runs"
		enqueue_numbers short 1
		enqueue_numbers endless 1
		assert_soon 10 both_run || return
		set_clock "$jump"
		assert_soon 20 none_is_open || return
		assert_clocks_jumped "$jump"
	done
	assert_sql 'neither killed nor prolonged' 'endless|dead|timeout|2|t
short|succeeded||2|t' "
		select kind, outcome, code, count(*), bool_and(duration_ms between 2900 and 6000)
		from outbox.attempt group by 1, 2, 3 order by 1"
	bin=$plain
	assert_ledger
}

both_run() {
	[ -s "$work/short.runs" ] && [ -s "$work/endless.runs" ]
}

assert_clocks_jumped() { # JUMP
	last=$(grep event=handler_exited "$work/run.log" | tail -n 1 | sed 's/^time=\([^ ]*\).*/\1/')
	off=$((($(date -d "$last" +%s) - $(date +%s)) / 60))
	assertTrue "the clock of the runner is $off minutes off" "[ ${off#-} -ge 58 ]"
}

if [ -z "$preload" ]; then
	echo 'faketime is not installed' >&2
	exit 69
fi
. shunit2
