-- list_jobs, count_jobs, job_details, job_history, backlog, stats.
set client_min_messages = warning;
set timezone = 'UTC';
create schema test;

create function test.claim(kind text) returns bigint language sql
	as $$ select count(*) from outbox.claim('w', 'default', array[kind], array[100], 100) $$;

-- Ends the attempt in flight, with a response, after so many milliseconds.
create function test.finish(job_id bigint, outcome text, code text, ms bigint default 5)
	returns text language sql
	as $$
	select (outbox.settle_one((c.id, 0, finish.job_id, v.attempts + 1, outcome, finish.code,
		'an error', '"r"', true, null, null, outbox.clock_us(), ms, 0, 0, null, null, null, c.worker,
		c.found)::outbox.result)).outcome::text
	from outbox.jobs v cross join lateral outbox.claim_of(v.id, v.attempts + 1) c
	where v.id = finish.job_id
	$$;

-- All pages of a list, one after the other.
create function test.walk(state text, newest_first boolean, size integer,
	finished tstzrange default null)
	returns bigint[] language plpgsql as $$
declare
	page outbox.listed_job[];
	place text;
	ids bigint[] := '{}';
begin
	loop
		page := array(select l from outbox.list_jobs(state, finished => finished,
			newest_first => newest_first, max_rows => size, after => place) l);
		exit when cardinality(page) = 0;
		ids := ids || array(select u.id from unnest(page) with ordinality u order by u.ordinality);
		place := (page[cardinality(page)]).cursor;
	end loop;
	return ids;
end $$;

-- The same list by sorting everything; by: the instant, or null for the id.
create function test.sorted(state text, newest_first boolean, by text) returns bigint[]
	language plpgsql as $$
declare
	ids bigint[];
begin
	execute format($q$
		select array_agg(j.id order by %1$s %2$s, j.id %2$s)
		from outbox.jobs j left join lateral outbox.claim_of(j.id, j.attempts + 1) c on true
		where ($1 is null or j.state = $1)$q$,
		coalesce(by, 'j.id'), case when newest_first then 'desc' else 'asc' end)
	into ids using state;
	return ids;
end $$;

select plan(84);

-- ---- 36 jobs, each made and handled in transactions of its own, 6 of each state

insert into outbox.kind (name, timeout_ms, backoff_ms, backoff_max_ms)
	select 'kind' || k, 1000, 3600000, 3600000 from generate_series(0, 2) k;
create table test.made (n integer primary key, id bigint, state text);
do $$
declare
	new_id bigint;
	step record;
begin
	for step in
		select i.n, 'kind' || i.n % 3 as kind, s.* from generate_series(0, 35) i (n)
		join (values (0, 'retrying', 'retry', 'busy'), (1, 'running', null, null),
			(2, 'succeeded', 'ok', null), (3, 'dead', 'fail', 'bounced'),
			(4, 'cancelled', 'cancel', null), (5, 'pending', null, null))
			s (place, state, said, code) on s.place = i.n / 6
		order by i.n
	loop
		new_id := (outbox.enqueue(step.kind, '{}', priority => 1 + step.n % 4,
			correlation_id => 'c' || step.n % 7, dedupe_key => 'd' || step.n,
			tenant_key => case when step.n % 4 > 0 then 't' || step.n % 4 end)).id;
		commit;
		if step.state <> 'pending' then
			perform test.claim(step.kind);
			commit;
			perform test.finish(new_id, step.said, step.code, step.n) where step.said is not null;
			commit;
		end if;
		insert into test.made values (step.n, new_id, step.state);
	end loop;
end $$;

create function test.states() returns table (state text) language sql
	as $$ select distinct m.state from test.made m order by 1 $$;

create function test.ids(state text) returns bigint[] language sql
	as $$ select array_agg(id order by n) from test.made m where m.state = ids.state $$;

-- ---- list_jobs

select is(array(select distinct l.state from outbox.list_jobs(s.state) l), array[s.state],
	s.state || ': nothing else is listed') from test.states() s;
select is(array(select l.id from outbox.list_jobs(s.state) l order by 1), test.ids(s.state),
	s.state || ': everything is listed') from test.states() s;

-- in the order that the state has, page by page, each job once
select is(test.walk(o.state, d, 4), test.sorted(o.state, d, o.by), format('%s, %s first, in pages',
	coalesce(o.state, 'all'), case when d then 'newest' else 'oldest' end))
