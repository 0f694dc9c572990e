#!/bin/sh
# Results cannot be settled for a while, and the runners go on (SET-01): they keep what has
# ended, take no more than their bound, and all of it is settled afterwards, each attempt
# once. What runs again does so under the same idempotency key; each test prints how many.
#
# environment: SETTLER_DOWN_S  how long nothing can be settled (default 3). From 60 on as the
#                              case has it, which is 300: jobs of 2 s, leases of 60 s.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here

# One of these tests stops the server, so it is never one that is shared with other tests.
if [ -z "${OUTBOX_OWN_SERVER:-}" ]; then
	export OUTBOX_OWN_SERVER=1
	unset OUTBOX_TEST_DB
fi
. "$(dirname "$0")/../e2e/lib.sh"

: "${SETTLER_DOWN_S:=3}"
job_s=0.1 lease=2s jobs=300
[ "$SETTLER_DOWN_S" -lt 60 ] || job_s=2 lease=60s
runners=8 slots=4 bound=20
all_bounds=$((runners * bound))

# A handler that notes job, attempt and idempotency key before it does anything.
keyed_handler() { # KIND [MORE SHELL COMMANDS]
	handler "$1" <<-END
		#!/bin/sh
		echo "\$OUTBOX_JOB_ID \$OUTBOX_ATTEMPT \$OUTBOX_IDEMPOTENCY_KEY" >>$work/keys
		${2:-}
	END
	: >>"$work/keys"
}

# All programs, with many runners of a small bound each.
start_programs() {
	start settle outbox-settle --max-queue 1MiB &&
		start sweep outbox-sweep --interval 500ms &&
		start claim outbox-claim --lease "$lease" &&
		start listen outbox-listen &&
		each_runner start_runner &&
		assert_soon 20 each_runner is_registered
}

start_runner() { # INSTANCE
	start "$1" outbox-run --handlers "$handlers" -j "$slots" --max-unsettled "$bound"
}

is_registered() { # INSTANCE
	grep -q event=registered "$work/$1.log"
}

each_runner() { # COMMAND [ARGUMENT ...], which gets the instance after these
	for runner in $(seq "$runners"); do
		"$@" "run$runner" || return
	done
}

runs_reach() { # COUNT
	[ "$(wc -l <"$work/keys")" -ge "$1" ]
}

# Jobs that were handed out and whose end is not recorded.
unsettled() {
	sql 'select count(*) from outbox.claim c, unnest(c.ids, c.attempts) u (job_id, attempt)
		where not exists (select from outbox.attempt a
			where a.job_id = u.job_id and a.attempt = u.attempt)'
}

bounds_are_reached() {
	[ "$(unsettled)" -eq "$all_bounds" ]
}

bounds_are_kept() {
	[ "$(unsettled)" -le "$all_bounds" ]
}

# Nothing settles, and every runner holds as many results as it may.
hold_results() {
	signal settle STOP
	enqueue_numbers work "$jobs"
	assert_soon 60 bounds_are_reached && assert_soon 60 runs_reach "$all_bounds"
}

# Time that has to pass: nothing may change in it.
holds_for() { # SECONDS COMMAND [ARGUMENT ...]
	until_s=$(($(date +%s) + $1))
	shift
	while [ "$(date +%s)" -lt "$until_s" ]; do
		"$@" || return
		sleep 0.2
	done
}

resident_kb() { # INSTANCE ...: prints the sum
	for instance in "$@"; do
		grep VmRSS "/proc/$(pid_of "$instance")/status"
	done | awk '{ sum += $2 } END { print sum }'
}

all_resident_kb() {
	# shellcheck disable=SC2046 # one word a runner
	resident_kb $(each_runner echo)
}

# Everything has succeeded, whatever it took, and no attempt ran or was settled twice.
assert_settled() { # JOBS
	assert_soon 120 none_is_open || return
	assert_sql 'every job has succeeded, once' "$1|$1" "
		select count(*), count(distinct job_id) from outbox.attempt where outcome = 'succeeded'"
	assert_sql 'nothing was charged to the jobs' '' "
		select outcome, code, count(*) from outbox.attempt
		where outcome not in ('succeeded', 'lost', 'released') group by 1, 2"
	assertEquals 'attempts that ran twice' '' "$(cut -d' ' -f1,2 "$work/keys" | sort | uniq -d)"
	assertEquals 'a job has one key' "$1" "$(cut -d' ' -f1,3 "$work/keys" | sort -u | wc -l)"
	assertEquals 'a key has one job' "$1" "$(cut -d' ' -f3 "$work/keys" | sort -u | wc -l)"
	assert_ledger
	repeats=$(($(wc -l <"$work/keys") - $1))
	echo "repeats: $repeats of $1 jobs"
}

# ---- the settler is there and does nothing

