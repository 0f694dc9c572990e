#!/bin/sh
# Manifests through the whole pipeline: what they tell the database, and what comes of it.
# shellcheck disable=SC1091,SC2154,SC2016 # lib.sh; $ in handlers

. "$(dirname "$0")/lib.sh"

manifest() { # FILE, and the text on stdin
	cat >"$1"
	chmod 644 "$1"
}

job_is() { # ID STATE
	[ "$(sql "select state from outbox.jobs where id = $1")" = "$2" ]
}

ledger_of() { # ID: outcomes and codes of its attempts, in order
	sql "select string_agg(outcome || coalesce(' ' || code, ''), ', ' order by attempt)
		from outbox.attempt where job_id = $1"
}

kind_is() { # KIND COLUMNS VALUES
	[ "$(sql "select $2 from outbox.kind where name = '$1'")" = "$3" ]
}

# One more runner, with a folder of its own.
start_runner() { # INSTANCE FOLDER [OPTION ...]
	instance=$1
	folder=$2
	shift 2
	start "$instance" outbox-run --handlers "$folder" "$@"
}

# ---- what the database is told

test_the_policy_reaches_the_database() {
	handler k <<-'END'
		#!/bin/sh
	END
	printf '{"type":"object","required":["n"]}' | manifest "$handlers/k.json"
	manifest "$handlers/k.ini" <<-'END'
		[handler]
		timeout = 12s
		version = 3
		[retry]
		max_attempts = 20
		backoff = 2s
		backoff_max = 1h
		max_crashes = 4
		warn_at_streak = 5
		[retry.rate_limited]
		max_attempts = 50
		max_delay = 10m
		[commit]
		mark = update t set a = true
		  where id = $1
		[payload]
		schema = k.json
		max_bytes = 1KiB
		[retention]
		succeeded = 7d
		dead = never
	END
	start_pipeline
	assert_soon 10 kind_is k version 3
	assert_sql kind '12000|20|2000|3600000|4|5|{"rate_limited": {"max_attempts": 50, "max_delay_ms": 600000}}' "
		select timeout_ms, max_attempts, backoff_ms, backoff_max_ms, max_crashes, warn_at_streak, codes
		from outbox.kind where name = 'k'"
	assert_sql 'commits and schema' 'update t set a = true
where id = $1|object|1024|{"dead": null, "succeeded": 604800}' "
		select commits ->> 'mark', payload_schema ->> 'type', max_payload_bytes, retention
		from outbox.kind where name = 'k'"
	assert_sql 'the schema holds' invalid_payload "select status from outbox.enqueue('k', '{}')"
	assert_sql 'and lets good ones in' created "select status from outbox.enqueue('k', '{\"n\":1}')"
	stop_pipeline
}

test_hup_tells_the_database_and_older_versions_never_win() {
	handler k <<-'END'
		#!/bin/sh
	END
	printf '[handler]\nversion = 2\ntimeout = 2s\n' | manifest "$handlers/k.ini"
	start_pipeline
	assert_soon 10 kind_is k 'version, timeout_ms' '2|2000'
	printf '[handler]\nversion = 3\ntimeout = 3s\n' | manifest "$handlers/k.ini"
	signal run HUP
	assert_soon 10 kind_is k 'version, timeout_ms' '3|3000'
	mkdir -m 755 "$work/old.d"
	cp "$handlers/k" "$work/old.d"
	printf '[handler]\nversion = 2\ntimeout = 9s\n' | manifest "$work/old.d/k.ini"
	start_runner old "$work/old.d"
	assert_soon 10 grep -q event=registered "$work/old.log"
	assert_sql 'the newer manifest stays' '3|3000' "
		select version, timeout_ms from outbox.kind where name = 'k'"
	id=$(enqueue k 1)
	assert_soon 10 job_is "$id" succeeded
	stop old
	stop_pipeline
}