from (values (null, null), ('pending', 'j.due_at'), ('retrying', 'j.due_at'),
	('running', 'c.claimed_at'), ('succeeded', null), ('dead', 'j.finished_at'),
	('cancelled', 'j.finished_at')) o (state, by), (values (true), (false)) v (d);
select is(test.walk('succeeded', true, 4, '[2000-01-01,]'),
	test.sorted('succeeded', true, 'j.finished_at'), 'succeeded, by finish');
select is(array(select l.id from outbox.list_jobs() l), test.sorted(null, true, null),
	'the newest first unless told otherwise');
select is(array(select l.id from outbox.list_jobs('pending') l),
	test.sorted('pending', false, 'j.due_at'), 'of owed jobs the earliest first');

select is((select count(*) from outbox.list_jobs(kind => 'kind1')), 12::bigint, 'by kind');
select is((select count(*) from outbox.list_jobs('dead', kind => 'kind1')), 2::bigint,
	'by state and kind');
select is((select count(*) from outbox.list_jobs(tenant => 't1')), 9::bigint, 'by tenant');
select is((select count(*) from outbox.list_jobs(no_tenant => true)), 9::bigint, 'without a tenant');
select is((select count(*) from outbox.list_jobs(tenant => 't1', no_tenant => true)), 0::bigint,
	'with a tenant and without one: none');
select is((select count(*) from outbox.list_jobs(correlation_id => 'c0')), 6::bigint,
	'by correlation id');
select is((select count(*) from outbox.list_jobs(code => 'bounced')), 6::bigint, 'by code');
select is((select array_agg(l.id order by l.id) from outbox.jobs a, outbox.jobs b,
		outbox.list_jobs(created => tstzrange(a.created_at, b.created_at, r.ends)) l
		where a.id = (select id from test.made where n = 10)
			and b.id = (select id from test.made where n = 13)),
	(select array_agg(id order by n) from test.made where n between r.first and r.last),
	'created within ' || r.ends)
from (values ('[]', 10, 13), ('[)', 10, 12), ('(]', 11, 13), ('()', 11, 12)) r (ends, first, last);
select is((select count(*) from outbox.jobs a, outbox.list_jobs(created =>
		case when upward then tstzrange(a.created_at, u.until) else tstzrange(u.until, a.created_at) end)
		where a.id = (select id from test.made where n = 10)), expected, 'created ' || case when upward
		then 'from, without an end ' else 'before, without a start ' end || coalesce(u.until::text, 'at all'))
from (values (true, null::timestamptz, 26::bigint), (true, 'infinity', 26), (false, null, 10),
	(false, '-infinity', 10)) u (upward, until, expected);
select is((select array_agg(l.id order by l.id) from outbox.jobs a,
		outbox.list_jobs('dead', finished => tstzrange(null, a.finished_at, r.ends)) l
		where a.id = (select id from test.made where n = 20)),
	(select array_agg(id order by n) from test.made where n between 18 and r.last),
	'finished within ' || r.ends)
from (values ('[]', 20), ('[)', 19)) r (ends, last);

select throws_ok($$ select outbox.list_jobs('done') $$, '22023', null, 'unknown states are refused');
select throws_ok($$ select outbox.list_jobs(max_rows => 0) $$, '22023', null, 'empty pages, too');
select throws_ok(format('select outbox.list_jobs(''dead'', after => %L)', c), '22023', null,
	'a cursor of another list is refused: ' || c)
from (values ('c.1'), ('f1.x'), ('nonsense'), ('')) v (c);

-- a page of one state does not read the jobs of the others
insert into outbox.job (id, created_at, run_at, priority, kind, payload)
	select n, now(), now(), 2, 'bulk', '{}' from generate_series(1, 5000) n;
insert into outbox.attempt (job_id, attempt, outcome, finished_at, kind)
	select n, 1, 'succeeded', now(), 'bulk' from generate_series(1, 5000) n;
analyze outbox.job, outbox.attempt;
create function test.rows_read() returns bigint language sql volatile
	as $$ select sum(seq_tup_read + idx_tup_fetch)::bigint from pg_stat_xact_user_tables
	where schemaname = 'outbox' and relname in ('job', 'attempt') $$;
begin;
select test.rows_read() as before \gset
select count(*) as x from test.states() s, outbox.list_jobs(s.state, max_rows => 5)
	where s.state <> 'succeeded' \gset
