-- SWP-04: how many rows the hot functions read beside a large backlog and a large history: by the
-- server's counters for this transaction, so that a plan that scans is found on any data.
-- plans_vacuumed.sql runs this with `vacuumed` set: the planner then takes the tables that are
-- empty as often as not for empty, as vacuum leaves them.
begin;
\ir helpers.psql
select * from no_plan();

-- 20,000 ended jobs, 20,000 owed ones of another kind, 20,000 future ones, and 200 due ones.
insert into outbox.job (id, created_at, run_at, priority, kind, payload)
select n, now(), now(), 2, case when n <= 40000 then 'other' else 'mine' end, '{}' from generate_series(1, 60200) n;
insert into outbox.attempt (job_id, attempt, outcome, kind, finished_at)
select n, 1, 'succeeded', 'other', now() from generate_series(1, 20000) n;
insert into outbox.ready (kind, priority, due_at, job_id, attempt)
select 'other', 2, now() - interval '1 h', n, 0 from generate_series(20001, 40000) n union all
select 'mine', 2, now() + interval '1 h', n, 0 from generate_series(40001, 60000) n union all
select 'mine', 2, now() - interval '1 h', n, 0 from generate_series(60001, 60200) n;
-- 5,000 claims of somebody else.
insert into outbox.claim (id, claimed_at, found, worker, kind, ids, attempts)
select n, now(), 'poll', 'elsewhere', 'other', array[n], array[1] from generate_series(1, 5000) n;
\if :{?vacuumed}
update pg_class set reltuples = 0, relpages = greatest(relpages, 100)
where oid in ('outbox.ready'::regclass, 'outbox.claim'::regclass, 'outbox.cancel'::regclass)
	or oid in (select indexrelid from pg_index
		where indrelid in ('outbox.ready'::regclass, 'outbox.claim'::regclass, 'outbox.cancel'::regclass));
\endif

create function test.scans() returns bigint language sql as $$
	select sum(pg_stat_get_xact_numscans(t::regclass)) from unnest(array['outbox.job', 'outbox.ready', 'outbox.attempt', 'outbox.dedupe', 'outbox.claim']) t
$$;
create function test.index_rows() returns bigint language sql as $$
	select sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) from pg_index i
	where i.indrelid::regclass::text in ('outbox.job', 'outbox.ready', 'outbox.attempt', 'outbox.dedupe', 'outbox.claim')
$$;
-- Runs a statement; returns its sequential scans of the large tables and the index entries it read there.
create function test.cost(statement text, out scans bigint, out index_rows bigint) language plpgsql as $$
begin
	scans := test.scans();
	index_rows := test.index_rows();
	execute statement;
	scans := test.scans() - scans;
	index_rows := test.index_rows() - index_rows;
end $$;

create table test.cases (n serial, label text, statement text, most integer);
-- What is done when a runner comes or goes may read all claims.
\if :{?vacuumed}
\set rarely 5600
\else
\set rarely 600
\endif
insert into test.cases (label, statement, most) values
	('next_due', $$select outbox.next_due('default', '{mine,other,none}')$$, 4),
	('kinds_owed', $$select outbox.kinds_owed()$$, 4),
	('claim of one kind', $$select outbox.claim('w1', 'default', '{mine}', '{100}', 100)$$, 400),
	('claim of three kinds', $$select outbox.claim('w1', 'default', '{mine,none,nothing}', '{100,100,100}', 50)$$, 400), -- 100 of them dead
	('claim with nothing due', $$select outbox.claim('w1', 'default', '{none}', '{100}', 100)$$, 0),
	('settle', $$select outbox.settle(array_fill(c.id, array[100]), array(select generate_series(1, 100)), c.ids, c.attempts,
		array_fill('ok'::text, array[100]), e.t, e.t, e.t, array_fill(false, array[100]), e.b, e.t, e.b, e.b, e.i, e.i, e.t, e.t, e.b, array[c.id])
		from outbox.claim c, (select array_fill(null::text, array[100]) as t, array_fill(0::bigint, array[100]) as b, array_fill(0, array[100]) as i) e
		where c.id = (select min(o.id) from outbox.claim o where o.id > 5000)$$, 500),
	('settle, one by one', $$select test.settle(c.ids[1], 'retry', 'x', place => (c.id, 1, c.attempts[1])::test.place)
		from (select * from outbox.claim order by id desc limit 1) c$$, 20),
	('cancel of an owed job', $$select outbox.cancel(20005)$$, 10),
	('state of an ended job', $$select outbox.job_state(7)$$, 5),
	('a page of all', $$select outbox.list_jobs(max_rows => 10)$$, 100),
	('a page of dead ones', $$select outbox.list_jobs('dead', max_rows => 10)$$, 100),
	('a page of those that succeeded', $$select outbox.list_jobs('succeeded', max_rows => 10)$$, 600),
	('enqueue', $$select outbox.enqueue('mine', '{}', 'key')$$, 2),
	('enqueue of an existing key', $$select outbox.enqueue('mine', '{}', 'key', 'until_done')$$, 10),
	('worker_hello', $$select outbox.worker_hello('w2', 'host', 1, '1', 'default', 1000, '[]', '{}', '{}')$$, :rarely),
	('cancels', $$select outbox.cancels('{w1}')$$, 10),
	('release_claims', $$select outbox.release_claims(array[7])$$, 10),
	('collect_claims', $$select outbox.collect_claims()$$, 5600), -- all claims, rarely
	('collect_claims_after', $$select outbox.collect_claims_after(4995)$$, 120), -- those of the claims above, and few more
	('workers_to_watch', $$select outbox.workers_to_watch()$$, 10),
	('recover', $$select outbox.recover('w1')$$, :rarely),
	('kinds_without_runner', $$select outbox.kinds_without_runner('default')$$, 0); -- all of it is served
insert into outbox.worker (id, host, pid, program_version, lane, lease_ms, kinds, versions, started_at, seen_at)
values ('w3', 'host', 1, '1', 'default', 1000, '{mine,other}', '{0,0}', now(), now());
-- An earlier run that was rolled back may have left dead index entries: the first look marks them.
select outbox.next_due('default', '{mine,other,none}') as x, count(*) as y from outbox.kinds_owed() \gset
alter table test.cases add scans bigint, add index_rows bigint;
do $$
declare
	c record;
begin
	for c in select * from test.cases order by n loop
		update test.cases t set (scans, index_rows) = (select * from test.cost(c.statement)) where t.n = c.n;
	end loop;
end $$;
select is(scans, 0::bigint, label || ': no sequential scan') from test.cases order by n;
select cmp_ok(index_rows, '<=', most::bigint, label || ': index entries') from test.cases order by n;
select is((select count(*) from outbox.attempt where kind = 'mine'), 150::bigint, 'all of it was done');
-- A scan that is off and taken all the same costs 1e10: to compile that takes a tenth of a second.
select is_empty($$select proname from pg_proc where pronamespace = 'outbox'::regnamespace
	and proconfig::text ~ 'enable_.*=off' and not 'jit=off' = any (proconfig)
	and proname <> 'settle_plain'$$, -- which settle calls
	'nothing is compiled because of a scan that is not wanted');
select is((select count(*) from pg_index where indrelid = 'outbox.ready'::regclass), 1::bigint, 'ready has one index');

select * from finish();
rollback;