# Every greeting voids what is on its way; nothing is lost by it and nothing runs twice.
test_hup_under_load() {
	noting_handler k
	start_pipeline -j 4
	enqueue_numbers k 300
	for round in 1 2 3 4 5 6; do
		printf '[handler]\nversion = %d\n' "$round" | manifest "$handlers/k.ini"
		signal run HUP
		wait_until 10 kind_is k version "$round"
	done
	assert_soon 60 jobs_are succeeded 300
	assertEquals 300 "$(numbers_run k | wc -l)"
	assertEquals 'each ran once' 300 "$(runs_of k)"
	assertEquals 'all greetings' 7 "$(grep -c event=registered "$work/run.log")"
	assert_ledger
	stop_pipeline
}

# ---- the version gate (DEP-02)

test_a_job_waits_for_the_version_that_it_asks_for() {
	for version in 1 2; do
		mkdir -m 755 "$work/v$version.d"
		printf '#!/bin/sh\necho v%d\n' "$version" >"$work/v$version.d/k"
		chmod 755 "$work/v$version.d/k"
		printf '[handler]\nversion = %d\n' "$version" | manifest "$work/v$version.d/k.ini"
	done
	start settle outbox-settle
	start claim outbox-claim --lease 2s
	start listen outbox-listen
	start_runner v1 "$work/v1.d"
	new=$(enqueue k 1 ', version => 2')
	old=$(enqueue k 1 ', version => 1')
	any=$(enqueue k 1)
	assert_soon 10 job_is "$old" succeeded
	assert_soon 10 job_is "$any" succeeded
	assert_sql 'uncharged, unclaimed' 'pending|0' "
		select state, attempts from outbox.jobs where id = $new"
	start_runner v2 "$work/v2.d"
	assert_soon 10 job_is "$new" succeeded
	assert_sql 'by the new one' '"v2"|"v1"' "
		select (select response from outbox.attempt where job_id = $new),
			(select response from outbox.attempt where job_id = $old)"
	for instance in v1 v2; do
		stop "$instance"
	done
	stop_pipeline
}

# DEP-02: its file is away for a while in a deploy, and nobody reloads the runner.
test_jobs_wait_for_a_handler_that_is_gone() {
	noting_handler k
	start_pipeline -j 2
	enqueue_numbers k 1
	assert_soon 10 jobs_are succeeded 1 || return
	mv "$handlers/k" "$work/k"
	enqueue_numbers k 30
	assert_soon 10 grep -q event=handler_absent "$work/run.log" || return
	assert_soon 10 sh -c "[ \$(psql -qXAtc 'select count(*) from outbox.claim') -eq 0 ]" || return
	sql "select count(*) from outbox.attempt" >"$work/attempts"
	wait_until 10 has_beaten 4 # each with its credit
	assert_sql 'nothing more is claimed' "$(cat "$work/attempts")" 'select count(*) from outbox.attempt'
	assert_sql 'nothing is charged' '' "select outcome, code from outbox.attempt
		where outcome <> 'succeeded' and (outcome, code) <> ('released', 'no_handler')"
	mv "$work/k" "$handlers/k"
	assert_soon 20 jobs_are succeeded 31
	assertEquals 31 "$(runs_of k)"
	assert_ledger
	stop_pipeline
}

has_beaten() { # TIMES more
	[ -e "$work/beats" ] || sql 'select beat from outbox.worker' >"$work/beats"
	[ "$(sql 'select beat from outbox.worker')" -ge $(($(cat "$work/beats") + $1)) ]
}

# ---- one transaction

make_users() {
	sql 'create table users (id text primary key, welcomed boolean not null default false);
		create table seen (job_id bigint, kind text, transition text);
		create function note(job outbox.job, transition text) returns void language sql
			as $$ insert into seen values (job.id, job.kind, transition) $$;
		insert into outbox.hook (transition, function) values (
			$$succeeded$$, $$note$$), ($$retrying$$, $$note$$), ($$dead$$, $$note$$);
		insert into users values ($$u1$$), ($$u2$$)'
}

