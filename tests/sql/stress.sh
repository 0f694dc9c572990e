#!/bin/sh
# Everybody at once for some seconds (SET-05): workers whose jobs are given up while they work,
# settlers with late, repeated and shuffled results, sweepers, producers, operators who cancel
# many jobs and erase a tenant. Then all is drained, and the ledger has to add up; nobody has
# been a deadlock's victim. And what if somebody is: errors that pass are charged to no job.
#
# environment: STRESS_SECONDS  how long (default 8). The long form:
#                              STRESS_SECONDS=600 tests/sql/stress.sh
# shellcheck disable=SC1091,SC2016,SC2154 # lib.sh sets what is not set here; $ in handlers
. "$(dirname "$0")/../e2e/lib.sh"

seconds=${STRESS_SECONDS:-8}

# What a worker does: claims some jobs, works a moment, and reports the results in any order,
# now and then twice. Its commit statement notes each success that asks for it.
create_worker() {
	sql "create table effect (job_id bigint, attempt smallint);
		create table refused (n bigint);
		create table erased (n bigint, in_flight bigint);
		select outbox.kind_announce(json_build_object('kind', k, 'version', 1, 'manifest', json_build_object(
			'retry', json_build_object('max_attempts', 1000, 'max_crashes', 1000, 'backoff_ms', 0),
			'commit', json_build_object('note', 'insert into effect values (\$1, \$2)'))), 'stress')
		from unnest(array['a', 'b', 'c']) k" >/dev/null
	sql "create function work_claim(worker text, most integer, out claims text, out places text, out jobs text,
			out attempts text) language sql as \$\$
		select coalesce(array_agg(claim_id), '{}')::text, coalesce(array_agg(claim_index), '{}')::text,
			coalesce(array_agg(job_id), '{}')::text, coalesce(array_agg(attempt), '{}')::text
		from outbox.claim(worker, 'default', '{a,b,c}', array[most, most, most], most) \$\$;
	create function work_settle(claims bigint[], places integer[], jobs bigint[], attempts smallint[],
			times integer default 1) returns bigint language plpgsql as \$\$
	declare
		accepted bigint;
	begin
		select cardinality(r.job) - s.refused into accepted from (
			select array_agg(r.claim) as claim, array_agg(r.place) as place, array_agg(r.job) as job,
				array_agg(r.attempt) as attempt, array_agg(r.outcome) as outcome,
				array_agg(case when r.outcome <> 'ok' then 'code' end) as code, array_agg(null::text) as t,
				array_agg(false) as f, array_agg(0::bigint) as b, array_agg(0) as i,
				array_agg(case when r.outcome = 'ok' and random() < 0.1 then
					format('[{\"name\":\"note\",\"args\":[%s,%s]}]', r.job, r.attempt) end) as commits,
				array_agg(case when r.outcome = 'ok' and random() < 0.02 then
					'[{\"kind\":\"a\",\"payload\":{}}]' end) as follow_ups
			from (
				select u.*, (array['ok', 'ok', 'ok', 'ok', 'ok', 'ok', 'ok', 'retry', 'retry', 'fail', 'cancel',
					'release'])[1 + floor(random() * 12)] as outcome
				from unnest(claims, places, jobs, attempts) u (claim, place, job, attempt)
				cross join generate_series(1, times) order by random()) r
			having count(*) > 0) r
		cross join lateral (select count(*) as refused
			from outbox.settle(r.claim, r.place, r.job, r.attempt, r.outcome, r.code, r.t, r.t, r.f, r.b, r.t, r.b,
				r.b, r.i, r.i, r.commits, r.follow_ups, r.b, claims) s where s.outcome is null) s;
		insert into refused select cardinality(jobs) - accepted where cardinality(jobs) > accepted;
		return accepted;
	end \$\$" >/dev/null
	cat >"$work/worker.sql" <<-'END'
		\set most random(1, 100)
		\set us random(0, 8000)
		\set times random(1, 10)
		select claims, places, jobs, attempts from work_claim('w' || :client_id, :most) \gset
		\sleep :us us
		select work_settle(':claims', ':places', ':jobs', ':attempts', case :times when 1 then 2 else 1 end);
		\if :times = 2
		select work_settle(':claims', ':places', ':jobs', ':attempts');
		\endif
	END
}

# A sweeper that takes any worker for dead, and a claimer whose runner has lost frames.
write_sweeper() {
	cat >"$work/sweeper.sql" <<-'END'
		\set worker random(0, 7)
		\set received random(0, 20)
		\set ms random(1, 10)
		select outbox.recover('w' || :worker);
		select outbox.collect_claims();
		select count(*) from outbox.worker_hello('w' || ((:worker + 1) % 8), 'host', 1, '1', 'default', 1000, '[]',
			array(select id from outbox.claim where worker = 'w' || ((:worker + 1) % 8)),
			array_fill(:received::integer, array[10]));
		\sleep :ms ms
	END
}

