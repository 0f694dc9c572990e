#!/bin/sh
# What keeps an installation healthy: retention, roles, verify, doctor, tail, metrics,
# completion.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

# Jobs that ended so many days ago.
ended_jobs() { # KIND OUTCOME COUNT DAYS
	sql "with made as (
			insert into outbox.job (id, created_at, run_at, priority, kind, payload)
			select outbox.id_at(now() - interval '$4 days') | nextval('outbox.job_seq'),
				now() - interval '$4 days', now() - interval '$4 days', 2, '$1', '{}'
			from generate_series(1, $3) returning id)
		insert into outbox.attempt (job_id, attempt, kind, outcome, finished_at)
		select id, 1, '$1', '$2', now() - interval '$4 days' from made"
}

jobs_left() { # KIND: prints how many
	sql "select count(*) from outbox.job where kind = '$1'"
}

# ---- retention

test_sweep_deletes_what_is_past_its_time() {
	ended_jobs old succeeded 250 8
	ended_jobs young succeeded 5 6
	ended_jobs dead dead 40 400
	ended_jobs cancelled cancelled 3 91
	enqueue pending '{}' >/dev/null
	"$bin/outbox-sweep" --once --no-retention --events none 2>>"$work/sweep.log"
	assertEquals 'nothing goes without retention' 250 "$(jobs_left old)"
	"$bin/outbox-sweep" --once --retention-batch 20 --events none 2>>"$work/sweep.log"
	assertEquals 'exit status' 0 $?
	assert_sql 'what is left' 'dead:40 pending:1 young:5' "
		select string_agg(kind || ':' || count, ' ' order by kind)
		from (select kind, count(*) from outbox.job group by 1) j"
	assertContains 'one line with the counts' "$(cat "$work/sweep.log")" \
		'event=retained succeeded=250 cancelled=3'
}

recovered() {
	[ "$(sql "select count(*) from outbox.attempt where outcome = 'lost'")" = 1 ]
}

# SWP-04
test_recovery_goes_on_while_there_is_much_to_delete() {
	ended_jobs old succeeded 20000 8
	enqueue lost '{}' >/dev/null
	start sweep outbox-sweep --interval 200ms --retention-batch 1 || return
	sql "select count(*) from outbox.claim('gone', 'default', '{lost}', '{1}', 1)" >/dev/null
	assert_soon 10 recovered
	assertNotEquals 'there is still much to delete' 0 "$(jobs_left old)"
	stop sweep
	assertEquals 'and the sweeper stops at once' 0 $?
	assertContains 'and says how far it came' "$(cat "$work/sweep.log")" 'event=retained succeeded='
}

assert_line() { # LINE: whether stdout has it
	grep -qxF "$1" "$work/out" || fail "no line \"$1\" in: $(out)"
}

# ---- roles

login() { # NAME GROUP
	sql "do \$\$ begin
			if not exists (select from pg_roles where rolname = '$1') then
				create role $1 login;
			end if;
		end \$\$;
		grant $2 to $1"
}

test_each_program_runs_with_no_more_than_its_role() {
	outbox_exits 0 migrate --roles
	assertContains 'what it did' "$(out)" 'granted the roles their rights'
	login e2e_worker outbox_worker
	login e2e_producer outbox_producer
	login e2e_viewer outbox_viewer
	noting_handler mail
	superuser=$PGUSER
	PGUSER=e2e_worker
	start_pipeline || return
	PGUSER=e2e_producer
	enqueue_numbers mail 20
	outbox_exits 0 enqueue mail '{"n":21}'
	outbox_exits 77 list
	PGUSER=$superuser
	assert_soon 30 jobs_are succeeded 21 || return
	PGUSER=e2e_viewer
	outbox_exits 0 list --kind mail --limit 1
	outbox_exits 77 cancel "$(sql 'select max(id) from outbox.job')"
	outbox_exits 77 enqueue mail '{}'
	PGUSER=$superuser
	stop_pipeline
}

# Whoever has forgotten a grant finds the results of meanwhile as they were.
test_a_right_that_is_missing_for_a_while() {
	outbox_exits 0 migrate --roles
	login e2e_worker outbox_worker
	noting_handler mail
	superuser=$PGUSER
	PGUSER=e2e_worker
	start_pipeline || return
	PGUSER=$superuser
	sql 'revoke insert on outbox.attempt from outbox_worker'
	enqueue_numbers mail 20
	assert_soon 20 grep -q 'level=error .*event=settle_delayed .*sqlstate=42501' "$work/settle.log" || return
	sql 'grant insert on outbox.attempt to outbox_worker'
	assert_soon 30 jobs_are succeeded 20
	assert_sql 'all at the first attempt' 20 'select count(*) from outbox.attempt'
	assertEquals 'runs' 20 "$(runs_of mail)"
	stop_pipeline
}