test_commit_follow_up_and_hook() {
	make_users
	handler email.welcome <<-END
		#!/bin/sh
		PATH=$bin:\$PATH
		user=\$(sed 's/.*"user_id":"\([^"]*\)".*/\1/')
		outbox-outcome ok --commit mark_welcomed \\
			--enqueue '{"kind":"email.tips","payload":{"a":1.0},"dedupe_key":"tips"}' -- "\$user"
	END
	manifest "$handlers/email.welcome.ini" <<-'END'
		[retry]
		max_attempts = 2
		backoff = 10ms
		[commit]
		mark_welcomed = update users set welcomed = true
		  where id = $1 and 1 / (case id when 'u2' then 0 else 1 end) = 1
	END
	noting_handler email.tips 'cat >/dev/null'
	start_pipeline
	good=$(enqueue email.welcome '{"user_id":"u1"}' ", tenant_key => 'org1'")
	assert_soon 10 job_is "$good" succeeded
	assert_sql 'the commit statement' t "select welcomed from users where id = 'u1'"
	assert_sql 'the follow-up' '{"a":1.0}|org1' "
		select payload, tenant_key from outbox.job where kind = 'email.tips'"
	assert_soon 10 jobs_are succeeded 2
	assert_sql hooks 'email.tips succeeded, email.welcome succeeded' "
		select string_agg(kind || ' ' || transition, ', ' order by kind) from seen"

	# The statement fails: nothing of it stands, and the job is tried again, then dead.
	bad=$(enqueue email.welcome '{"user_id":"u2"}')
	other=$(enqueue email.tips '{"n":9}')
	assert_soon 20 job_is "$bad" dead
	assertEquals 'failed commit_failed, dead commit_failed' "$(ledger_of "$bad")"
	assert_soon 10 job_is "$other" succeeded
	assert_sql 'nothing was marked' f "select welcomed from users where id = 'u2'"
	assert_sql 'no second follow-up' 1 "
		select count(*) from outbox.job where kind = 'email.tips' and dedupe_key = 'tips'"
	assert_sql hooks 'retrying, dead' "
		select string_agg(transition, ', ') from seen where job_id = $bad"
	assert_ledger
	stop_pipeline
}

# What hinders one result holds up no other: statements that run into a timeout of the server,
# which that attempt is charged with, and ones that never get through for a passing reason,
# which nobody is.
hinder_under() { # statement_timeout|transaction_timeout
	sql "alter database $PGDATABASE set $1 = '500ms'"
	sql 'create table locks (free boolean); insert into locks values (false);
		create function when_free() returns void language plpgsql as $$
		begin
			if not (select free from public.locks) then
				raise $x$not now$x$ using errcode = $x$40001$x$;
			end if;
		end $$'
	for kind in slow hindered quick; do
		handler $kind <<-'END'
			#!/bin/sh
			echo '{"outcome":"ok","commit":[{"name":"s","args":[]}]}' >&3
		END
	done
	printf '[retry]\nmax_attempts = 1\n[commit]\ns = select pg_sleep(60)\n' |
		manifest "$handlers/slow.ini"
	printf '[retry]\nmax_attempts = 1\n[commit]\ns = select public.when_free()\n' |
		manifest "$handlers/hindered.ini"
	printf '[commit]\ns = select 1\n' | manifest "$handlers/quick.ini"
	start_pipeline -j 8
	enqueue_numbers quick 5
	slow=$(enqueue slow 1)
	hindered=$(enqueue hindered 1)
	enqueue_numbers quick 50
	assert_soon 20 jobs_are succeeded 55
	assert_soon 20 job_is "$slow" dead
	assertEquals 'dead settle_failed' "$(ledger_of "$slow")"
	assert_sql 'why' t "select error ~ '(statement|transaction) timeout' from outbox.attempt where job_id = $slow"
	assertTrue 'still running' "job_is $hindered running"
	sql 'update locks set free = true'
	assert_soon 20 job_is "$hindered" succeeded
	assert_ledger
	stop_pipeline
}

test_statements_that_hinder() {
	hinder_under statement_timeout
}

# This one ends the session as well.
test_statements_that_hinder_in_a_limited_transaction() {
	has_setting transaction_timeout || startSkipping
	isSkipping || hinder_under transaction_timeout
}

# ---- policies

