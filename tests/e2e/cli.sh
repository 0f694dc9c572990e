#!/bin/sh
# The front end: what its subcommands print, refuse and exit with. No program runs beside it:
# where an attempt must be in flight, SQL claims it for a worker that does not exist.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

# ---- standing in for claimer, runner and settler

claim() { # KIND: everything of it that is due
	sql "select count(*) from outbox.claim('w', 'default', '{$1}', '{1000}', 1000)" >/dev/null
}

finish() { # ID OUTCOME [CODE [ERROR]]
	sql "select outcome from outbox.settle_claimed('$2', nullif('${3:-}', ''),
		nullif('${4:-}', ''), array(
			select row(c.id, c.worker, c.found, v.id, v.attempts + 1)::outbox.claimed
			from outbox.jobs v, outbox.claim_of(v.id, v.attempts + 1) c where v.id = $1))" >/dev/null
}

run_job() { # ID OUTCOME [CODE [ERROR]]
	claim "$(sql "select kind from outbox.job where id = $1")"
	finish "$@"
}

state_of() { # ID
	sql "select outbox.job_state($1)"
}

ids() { # of JSON lines: one a line
	sed -n 's/.*"\(job_\)\{0,1\}id":"\([0-9]*\)".*/\2/p' "$@"
}

# ---- enqueue

test_enqueue() {
	outbox_exits 0 enqueue mail '{"n":1}' --dedupe-key k --tenant t1
	id=$(cut -d' ' -f1 "$work/out")
	assertEquals 'a new job' "$id created" "$(out)"
	outbox_exits 0 enqueue mail '{"n":2}' --dedupe-key k --tenant t1
	assertEquals 'the key exists' "$id exists" "$(out)"
	outbox_exits 1 enqueue sms '{"n":3}' --dedupe-key k --tenant t1
	assertEquals 'the key is that of another kind' "$id dedupe_conflict" "$(out)"
	outbox_exits 0 enqueue mail '{"n":4}' --dedupe-key k --tenant t2
	outbox_exits 65 enqueue mail '{"n":'
	outbox_exits 65 enqueue Mail '{}'
	outbox_exits 64 enqueue mail '{}' --priority 5
	outbox_exits 65 enqueue mail '{}' --delay 1s --run-at tomorrow
	assert_sql 'nothing else was enqueued' 2 'select count(*) from outbox.job'
}

test_enqueue_passes_every_option() {
	outbox_exits 0 enqueue mail --subject alice --correlation-id c --traceparent 00-1 --delay 1h \
		--priority 4 --max-attempts 3 --metadata '{"m":1}' --least-version 7
	assert_sql 'the job' 'alice|c|00-1|t|4|3|{"m":1}|7|{}' "select subject_key, correlation_id,
		traceparent, run_at = created_at + '1 h', priority, max_attempts, metadata, version,
		payload from outbox.job"
}

test_enqueue_keeps_a_payload_byte_for_byte() {
	printf '{ "b":12345678901234567890,\n  "a":1.0e3 }\n' >"$work/payload"
	"$bin/outbox" enqueue mail - <"$work/payload" >"$work/out"
	assertEquals 'the payload' "$(cat "$work/payload")" "$(sql 'select payload from outbox.job')"
	outbox_exits 0 show --json "$(cut -d' ' -f1 "$work/out")"
	assertContains 'one line of JSON, no digit lost' "$(out)" \
		'"payload":{ "b":12345678901234567890,   "a":1.0e3 } ,'
	assertEquals 'lines' 1 "$(wc -l <"$work/out")"
}

# ---- looking