# A new function is open to PUBLIC, until migrate has been there.
test_migrate_renews_the_rights_of_roles() {
	outbox_exits 0 migrate
	assertNotContains 'no roles unless asked for' "$(out)" granted
	outbox_exits 0 migrate --roles
	sql "drop function outbox.clock_us();
		delete from outbox.migration where name = 'functions/clock'"
	outbox_exits 0 migrate
	assertContains 'once asked for, always' "$(out)" granted
	assert_sql 'functions for PUBLIC' 0 "
		select count(*) from pg_proc p
		cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
		where p.pronamespace = 'outbox'::regnamespace and a.grantee = 0"
}

# ---- verify

test_verify() {
	outbox_exits 0 verify
	sql "
		drop index outbox.rearm_job;
		alter table outbox.job add note text;
		alter table outbox.lane alter notify set default false;
		alter table outbox.job drop constraint job_kind_check;
		drop function outbox.fence;
		create index extra on outbox.job (kind);
		create or replace function outbox.seconds(count bigint) returns interval
			language sql immutable parallel safe as 'select interval ''0''';
		update pg_index set indisvalid = false
			where indexrelid = 'outbox.claim_worker'::regclass"
	outbox_exits 1 verify
	assert_line 'index rearm_job is missing'
	assert_line 'index extra is not expected'
	assert_line 'index claim_worker is invalid: drop it and create it again'
	assert_line 'column job.note is not expected'
	assert_line "column lane.notify has default 'false', expected is 'true'"
	assert_line 'constraint job_kind_check on job is missing'
	assert_line 'function fence(bigint, integer) is missing'
	assert_line 'function seconds(bigint) has another source'
	assertEquals 'problems' 8 "$(wc -l <"$work/out")"
	outbox_exits 1 verify --json
	assertEquals 'as JSON' 8 "$(grep -c '^{"object":' "$work/out")"
	assert_sql 'schemas left behind' 0 \
		"select count(*) from pg_namespace where nspname like 'outbox_%'"
	sql 'update outbox.meta set schema_version = 99'
	outbox_exits 1 verify
	assertContains 'versions' "$(out)" 'schema has version 99, this program makes version'
	sql 'set client_min_messages = error; drop schema outbox cascade'
	outbox_exits 78 verify
}

test_verify_tells_a_moved_clock_from_another_function() {
	sql "select outbox.clock_move('-90 min')" >/dev/null
	outbox_exits 1 verify
	assert_line 'function now() is off by -01:30:00, as outbox.clock_offset() says: outbox.clock_move(-outbox.clock_offset()) puts the clock back'
	assertEquals 'and nothing else' 1 "$(wc -l <"$work/out")"
	sql 'select outbox.clock_move(-outbox.clock_offset())' >/dev/null
	outbox_exits 0 verify
	sql "create or replace function outbox.now() returns timestamptz language sql stable parallel safe
		as 'select pg_catalog.clock_timestamp()'"
	outbox_exits 1 verify
	assert_line 'function now() has another source'
}

# ---- doctor

test_doctor_finds_a_healthy_outbox() {
	noting_handler mail
	start_pipeline || return
	enqueue mail '{"n":1}' >/dev/null
	assert_soon 20 jobs_are succeeded 1
	outbox_exits 0 doctor
	assertContains 'the listener is heard' "$(out)" 'ok        listener hears         its beat came'
	assertNotContains 'nothing is wrong' "$(out)" warning
	stop_pipeline
}

test_doctor_finds_what_is_wrong() {
	enqueue orphan '{}' >/dev/null
	outbox_exits 2 doctor
	assertContains 'a kind without worker' "$(out)" 'no live worker has a handler: orphan'
	assertContains 'no programs' "$(out)" 'outbox-claim: 0 sessions'
	outbox_exits 2 doctor --json
	assertEquals 'one object a line' "$(wc -l <"$work/out")" \
		"$(grep -c '^{"check":".*"}$' "$work/out")"
	outbox_exits 69 doctor --db 'host=/nowhere'
}

# ---- tail

tail_events() { # OPTION ...: in the background
	"$bin/outbox" tail "$@" >"$work/tail.out" 2>"$work/tail.log" &
	echo $! >"$work/tail.pid"
}

# What happens before a tail is connected is not repeated, so it is made to happen again.
tail_shows() { # TEXT
	enqueue broken '{}' >/dev/null
	enqueue mail '{"n":0}' >/dev/null
	grep -qF "$1" "$work/tail.out"
}

tail_has_ended() {
	tail_shows '' && has_ended "$(pid_of tail)"
}