test_rules_of_codes() {
	handler mail <<-'END'
		#!/bin/sh
		echo '{"outcome":"retry","code":"bounced"}' >&3
	END
	manifest "$handlers/mail.ini" <<-'END'
		[retry]
		max_attempts = 20
		backoff = 10ms
		[retry.bounced]
		streak = 2
		on_exhaustion = cancel
	END
	handler slow <<-'END'
		#!/bin/sh
		sleep 10
	END
	manifest "$handlers/slow.ini" <<-'END'
		[handler]
		timeout = 200ms
		[retry]
		max_attempts = 2
		backoff = 10ms
	END
	start_pipeline
	mail=$(enqueue mail 1)
	slow=$(enqueue slow 1)
	assert_soon 20 job_is "$mail" cancelled
	assertEquals 'failed bounced, cancelled bounced' "$(ledger_of "$mail")"
	assert_soon 20 job_is "$slow" dead
	assertEquals 'failed timeout, dead timeout' "$(ledger_of "$slow")"
	stop_pipeline
}

# ---- stopping from outside (SET-08)

test_cancel_reaches_the_handler() {
	handler polite <<-'END'
		#!/bin/sh
		trap 'echo told to stop >&2; exit 1' TERM
		touch "${0%/*}/../polite.started"
		while :; do sleep 0.05; done
	END
	stubborn_handler stubborn
	printf '[handler]\ngrace = 500ms\n' | manifest "$handlers/stubborn.ini"
	handler finishes <<-'END'
		#!/bin/sh
		trap '' TERM
		touch "${0%/*}/../finishes.started"
		sleep 1
		echo done anyway
	END
	start_pipeline -j 3
	for kind in polite stubborn finishes; do
		id=$(enqueue "$kind" 1)
		eval "$kind=\$id"
		assert_soon 10 test -e "$work/$kind.started"
		assert_sql "$kind" requested "select outbox.cancel($id, 'ann', 'not wanted')"
	done
	for id in $polite $stubborn; do
		assert_soon 10 job_is "$id" cancelled
		assert_sql 'who and why' 'cancelled|cancelled|ann|not wanted' "
			select outcome, code, triggered_by, reason from outbox.attempt where job_id = $id"
	done
	assert_sql 'TERM first' t "
		select error like '%told to stop' from outbox.attempt where job_id = $polite"
	assert_sql 'then KILL' 9 "select signal from outbox.attempt where job_id = $stubborn"
	assertTrue 'the stubborn one lives' "! kill -0 $(cat "$work/stubborn.started") 2>/dev/null"
	assert_soon 10 job_is "$finishes" succeeded # the effect has happened
	assert_ledger
	stop_pipeline
}

# Nobody hears its notification: the claimer looks with each beat of the runner.
test_cancel_without_a_listener() {
	handler endless <<-'END'
		#!/bin/sh
		touch "${0%/*}/../started"
		exec sleep 600
	END
	start settle outbox-settle && start run outbox-run --handlers "$handlers" &&
		start claim outbox-claim --lease 2s || return
	id=$(enqueue endless 1)
	assert_soon 10 test -e "$work/started" || return
	assert_sql 'cancel' requested "select outbox.cancel($id, 'ann')"
	assert_soon 10 job_is "$id" cancelled
	stop_pipeline
}

# ---- the fence

test_the_fence_of_an_attempt_that_timed_out() {
	handler k <<-'END'
		#!/bin/sh
		touch "${0%/*}/../started"
		sleep 10
	END
	printf '[handler]\ntimeout = 1s\ngrace = 100ms\n[retry]\nmax_attempts = 1\n' |
		manifest "$handlers/k.ini"
	sql 'create table effects (n integer)'
	start_pipeline
	id=$(enqueue k 1)
	assert_soon 10 test -e "$work/started"
	sql "begin; select outbox.fence($id, 1); insert into effects values (1); commit" >/dev/null
	assertEquals 'while it runs' 0 $?
	assert_soon 10 job_is "$id" dead
	sql "begin; select outbox.fence($id, 1); insert into effects values (2); commit" \
		>/dev/null 2>"$work/refused"
	assertNotEquals 'when it is over' 0 $?
	assertContains "$(cat "$work/refused")" "attempt 1 of job $id is over"
	assert_sql 'what was written' 1 'select n from effects'
	stop_pipeline
}

. shunit2