test_list() {
	for n in 1 2 3 4 5; do
		enqueue mail "{\"n\":$n}" ", tenant_key => 't$((n % 2))'" >>"$work/ids"
	done
	enqueue sms '{}' ", delay => '1 h'" >>"$work/ids"
	run_job "$(sed -n 1p "$work/ids")" fail bounced
	outbox_exits 0 list --json
	assertEquals 'the newest first' "$(sort -rn "$work/ids")" "$(ids "$work/out")"
	outbox_exits 0 list --json --order oldest
	assertEquals 'the oldest first' "$(cat "$work/ids")" "$(ids "$work/out")"
	outbox_exits 0 list --json --state dead
	assertEquals 'dead ones' "$(sed -n 1p "$work/ids")" "$(ids "$work/out")"
	outbox_exits 0 list --json --state pending --kind sms
	assertEquals 'of a kind' "$(sed -n 6p "$work/ids")" "$(ids "$work/out")"
	outbox_exits 0 list --json --tenant t0
	assertEquals 'of a tenant' 2 "$(wc -l <"$work/out")"
	outbox_exits 0 list --json --no-tenant
	assertEquals 'without a tenant' "$(sed -n 6p "$work/ids")" "$(ids "$work/out")"
	outbox_exits 0 list --json --code bounced --created-after 1h --created-before tomorrow
	assertEquals 'by code and time' 1 "$(wc -l <"$work/out")"
	outbox_exits 0 list --json --finished-before 1h
	assertEquals 'none that old' 0 "$(wc -l <"$work/out")"
}

test_list_goes_on_page_by_page() {
	enqueue_numbers mail 10
	outbox_exits 0 list --json
	ids "$work/out" >"$work/all"
	cursor=
	: >"$work/pages"
	for page in 1 2 3 4; do
		outbox_exits 0 list --json --limit 3 ${cursor:+--cursor "$cursor"}
		ids "$work/out" >>"$work/pages"
		cursor=$(sed -n 's/.*"cursor":"\(.*\)"}/\1/p' "$work/out" | tail -n 1)
	done
	assertEquals "up to page $page" "$(cat "$work/all")" "$(cat "$work/pages")"
	outbox_exits 0 list --limit 3
	assertContains 'people are told how to go on' "$(cat "$work/err")" 'more: --cursor c.'
	outbox_exits 65 list --cursor f1.1
	outbox_exits 65 list --state nonsense
	outbox_exits 65 list --created-after nonsense
	outbox_exits 64 list --created-after 1h --created-from 1h
	outbox_exits 64 list --tenant x --no-tenant
}

test_tables_are_aligned_and_harmless() {
	claim_ids=$(enqueue mail '{}' ", tenant_key => 'größe'")
	second=$(enqueue mail '{}' ", tenant_key => 'x'")
	outbox_exits 0 list --order oldest
	assertEquals 'aligned by characters' "$(cat <<-END
		                 id  kind  state    tenant_key  attempts  code
		$claim_ids  mail  pending  größe              0
		$second  mail  pending  x                  0
	END
	)" "$(sed -e 's/  due_at.*//' -e 's/  *2[0-9]*-.*//' "$work/out")"
	long=$(printf '%080d' 0)
	claim mail
	finish "$claim_ids" fail bad "$(printf '\033[31mred\nline %s' "$long")"
	outbox_exits 0 history "$claim_ids"
	assertTrue 'controls are escaped' "grep -qF '\\x1b[31mred\\nline 000' '$work/out'"
	assertTrue 'long values are cut' "grep -q '000…' '$work/out'"
	outbox_exits 0 show "$claim_ids"
	assertContains 'but not where there is room' "$(out)" "$long"
	outbox_exits 0 history --json "$claim_ids"
	assertTrue 'nor in JSON' "grep -qF 'u001b[31mred\\nline $long\"' '$work/out'"
}

