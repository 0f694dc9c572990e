-- SWP-04: how many rows the hot functions read beside a large backlog and a large history: by the
-- server's counters for this transaction, so that a plan that scans is found on any data.
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

create function test.scans() returns bigint language sql as $$
	select sum(pg_stat_get_xact_numscans(t::regclass)) from unnest(array['outbox.job', 'outbox.ready', 'outbox.attempt', 'outbox.dedupe']) t
$$;
create function test.index_rows() returns bigint language sql as $$
	select sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) from pg_index i
	where i.indrelid::regclass::text in ('outbox.job', 'outbox.ready', 'outbox.attempt', 'outbox.dedupe')
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
insert into test.cases (label, statement, most) values
	('next_due', $$select outbox.next_due('default', '{mine,other,none}')$$, 4),
	('kinds_owed', $$select outbox.kinds_owed()$$, 4),
	('claim of one kind', $$select outbox.claim('w1', 'default', '{mine}', '{100}', 100)$$, 400),
	('claim of three kinds', $$select outbox.claim('w1', 'default', '{mine,none,nothing}', '{100,100,100}', 50)$$, 400), -- 100 of them dead
	('claim with nothing due', $$select outbox.claim('w1', 'default', '{none}', '{100}', 100)$$, 0),
	('settle', $$select outbox.settle(array_fill(c.id, array[100]), array(select generate_series(1, 100)), c.ids, c.attempts,
		array_fill('ok'::text, array[100]), e.t, e.t, e.t, array_fill(false, array[100]), e.b, e.t, e.b, e.b, e.i, e.i, e.t, e.t, e.b, array[c.id])
		from outbox.claim c, (select array_fill(null::text, array[100]) as t, array_fill(0::bigint, array[100]) as b, array_fill(0, array[100]) as i) e
		where cardinality(c.ids) = 100$$, 500),
	('settle, one by one', $$select test.settle(c.ids[1], 'retry', 'x') from outbox.claim c$$, 20),
	('cancel of an owed job', $$select outbox.cancel(20005)$$, 10),
	('state of an ended job', $$select outbox.job_state(7)$$, 5),
	('enqueue', $$select outbox.enqueue('mine', '{}', 'key')$$, 2),
	('enqueue of an existing key', $$select outbox.enqueue('mine', '{}', 'key', 'until_done')$$, 10),
	('worker_hello', $$select outbox.worker_hello('w2', 'host', 1, '1', 'default', 1000, '[]', '{}', '{}')$$, 600),
	('collect_claims', $$select outbox.collect_claims()$$, 600),
	('recover', $$select outbox.recover('w1')$$, 600);
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
select is((select count(*) from pg_index where indrelid = 'outbox.ready'::regclass), 1::bigint, 'ready has one index');

select * from finish();
rollback;