select cmp_ok(test.rows_read() - :before, '<', 1000::bigint,
	'it reads no more than about what it lists');
rollback;

-- ---- count_jobs

select results_eq($$ select * from outbox.count_jobs('dead') $$, $$ values (6::bigint, true) $$,
	'count');
select results_eq($$ select * from outbox.count_jobs(at_most => 100) $$,
	$$ values (100::bigint, false) $$, 'count stops, and says so');
select results_eq($$ select * from outbox.count_jobs('dead', at_most => 6) $$,
	$$ values (6::bigint, true) $$, 'exactly so many are all');

-- ---- job_details and job_history

select id as dead from test.made where n = 18 \gset
select id as running from test.made where n = 6 \gset
select results_eq(format('select state, attempts, max_attempts, code, error, dedupe_key,
	idempotency_key from outbox.job_details(%s)', :dead),
	format($$ values ('dead', 1, 8, 'bounced', 'an error', 'd18', '%s-%s') $$,
		(select installation from outbox.meta), :dead), 'details of a dead job');
select results_eq(format('select state, worker, claimed_at is not null from outbox.job_details(%s)',
	:running), $$ values ('running', 'w', true) $$, 'details of a running job');
select is_empty(format('select * from outbox.job_details(%s, ''nobody'')', :dead),
	'details outside the tenant');
select is_empty('select * from outbox.job_details(1000000)', 'details of no job');

select r.status as x from outbox.resend(:dead, 1, 'alice', 'again') r \gset
select test.claim('kind0') as x, test.finish(:dead, 'fail', 'bounced', 7) as y \gset
select r.status as x from outbox.replay(:dead, 'bob') r \gset
select results_eq(format('select entry, attempt, outcome, code, trigger, triggered_by, reason,
	duration_ms, error, response::text from outbox.job_history(%s)', :dead),
	$$ values ('enqueued', null::smallint, null, null, null, null, null, null::integer, null, null),
		('attempt', 1::smallint, 'dead', 'bounced', 'automatic', null, null, 18, 'an error', '"r"'),
		('resend', null, null, null, null, 'alice', 'again', null, null, null),
		('attempt', 2::smallint, 'dead', 'bounced', 'manual', 'alice', 'again', 7, 'an error', '"r"'),
		('replay', null, null, null, null, 'bob', null, null, null, null) $$,
	'history tells everything in order');
select outbox.cancel(:running, 'carol', 'stop') as x \gset
select results_eq(format('select entry, triggered_by, reason from outbox.job_history(%s)',
	:running), $$ values ('enqueued', null, null), ('cancel', 'carol', 'stop') $$,
	'a cancel that has not taken effect');
select is_empty(format('select * from outbox.job_history(%s, ''nobody'')', :dead),
	'history outside the tenant');
delete from outbox.job where id = :dead;
select is((select count(*) from outbox.job_history(:dead)), 2::bigint,
	'attempts outlive their job');

select id as twice from outbox.enqueue('twice', '{}') \gset
select test.claim('twice') as x, test.finish(:twice, 'fail', 'bounced') as y \gset
select r.status as x from outbox.replay(:twice) r \gset
select test.claim('twice') as x, test.finish(:twice, 'fail', 'bounced') as y \gset
select is(array(select l.attempts from outbox.list_jobs(s, kind => 'twice', finished => '[,]') l),
	array[2], 'a job with two ends is listed once, state ' || coalesce(s, 'any'))
from (values (null), ('dead')) v (s);

-- ---- backlog

create function test.backlog(kind text, aged_after interval default '5 min',
	critical_after interval default '1 h', at_most integer default 100000)
	returns table (line text) language sql
	as $$
	select concat_ws(' ', b.pending, b.retrying, b.due, b.aged, b.scheduled, b.running, b.stuck,
		b.oldest_due_s, b.workers, b.complete, b.grade)
	from outbox.backlog(aged_after, critical_after, at_most) b where b.kind = backlog.kind
	$$;

insert into outbox.kind (name, lane, timeout_ms) values ('idle', 'bulk', 1000), ('busy', 'bulk', 1000);
insert into outbox.worker (id, host, pid, program_version, lane, lease_ms, kinds, versions,
	started_at, seen_at)
values ('alive', 'h', 1, '0', 'bulk', 60000, '{busy}', '{0}', now(), now()),
	('silent', 'h', 1, '0', 'bulk', 1000, '{busy}', '{0}', now(), now() - interval '2 s');
select is(test.backlog('idle'), '0 0 0 0 0 0 0 0 t ok', 'a known kind without work is shown');
select is(lane, 'bulk', 'its lane') from outbox.backlog() where kind = 'idle';
select is_empty($$ select test.backlog('other') $$, 'an unknown kind is not');

-- moved by hand, as if enqueued some time ago
create function test.owe(kind text, ago interval, attempt smallint default 0) returns void
	language sql as $$
	insert into outbox.ready (kind, priority, due_at, job_id, attempt)
	values (kind, 1 + 3 * attempt, now() - ago, outbox.new_id(), attempt) $$;
select test.owe('busy', '-1 h') as x, test.owe('busy', '-1 h', 1::smallint) as y \gset
select is(test.backlog('busy'), '1 1 0 0 2 0 0 1 t ok', 'what is not due does not matter');
select test.owe('busy', '100 s') as x \gset
select matches(test.backlog('busy'), '^2 1 1 0 2 0 0 10[0-9] 1 t ok$', 'due work');
select matches(test.backlog('busy', '90 s'), '^2 1 1 1 2 0 0 10[0-9] 1 t warning$', 'aged work');
select matches(test.backlog('busy', '90 s', '95 s'), '^2 1 1 1 2 0 0 10[0-9] 1 t critical$',
	'work that is too old');
select test.owe('busy', '1 s') as x, test.owe('busy', '1 s') as y \gset
select matches(test.backlog('busy', at_most => 2), '^3 1 2 0 2 0 0 10[0-9] 1 f ok$',
	'counting stops, and says so');
select matches(test.backlog('busy', at_most => 4), '^4 1 3 0 2 0 0 10[0-9] 1 t ok$',
	'counting need not stop');
update outbox.worker set kinds = '{other}';
select matches(test.backlog('busy'), ' 0 t warning$', 'due work and no worker');

select test.owe('other', '1 s') as x \gset
select matches(test.backlog('other'), '^1 0 1 0 0 0 0 1 1 t ok$', 'a kind that nobody announced');
insert into outbox.claim values (outbox.new_id(), now() - interval '50 s', 'poll',
	'alive', 'idle', '{9001,9002}', '{1,1}');
insert into outbox.attempt (job_id, attempt, outcome, finished_at, kind)
	values (9001, 1, 'succeeded', now(), 'idle');
select is(test.backlog('idle'), '0 0 0 0 0 1 0 0 t ok', 'running');
update outbox.claim set claimed_at = now() - interval '62 s' where kind = 'idle';
select is(test.backlog('idle'), '0 0 0 0 0 1 1 0 t critical',
	'running for longer than timeout and lease');

-- ---- stats

insert into outbox.attempt (job_id, attempt, outcome, finished_at, kind, code, duration_ms, trigger,
	tenant_key)
select n + 10000, 1, case when n % 100 = 0 then 'failed' else 'succeeded' end::outbox.outcome,
	'2020-01-01Z'::timestamptz + n * interval '1 s', 'past', case when n % 100 = 0 then 'busy' end,
	n % 1000, case when n <= 7000 then 'manual' else 'automatic' end::outbox.trigger,
	case when n > 6900 then 'late' end
from generate_series(6001, 8000) n;
select results_eq($$ select * from outbox.stats('2020-01-01 01:40:00Z', '2020-01-01 03:00:00Z') $$,
	$$ values ('past', 'succeeded', null, 1980::bigint, 990::bigint, 1980::bigint, 499, 950, 999),
		('past', 'failed', 'busy', 20, 10, 20, 400, 900, 900) $$,
	'outcomes and durations by kind and code');
select results_eq($$ select kind, outcome, attempts from outbox.stats('2020-01-01 01:40:01Z',
	'2020-01-01 01:40:03Z') $$, $$ values ('past', 'succeeded', 2::bigint) $$,
	'the first instant counts, the last one does not');
select is(sum(attempts), 1100::numeric, 'of a tenant')
	from outbox.stats('2020-01-01 01:40:01Z', '2020-01-01 03:00:00Z', tenant => 'late');
select is(count(*), 0::bigint, 'of other kinds')
	from outbox.stats('2020-01-01 01:40:01Z', '2020-01-01 03:00:00Z', '{kind1,kind2}');
select is((select sum(attempts) from outbox.stats('2026-01-01', kinds => '{kind0,kind1,kind2}')),
	25::numeric, 'until now');

select * from finish();