test_instants_are_meant_and_shown_in_the_time_zone_of_the_session() {
	id=$(enqueue mail '{}')
	sql "update outbox.job set created_at = '2026-01-31 23:30Z'"
	for case in 'UTC|2026-01-31T23:30:00Z|1' 'Europe/Berlin|2026-02-01T00:30:00+01:00|0' \
		'Asia/Kolkata|2026-02-01T05:00:00+05:30|0'; do
		PGTZ=${case%%|*}
		export PGTZ
		outbox_exits 0 show --json "$id"
		instant=${case#*|}
		assertContains "$PGTZ" "$(out)" "\"created_at\":\"${instant%|*}\""
		outbox_exits 0 count --created-before '2026-02-01 00:00'
		assertEquals "before February in $PGTZ" "${case##*|}" "$(out)"
		outbox_exits 0 list --json --created-before '2026-02-01 00:00'
		assertEquals "and in JSON" "${case##*|}" "$(wc -l <"$work/out")"
	done
	unset PGTZ
}

test_count() {
	enqueue_numbers mail 10
	outbox_exits 0 count
	assertEquals 'all' 10 "$(out)"
	outbox_exits 0 count --at-most 4
	assertEquals 'it stops' '4+' "$(out)"
	outbox_exits 0 count --state dead --json
	assertEquals 'JSON' '{"count":0,"complete":true}' "$(out)"
}

test_show_history_and_explain() {
	id=$(enqueue mail '{}' ", tenant_key => 't1', max_attempts => 2")
	run_job "$id" retry busy
	outbox_exits 0 resend "$id" --by alice --reason 'the line is free' --attempts 2
	run_job "$id" fail bounced 'no such mailbox'
	outbox_exits 0 show "$id" --tenant t1
	assertContains 'the state' "$(out)" 'state                dead'
	assertContains 'the error' "$(out)" 'error                no such mailbox'
	outbox_exits 0 history "$id"
	assertEquals 'entries' 'enqueued attempt resend attempt' \
		"$(sed 1d "$work/out" | tr -s ' ' | cut -d' ' -f3 | tr '\n' ' ' | sed 's/ $//')"
	outbox_exits 0 history --json "$id"
	assertContains 'who and why' "$(tail -n 1 "$work/out")" \
		'"trigger":"manual","triggered_by":"alice","reason":"the line is free"'
	assertContains 'instants' "$(out)" "\"at\":\"$(date -u +%Y)-"
	outbox_exits 0 explain "$id"
	assertContains 'how it ended' "$(out)" 'with code bounced by alice'
	for command in show history explain watch; do
		outbox_exits 1 $command 1
		assertEquals 'message' "outbox $command: job 1 is not found" "$(cat "$work/err")"
		outbox_exits 1 $command "$id" --tenant t2
		outbox_exits 1 $command "$id" --no-tenant
		outbox_exits 64 $command
		outbox_exits 64 $command nonsense
	done
}

test_backlog_grades() {
	outbox_exits 0 backlog
	id=$(enqueue mail '{}')
	outbox_exits 1 backlog
	assertContains 'no worker' "$(out)" warning
	sql "insert into outbox.worker (id, host, pid, program_version, lane, lease_ms, kinds,
		versions, started_at, seen_at)
		values ('w', 'h', 1, '0', 'default', 600000, '{mail}', '{0}', now(), now())"
	outbox_exits 0 backlog
	outbox_exits 1 backlog --aged 0
	outbox_exits 0 backlog --json --aged 1m
	assertContains 'numbers' "$(out)" '"pending":1,"retrying":0,"due":1,"aged":0,'
	sql "update outbox.ready set due_at = now() - interval '2 h'"
	outbox_exits 2 backlog
	assertContains 'too old' "$(out)" critical
	outbox_exits 1 backlog --critical 3h
}

test_stats() {
	for n in 1 2 3; do
		id=$(enqueue mail '{}')
		run_job "$id" ok
	done
	id=$(enqueue sms '{}')
	run_job "$id" fail bounced
	outbox_exits 0 stats --json --kind mail
	assertContains 'mail' "$(out)" '"kind":"mail","outcome":"succeeded","code":null,"attempts":3,'
	outbox_exits 0 stats --since today --until tomorrow
	assertEquals 'lines with the header' 3 "$(wc -l <"$work/out")"
	outbox_exits 0 stats --json --since 2d --until 1d
	assertEquals 'nothing then' '' "$(out)"
}

watched() { # COUNT: whether so many changes were printed
	[ "$(wc -l <"$work/watch.out")" -eq "$1" ]
}