# One transaction in ten is rolled back. A transaction takes the keys of one call only: those
# of two calls in any order could lock each other out, and that is the caller's to avoid.
write_producer() {
	cat >"$work/producer.sql" <<-'END'
		\set us random(0, 3000)
		\set key random(1, 30)
		\set tenant random(1, 2)
		\set priority random(1, 4)
		\set end random(1, 10)
		begin;
		select status from outbox.enqueue('a', '{}', priority => :priority);
		select status from outbox.enqueue('b', '{"n":1}', delay => '5 ms');
		select count(*) from outbox.enqueue_many('{c}', array_fill('{}'::text, array[4]),
			array[:key::text, (:key % 7)::text, (:key + 1)::text, null], 'until_done',
			array['t' || :tenant]);
		\sleep :us us
		\if :end = 1
		rollback;
		\else
		commit;
		\endif
	END
}

write_operator() {
	cat >"$work/operator.sql" <<-'END'
		\set back random(0, 100)
		select coalesce((select id from outbox.job order by id desc offset :back limit 1), 0) as job \gset
		select outbox.cancel(:job, 'ann');
		\set back random(0, 200)
		select coalesce((select job_id from outbox.attempt where outcome in ('dead', 'cancelled')
			order by job_id desc offset :back limit 1), 0) as job \gset
		select status from outbox.replay(:job, 'ann');
		\sleep 5 ms
	END
}

# Two with a long list of what is new, in no order, and one who erases what a tenant has of it.
write_bulk_operators() {
	cat >"$work/bulk.sql" <<-'END'
		\set back random(0, 300)
		\set most random(1, 100)
		select count(*) from outbox.act_on_ids('cancel', array(
			select id from (select id from outbox.job order by id desc offset :back limit :most) j
			order by random()));
		\sleep 20 ms
	END
	cat >"$work/eraser.sql" <<-'END'
		\set back random(0, 300)
		select coalesce((select id from outbox.job order by id desc offset :back limit 1), 0) as after \gset
		insert into erased
			select e.erased, e.in_flight from outbox.erase_tenant('t1', 1000, :after, 'ann') e;
		\sleep 50 ms
	END
}

load() { # SCRIPT CLIENTS
	pgbench -n -M "${3:-simple}" -f "$work/$1.sql" -c "$2" -j 1 -T "$seconds" >"$work/$1.log" 2>&1 &
	echo $! >"$work/$1.pid"
}

# Gives up all workers, then runs everything that is owed to its end.
drain() {
	for round in 1 2 3 4 5 6 7 8 9 10; do
		sql "select outbox.recover(worker) from outbox.workers_to_watch()" >/dev/null
		sql "select work_settle(claims::bigint[], places::integer[], jobs::bigint[], attempts::smallint[])
			from work_claim('last', 100000)" >/dev/null
		none_is_open && return
	done
	fail "not drained in $round rounds"
}

# Each line that this prints is a fault.
find_faults() {
	sql "
	select 'several final attempts without a rearm', a.job_id from outbox.attempt a
		where a.outcome in ('succeeded', 'dead', 'cancelled') and exists (
			select from outbox.attempt n where n.job_id = a.job_id and n.attempt > a.attempt)
		and not exists (select from outbox.rearm r where r.job_id = a.job_id and r.from_attempt = a.attempt)
	union all
	select 'a gap in the attempts', job_id from outbox.attempt group by job_id having max(attempt) <> count(*)
	union all
	select 'two attempts of which the first was final', r.job_id from outbox.rearm r where not exists (
		select from outbox.attempt a where a.job_id = r.job_id and a.attempt = r.from_attempt
		and a.outcome in ('succeeded', 'dead', 'cancelled'))
	union all
	select 'lost: not ended', id from outbox.jobs where state not in ('succeeded', 'dead', 'cancelled')
	union all
	select 'still owed', job_id from outbox.ready
	union all
	select 'still in flight', id from outbox.claim
	union all
	select 'an effect without its success', e.job_id from effect e join outbox.job j on j.id = e.job_id
		where not exists (
		select from outbox.attempt a where (a.job_id, a.attempt, a.outcome) = (e.job_id, e.attempt, 'succeeded'))
	union all
	select 'an effect twice', job_id from effect group by job_id, attempt having count(*) > 1
	union all
	select 'an attempt without its job', job_id from outbox.attempt a where not exists (
		select from outbox.job j where j.id = a.job_id)
	union all
	select 'a job that was owed again though its attempt was final', job_id from outbox.attempt
		where next_at is not null and outcome in ('succeeded', 'dead', 'cancelled')
	union all
	select 'a failure that was not owed again', job_id from outbox.attempt
		where next_at is null and outcome not in ('succeeded', 'dead', 'cancelled')
	limit 20"
}