test_tail() {
	noting_handler mail
	handler broken <<-'END'
		#!/bin/sh
		exit 65
	END
	start_pipeline || return
	tail_events
	assert_soon 20 tail_shows ' succeeded mail '
	assert_soon 20 tail_shows ' dead broken '
	signal tail INT
	wait_for_end tail
	assertEquals 'exit status after ^C' 0 $?
	assertEquals 'lines of another form' '' "$(grep -vE \
		'^20[0-9T:.-]+Z (dead broken [0-9]+/1 running -> dead exit_65|succeeded mail [0-9]+/1 running -> succeeded) [0-9]+ ms [^ ]+$' \
		"$work/tail.out")"

	tail_events --json --name dead --name lost --kind broken --limit 2
	assert_soon 20 tail_has_ended
	wait_for_end tail
	assertEquals 'exit status at the limit' 0 $?
	assertEquals 'lines' 2 "$(wc -l <"$work/tail.out")"
	assertEquals 'and only what was asked for' 2 \
		"$(grep -c '^{"type":"event",.*"name":"dead",.*"kind":"broken",' "$work/tail.out")"
	stop_pipeline
}

# ---- metrics

has_sample() { # SAMPLE VALUE
	grep -qxF "$1 $2" "$work/out" || fail "no sample $1 $2 in: $(out)"
}

test_metrics() {
	ended_jobs mail succeeded 3 0
	ended_jobs mail dead 2 0
	sql "update outbox.attempt
		set duration_ms = 50, code = case outcome when 'dead' then 'bad \"x\"' end"
	enqueue mail '{}' >/dev/null
	outbox_exits 0 metrics
	has_sample 'outbox_jobs{kind="mail",state="pending"}' 1
	has_sample 'outbox_recent_attempts{kind="mail",outcome="succeeded",code=""}' 3
	has_sample 'outbox_recent_attempts{kind="mail",outcome="dead",code="bad \"x\""}' 2
	has_sample 'outbox_recent_attempt_seconds_bucket{kind="mail",le="0.01"}' 0
	has_sample 'outbox_recent_attempt_seconds_bucket{kind="mail",le="0.05"}' 5
	has_sample 'outbox_recent_attempt_seconds_bucket{kind="mail",le="+Inf"}' 5
	has_sample 'outbox_recent_attempt_seconds_sum{kind="mail"}' 0.25
	has_sample 'outbox_workers{lane="default",state="alive"}' 0
	assertEquals 'families that are introduced twice' '' \
		"$(grep '^# TYPE' "$work/out" | sort | uniq -d)"

	outbox_exits 0 metrics --output "$work/outbox.prom"
	assertEquals 'nothing on stdout' '' "$(out)"
	assertContains 'the file' "$(cat "$work/outbox.prom")" 'outbox_info{version='
	assertEquals 'files' 1 "$(find "$work" -name 'outbox.prom*' | wc -l)"
	outbox_exits 74 metrics --output /nowhere/outbox.prom
	outbox_exits 64 metrics --output "$work/x" --http
}

test_metrics_answer_http() {
	printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n' |
		"$bin/outbox" metrics --http >"$work/out"
	assertEquals 'status' 'HTTP/1.1 200 OK' "$(head -n 1 "$work/out" | tr -d '\r')"
	length=$(sed -n 's/^Content-Length: \([0-9]*\).*/\1/p' "$work/out")
	assertEquals 'length' "$length" "$(sed '1,/^.$/d' "$work/out" | wc -c)"
	printf 'POST / HTTP/1.1\r\n\r\n' | "$bin/outbox" metrics --http >"$work/out"
	assertContains 'only GET' "$(out)" '400 Bad Request'
	printf 'GET / HTTP/1.1\r\n\r\n' |
		"$bin/outbox" metrics --http --db 'host=/nowhere' >"$work/out" 2>"$work/err"
	assertEquals 'exit status' 69 $?
	assertContains 'no database' "$(out)" '503 Service Unavailable'
	assertNotContains 'and nothing about it' "$(out)" nowhere
}

# ---- completion

# What bash would offer for the last of these words.
offers() { # WORD ...
	bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _outbox
		printf "%s\n" "${COMPREPLY[@]}"' bash "$work/completion" "$@"
}

test_completion_knows_what_help_says() {
	"$root/scripts/make-completion" bash "$bin/outbox" "$bin/outbox-sweep" >"$work/completion"
	assertEquals 'commands' verify "$(offers outbox veri)"
	assertEquals 'options of a command' --period "$(offers outbox metrics --per)"
	assertEquals 'options of a program' --retention-batch "$(offers outbox-sweep --retention-)"
	assertEquals 'choices' latest "$(offers outbox schedule set --catch-up l)"
	assertEquals 'actions' pause "$(offers outbox schedule pau)"
	"$root/scripts/make-completion" zsh "$bin/outbox" >"$work/_outbox"
	assertContains 'for zsh' "$(cat "$work/_outbox")" "'--period[outcomes and durations"
	if command -v zsh >/dev/null; then
		assertTrue 'zsh can read it' "zsh -n $work/_outbox"
	fi
}

# shellcheck disable=SC1091
. shunit2