test_watch() {
	id=$(enqueue mail '{}')
	"$bin/outbox" watch "$id" --interval 20ms >"$work/watch.out" 2>&1 &
	echo $! >"$work/watch.pid"
	assert_soon 10 watched 1
	claim mail
	assert_soon 10 watched 2
	finish "$id" ok
	wait_for_end watch
	assertEquals 'exit status when it succeeded' 0 $?
	assertEquals 'states' 'pending running succeeded' \
		"$(sed 's/.*state=\([a-z]*\).*/\1/' "$work/watch.out" | tr '\n' ' ' | sed 's/ $//')"
	id=$(enqueue mail '{}')
	outbox_exits 75 watch "$id" --wait 50ms --interval 10ms
	run_job "$id" fail
	outbox_exits 1 watch "$id"
}

test_looking_has_a_time_limit() {
	# holds the lock until its input ends
	mkfifo "$work/input"
	psql -qXAt <"$work/input" >"$work/locked" 2>&1 &
	echo $! >"$work/psql.pid"
	exec 8>"$work/input"
	echo 'begin; lock table outbox.job; select 1;' >&8
	assert_soon 10 test -s "$work/locked"
	outbox_exits 75 list --timeout 100ms
	outbox_exits 75 cancel 1 --timeout 100ms
	exec 8>&-
}

test_what_cannot_be_written_is_an_error() {
	"$bin/outbox" backlog >/dev/full 2>"$work/err"
	assertEquals 'exit status' 74 $?
	enqueue_numbers mail 100
	assertEquals 'a closed pipe ends it quietly' '' "$( ("$bin/outbox" list; :) 2>&1 | head -n 0)"
}

test_an_unreachable_database() {
	PGPORT=1 outbox_exits 69 list
	outbox_exits 64 list --nonsense
	outbox_exits 64 nonsense
}

# ---- acting

test_acting_on_ids() {
	first=$(enqueue mail '{}')
	second=$(enqueue mail '{}')
	outbox_exits 0 cancel "$second" "$first" --by alice --reason 'a mistake'
	assertEquals 'each id' "$(printf '%s cancelled\n' "$first" "$second")" "$(out)"
	assertEquals 'summary' '2 cancelled' "$(cat "$work/err")"
	outbox_exits 1 cancel "$first" 1
	assertEquals 'refusals' "$(printf '1 not_found\n%s ended' "$first")" "$(out)"
	printf '%s\n' "$first" "$second" >"$work/ids"
	"$bin/outbox" replay - <"$work/ids" >"$work/out" 2>"$work/err"
	assertEquals 'ids from stdin' "$(printf '%s rearmed\n' "$first" "$second")" "$(out)"
	outbox_exits 1 replay --json "$first"
	assertEquals 'JSON' "{\"job_id\":\"$first\",\"status\":\"not_ended\",\"blocking_id\":null}" "$(out)"
	claim mail
	for command in replay resend retry-now; do
		outbox_exits 1 $command "$first"
		assertEquals "$command of a running job" "$first in_flight" "$(out)"
	done
	outbox_exits 0 cancel "$first"
	assertEquals 'cancel of a running job' "$first requested" "$(out)"
	for command in cancel replay resend retry-now; do
		outbox_exits 64 $command
		outbox_exits 64 $command --kind mail
		outbox_exits 64 $command "$second" --state dead
		outbox_exits 64 $command "$second" nonsense
		outbox_exits 64 $command --state dead --rate fast
		outbox_exits 1 $command "$second" --tenant t1
		assertEquals "$command, other tenant" "$second not_found" "$(out)"
	done
	assertEquals 'the other one is untouched' running "$(state_of "$second")"
}

test_replay_into_an_occupied_key() {
	first=$(enqueue mail '{}' ", dedupe_key => 'k', dedupe => 'until_done'")
	run_job "$first" fail
	second=$(enqueue mail '{}' ", dedupe_key => 'k', dedupe => 'until_done'")
	outbox_exits 1 replay "$first"
	assertEquals 'it names the job' "$first occupied_key by $second" "$(out)"
}