assert_at_least() { # MESSAGE LEAST SQL
	count=$(sql "$3")
	assertTrue "$1: $count" "[ '$count' -ge $2 ]"
}

test_everybody_at_once() {
	create_worker
	write_sweeper
	write_producer
	write_operator
	write_bulk_operators
	load worker 8
	load sweeper 3
	load producer 2
	load operator 1
	load bulk 2
	load eraser 1
	for script in worker sweeper producer operator bulk eraser; do
		read -r pid <"$work/$script.pid"
		wait "$pid"
		assertEquals "$script: exit status of pgbench" 0 $?
		assertEquals "$script: errors" '' "$(grep -E 'ERROR|error:' "$work/$script.log" | sort | uniq -c | head -n 5)"
	done
	drain
	assertEquals 'faults' '' "$(find_faults)"
	assertEquals 'deadlocks' 0 "$(sql "select deadlocks from pg_stat_database where datname = current_database()")"
	assertEquals 'deadlocks in the log of the server' 0 "$(grep -c 'deadlock detected' "$PGHOST/server.log")"

	# that it was a test at all
	for outcome in succeeded failed dead cancelled lost released; do
		assert_at_least "attempts that ended $outcome" 20 "select count(*) from outbox.attempt where outcome = '$outcome'"
	done
	assert_at_least 'refused results' 20 'select sum(n) from refused'
	assert_at_least 'commit statements' 20 'select count(*) from effect'
	assert_at_least 'erased jobs' 20 'select sum(n) from erased'
	assert_at_least 'jobs that were cancelled in flight to be erased' 5 'select sum(in_flight) from erased'
	assert_at_least 'replays' 5 'select count(*) from outbox.rearm'
	assert_at_least 'keys that were taken again' 5 'select count(*) - count(distinct dedupe_key) from outbox.job where dedupe_key is not null'
}

# ---- errors that pass

# Of the statements that write to the ledger, every n-th fails, as a deadlock's victim or for
# want of a lock in turn; a sequence counts, which no rollback takes back.
make_every_nth_write_fail() { # N
	sql "create sequence writes;
		create function fail_now_and_then() returns trigger language plpgsql as \$\$
		begin
			case nextval('public.writes') % (2 * $1)
				when 0 then raise 'a victim of the test' using errcode = '40P01';
				when $1 then raise 'locked by the test' using errcode = '55P03';
				else null;
			end case;
			return null;
		end \$\$;
		create trigger fail_now_and_then before insert on outbox.attempt
			for each statement execute function fail_now_and_then()"
}

# The programs try again: what settles, whether alone, in a batch, or with statements and
# follow-ups, and what recovers.
test_errors_that_pass_are_charged_to_nobody() {
	noting_handler plain
	noting_handler retries '[ "$OUTBOX_ATTEMPT" -gt 1 ]'
	noting_handler effects "echo '{\"outcome\":\"ok\",\"commit\":[{\"name\":\"note\",\"args\":[]}],\"enqueue\":[{\"kind\":\"plain\",\"payload\":{\"n\":0}}]}' >&3"
	printf '[commit]\nnote = insert into effect values (1)\n[retry]\nmax_attempts = 1\n' \
		>"$handlers/effects.ini"
	printf '[retry]\nbackoff = 10ms\nmax_attempts = 2\n' >"$handlers/retries.ini"
	sql 'create table effect (n integer)'
	enqueue_numbers lost 2
	sql "select count(*) from outbox.claim('gone', 'default', '{lost}', '{2}', 2)" >/dev/null
	make_every_nth_write_fail 3
	start settle outbox-settle && start sweep outbox-sweep --interval 200ms &&
		start run outbox-run --handlers "$handlers" -j 4 &&
		start claim outbox-claim && start listen outbox-listen || return
	for kind in plain retries effects; do
		enqueue_numbers "$kind" 40
	done
	assert_soon 60 jobs_are succeeded 160 || return
	assert_soon 30 jobs_are retrying 2 || return
	assert_sql 'each attempt as if nothing had been' 'effects|1|succeeded||40
lost|1|lost|worker_lost|2
plain|1|succeeded||80
retries|1|failed|exit_1|40
retries|2|succeeded||40' 'select kind, attempt, outcome, code, count(*) from outbox.attempt
		group by 1, 2, 3, 4 order by 1, 2'
	assert_sql 'each effect once' 40 'select count(*) from effect'
	assert_sql 'it was a test at all' t "select last_value > 60 from writes"
	sql 'drop trigger fail_now_and_then on outbox.attempt'
	assert_ledger
	stop_pipeline
}

. shunit2