test_frozen_settler() {
	keyed_handler work "sleep $job_s"
	start_programs || return
	hold_results || return
	before_kb=$(all_resident_kb)
	assertTrue 'no runner asks for more than its bound' \
		"holds_for $SETTLER_DOWN_S bounds_are_reached"
	after_kb=$(all_resident_kb)
	assertTrue "the runners' memory stays the same: $before_kb kB, $after_kb kB" \
		"[ $after_kb -le $((before_kb + runners * 256)) ]"
	assertEquals 'and none runs more' "$all_bounds" "$(wc -l <"$work/keys")"
	signal settle CONT
	assert_settled "$jobs"
	assertEquals 'what has ended does not run again' 0 "$repeats"
}

# ---- the settler is gone, and with it results that were sent to it

test_killed_settler() {
	keyed_handler work "sleep $job_s"
	start_programs || return
	enqueue_numbers work "$jobs"
	assert_soon 60 runs_reach $((runners * slots + 1)) || return
	signal settle STOP
	assert_soon 60 runs_reach $(($(wc -l <"$work/keys") + runners * slots + 1)) || return
	kill_program settle || fail 'the settler had ended before it was killed'
	assertTrue 'no runner asks for more than its bound' \
		"holds_for $SETTLER_DOWN_S bounds_are_kept"
	assert_sql 'jobs are still owed' t 'select exists (select from outbox.ready)'
	start settle outbox-settle || return
	assert_settled "$jobs"
	assertEquals 'what has ended does not run again' 0 "$repeats"
}

# ---- there is no database; attempts that outlast their lease run again

test_stopped_database() {
	keyed_handler work "sleep $job_s"
	keyed_handler long "[ \$OUTBOX_ATTEMPT -gt 1 ] || sleep $((SETTLER_DOWN_S + 60))"
	printf '[handler]\ntimeout = 1h\n' >"$handlers/long.ini"
	start_programs || return
	enqueue_numbers long 4
	enqueue_numbers work "$jobs"
	assert_soon 60 runs_reach $((runners * slots)) || return
	pg-temp stop "$PGHOST"
	assert_soon 90 all_leases_are_lost || return
	holds_for "$SETTLER_DOWN_S" true
	before=$(wc -l <"$work/keys")
	assertTrue "$before runs, of which none began without a lease" \
		"holds_for 1 runs_are $before"
	pg-temp start "$PGHOST"
	assert_settled $((jobs + 4))
	assertEquals 'only the long ones ran again' 4 "$repeats"
	assert_sql 'nobody was taken for dead' 0 \
		"select count(*) from outbox.attempt where outcome = 'lost'"
}

lease_is_lost() { # INSTANCE
	grep -q event=lease_lost "$work/$1.log"
}

all_leases_are_lost() {
	each_runner lease_is_lost
}

runs_are() { # COUNT
	[ "$(wc -l <"$work/keys")" -eq "$1" ]
}

# ---- leases end while the results wait: all of these jobs run again

test_leases_end_meanwhile() {
	keyed_handler work "sleep $job_s"
	start_programs || return
	hold_results || return
	signal claim STOP # beats do not reach the database
	assert_soon 200 no_worker_is_left || return
	assert_sql 'all that was in flight is lost' "$all_bounds" \
		"select count(*) from outbox.attempt where outcome = 'lost'"
	signal claim CONT
	signal settle CONT
	assert_settled "$jobs"
	assertEquals 'all that was lost ran again' "$all_bounds" "$repeats"
}

no_worker_is_left() {
	[ "$(sql 'select count(*) from outbox.worker')" = 0 ]
}

# ---- high-water marks of 10 messages: what does not fit waits with its runner

test_small_high_water_marks() {
	keyed_handler work 'head -c 60000 /dev/zero | tr "\\0" x'
	slots=1
	export HWM_NOTES="$work/hwm" LD_PRELOAD="$bin/tests/fault/preload/hwm.so"
	export ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}"
	start_programs
	started=$?
	slots=4
	unset HWM_NOTES LD_PRELOAD
	[ "$started" -eq 0 ] || return
	signal settle STOP
	enqueue_numbers work "$jobs"
	assert_soon 60 bounds_are_reached || return
	assert_soon 20 test -s "$work/hwm" || return
	holds_for 1 true
	signal settle CONT
	assert_settled "$jobs"
	assertEquals 'what has ended does not run again' 0 "$repeats"
}

# ---- large results reach a bound of bytes before the one of their number

test_large_results() {
	keyed_handler work 'head -c 60000 /dev/zero | tr "\\0" x'
	runners=1 bound=5000
	start_programs
	started=$?
	runners=8 bound=20
	[ "$started" -eq 0 ] || return
	signal settle STOP
	enqueue_numbers work 400
	# and what had been asked for before: of quick jobs as many as end in 20 ms
	most=$((16 * 1024 * 1024 / 60000 + 64))
	assert_soon 60 runs_reach 270 || return
	holds_for 1 true
	assertTrue "$(wc -l <"$work/keys") runs are no more than $most" \
		"[ $(wc -l <"$work/keys") -le $most ]"
	kb=$(resident_kb run1)
	echo "resident: $kb kB"
	assertTrue "$kb kB are the results, as kept and as sent, and little more" \
		"[ $kb -le 65536 ] || grep -q __asan_init '$bin/outbox-run'"
	signal settle CONT
	assert_settled 400
}

. shunit2