test_replay_after_the_last_attempt() {
	id=$(enqueue mail '{}')
	run_job "$id" fail
	sql "update outbox.attempt set attempt = 32767 where job_id = $id"
	outbox_exits 1 replay "$id"
	assertEquals 'it is refused' "$id attempt_limit" "$(out)"
}

test_retry_now() {
	id=$(enqueue mail '{}' ", delay => '1 h'")
	outbox_exits 0 retry-now "$id"
	run_job "$id" retry
	assertEquals 'it ran' retrying "$(state_of "$id")"
}

test_acting_on_what_matches() {
	enqueue_numbers mail 7
	enqueue_numbers sms 2
	outbox_exits 0 cancel --state pending --kind mail --dry-run
	assertEquals 'what would be done' '7 matched' "$(cat "$work/err")"
	assertTrue 'nothing was done' 'jobs_are pending 9'
	outbox_exits 0 cancel --state pending --kind mail --limit 5
	assertEquals 'at most so many' '5 cancelled' "$(cat "$work/err")"
	outbox_exits 0 cancel --state pending --kind mail
	assertEquals 'the others' '2 cancelled' "$(cat "$work/err")"
	assertTrue 'the other kind is untouched' 'jobs_are pending 2'
	outbox_exits 0 replay --state cancelled --kind mail --json
	assertEquals 'JSON lines' 7 "$(grep -c '"status":"rearmed"' "$work/out")"
	outbox_exits 0 cancel --state dead
	assertEquals 'nothing to do' 'no jobs' "$(cat "$work/err")"
}

test_acting_in_many_batches() {
	enqueue_numbers mail 350
	outbox_exits 0 cancel --state pending
	assertEquals 'all of them' '350 cancelled' "$(cat "$work/err")"
	assertEquals 'each once' 350 "$(sort -u "$work/out" | wc -l)"
	outbox_exits 0 resend --state cancelled
	assertEquals 'all of them again' '350 rearmed' "$(cat "$work/err")"
}

test_rate() {
	enqueue_numbers mail 30
	started=$(date +%s%N)
	outbox_exits 0 cancel --state pending --rate 20/s
	took_ms=$((($(date +%s%N) - started) / 1000000))
	assertTrue "30 jobs at 20/s took $took_ms ms" "[ $took_ms -ge 1300 ]"
	assertTrue 'all are done' 'jobs_are cancelled 30'
}

test_erase_tenant() {
	for n in 1 2 3 4; do
		enqueue mail '{}' ", tenant_key => 'leaver', dedupe_key => 'k$n'" >>"$work/ids"
	done
	enqueue mail '{}' ", tenant_key => 'stayer', dedupe_key => 'k1'" >/dev/null
	claim mail
	first=$(sed -n 1p "$work/ids")
	finish "$first" ok
	outbox_exits 75 erase-tenant leaver --wait 0 --batch 2
	assertEquals 'what had ended' '1 erased' "$(out)"
	assertContains 'the others are left' "$(cat "$work/err")" '3 jobs are still in flight'
	"$bin/outbox" erase-tenant leaver --json >"$work/erase.out" 2>"$work/erase.log" &
	echo $! >"$work/erase.pid"
	sed 1d "$work/ids" | while read -r id; do
		finish "$id" retry
	done
	wait_for_end erase
	assertEquals 'exit status' 0 $?
	assertEquals 'the others' '{"erased":3,"in_flight":0}' "$(cat "$work/erase.out")"
	assert_sql 'nothing is left' '0|0|0' "select
		(select count(*) from outbox.job where tenant_key = 'leaver'),
		(select count(*) from outbox.attempt where tenant_key = 'leaver'),
		(select count(*) from outbox.dedupe where tenant_key = 'leaver')"
	assert_sql 'nobody else lost anything' '1|1' 'select (select count(*) from outbox.job),
		(select count(*) from outbox.dedupe)'
}

test_roles() {
	outbox_exits 0 migrate --roles
	first=$(enqueue mail '{}' ", dedupe_key => 'k', dedupe => 'until_done', tenant_key => 't1'")
	second=$(enqueue mail '{}' ", delay => '1 h'")
	run_job "$first" fail
	export PGOPTIONS='-c role=outbox_viewer'
	for command in list count backlog stats; do
		"$bin/outbox" $command >"$work/out" 2>"$work/err"
		status=$? # of backlog a grade
		assertTrue "a viewer may $command: $(cat "$work/err")" "[ $status -le 2 ]"
	done
	for command in show history explain; do
		outbox_exits 0 $command "$first"
	done
	for command in cancel replay resend retry-now; do
		outbox_exits 77 $command "$first"
	done
	outbox_exits 77 enqueue mail
	outbox_exits 77 erase-tenant t1
	export PGOPTIONS='-c role=outbox_operator'
	outbox_exits 0 replay "$first"
	outbox_exits 0 cancel "$first"
	outbox_exits 0 resend "$first"
	outbox_exits 0 retry-now "$second"
	outbox_exits 0 enqueue mail
	outbox_exits 0 erase-tenant t1
	assertEquals 'the tenant is gone' '1 erased' "$(out)"
	unset PGOPTIONS
}

# Operators, a claimer and a settler over the same jobs, each in random order.
test_operators_never_deadlock() {
	sql "select count(*) from outbox.enqueue_many(array['a', 'b'], array['{}', '{}'])" >/dev/null
	sql "select count(*) from outbox.enqueue_many(array['a'], array_fill('{}'::text, array[60]),
		dedupe_keys => array(select 'k' || n % 40 from generate_series(1, 60) n),
		dedupe => 'until_done', tenant_keys => array(select 't' || n % 3 from generate_series(1, 60) n))" \
		>/dev/null
	cat >"$work/act.sql" <<-'END'
		\set action random(1, 4)
		select count(*) from outbox.act_on_ids((array['cancel', 'replay', 'resend', 'retry_now'])[:action],
			array(select id from outbox.job order by random() limit 20));
	END
	cat >"$work/work.sql" <<-'END'
		select count(*) from outbox.claim('w' || pg_backend_pid(), 'default', '{a,b}', '{9,9}', 9);
		select count(*) from outbox.settle_claimed((array['ok', 'retry', 'fail'])[1 + (random() * 2)::int],
			null, null, array(select row(c.id, c.worker, c.found, u.job_id, u.attempt)::outbox.claimed
			from outbox.claim c, unnest(c.ids, c.attempts) u (job_id, attempt)
			where c.worker = 'w' || pg_backend_pid() order by random()));
		delete from outbox.claim c where outbox.claim_is_over(c.ids, c.attempts);
	END
	cat >"$work/enqueue.sql" <<-'END'
		select count(*) from outbox.enqueue_many(array['a'], array_fill('{}'::text, array[9]),
			dedupe_keys => array(select 'k' || (random() * 40)::int from generate_series(1, 9)),
			dedupe => 'until_done',
			tenant_keys => array(select 't' || n % 3 from generate_series(1, 9) n));
	END
	echo "select erased from outbox.erase_tenant('t1', 1000)" >"$work/erase.sql"
	pgbench -n -T 6 -c 8 -j 2 -f "$work/act.sql"@5 -f "$work/work.sql"@5 -f "$work/enqueue.sql"@3 \
		-f "$work/erase.sql"@1 >"$work/pgbench.log" 2>&1
	assertEquals "pgbench: $(tail -n 3 "$work/pgbench.log")" 0 $?
	assertFalse 'a client gave up' "grep -q aborted '$work/pgbench.log'"
	assert_sql 'deadlocks' 0 'select deadlocks from pg_stat_database where datname = current_database()'
	assert_sql 'rows of ready whose job is gone' '' 'select job_id from outbox.ready r
		where not exists (select from outbox.job j where j.id = r.job_id)'
	assert_ledger
}

. shunit2
