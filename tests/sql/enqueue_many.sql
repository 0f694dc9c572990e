-- enqueue_many: order of the answers, arrays of one, dedupe within a call, refusals.
begin;
\ir helpers.psql
select * from no_plan();

-- ---- answers in order, one a job

select results_eq($$select ordinality, status, kind, existing_kind, issues::text
		from outbox.enqueue_many(array['a', 'b', 'a'], array['{"n":1}', '{"n":2}', '{"n":3}'])$$,
	$$values (1, 'created', 'a', null::text, null::text), (2, 'created', 'b', null, null), (3, 'created', 'a', null, null)$$,
	'three jobs');
select results_eq($$select payload::text from outbox.job order by id$$,
	$$values ('{"n":1}'), ('{"n":2}'), ('{"n":3}')$$, 'ids grow with the elements');
select results_eq($$select kind, count(*), bool_and(due_at = now() and attempt = 0 and version = 0 and priority = 2)
		from outbox.ready group by kind order by kind$$,
	$$values ('a', 2::bigint, true), ('b', 1::bigint, true)$$, 'each is owed');
select is((select count(*) from outbox.enqueue_many(array['a'], '{}')), 0::bigint, 'no payloads: no jobs');
select is((select count(*) from outbox.enqueue_many(array['a'], null)), 0::bigint, 'null payloads: no jobs');

-- ---- everything given is kept; arrays of one hold for all

create table test.many as select * from outbox.enqueue_many(
	array['full'], array['[1]', ' [2] '], array['k1', 'k2'], 'forever', array['org1'], array['alice', 'bob'],
	array['req-7'], array['00-ab', null], array['1 min', '2 min']::interval[], null, array[1, 4],
	array[5, null], array['{"s": 1}', null], array[12, null]);
select results_eq('select j.payload::text, dedupe_key, tenant_key, subject_key, correlation_id, traceparent,
		run_at - now(), priority, max_attempts, metadata::text, version
		from outbox.job j join test.many m using (id) order by m.ordinality',
	$$values ('[1]', 'k1', 'org1', 'alice', 'req-7', '00-ab', interval '1 min', 1::smallint, 5::smallint, '{"s": 1}', 12),
		(' [2] ', 'k2', 'org1', 'bob', 'req-7', null, interval '2 min', 4::smallint, null, null, null)$$, 'the jobs');
select results_eq('select due_at - now(), priority, version from outbox.ready r join test.many m on m.id = r.job_id order by m.ordinality',
	$$values (interval '1 min', 1::smallint, 12), (interval '2 min', 4::smallint, 0)$$, 'their rows in ready');
select is((select run_at from outbox.enqueue_many(array['a'], array['1'], run_ats => array[now() + interval '1 h']) e,
	lateral (select (test.job(e.id)).run_at) j), now() + interval '1 h', 'run_at');
select is((select string_agg(e.kind || (test.job(e.id)).subject_key, ',' order by e.ordinality)
	from outbox.enqueue_many('[0:1]={a,b}', '[0:1]={1,2}', subject_keys => '[0:1]={x,y}') e), 'ax,by',
	'arrays that do not count from 1');

-- ---- dedupe, also within one call; the mode makes no difference there

-- The answers in order: status, existing kind, and for the others than "created" the first
-- element with the same id.
create function test.keys(mode text, kinds text[], keys text[], tenants text[] default null)
	returns text language sql as $$
	with answer as materialized (
		select * from outbox.enqueue_many(kinds, array_fill('{}'::text, array[cardinality(keys)]),
			keys, mode, tenants))
	select string_agg(a.status || coalesce(':' || a.existing_kind, '')
		|| case a.status when 'created' then '' else
			' ' || (select min(f.ordinality) from answer f where f.id = a.id) end,
		', ' order by a.ordinality)
	from answer a
$$;
select is(test.keys(mode, array['a'], array[mode, mode, null, null, mode]),
	'created, exists 1, created, created, exists 1', mode || ': the first of a key is created')
from unnest(array['forever', 'until_done']) mode;
select is(test.keys(mode, array['a', 'b', 'b', 'a'], array_fill(mode || 2, array[4])),
	'created, dedupe_conflict:a 1, dedupe_conflict:a 1, exists 1', mode || ': another kind conflicts')
from unnest(array['forever', 'until_done']) mode;
select is(test.keys(mode, array['a'], array_fill(mode || 3, array[4]), array['t1', null, 't2', 't1']),
	'created, created, created, exists 1', mode || ': tenants do not conflict')
from unnest(array['forever', 'until_done']) mode;
select is(test.keys('forever', array['a', 'b'], array['until_done', 'until_done']),
	'exists 1, dedupe_conflict:a 1', 'a key of an earlier call');

select test.job_in('succeeded', 'over', 'over', 'forever') as over \gset
select is(test.keys('until_done', array['over'], array['over', 'over']), 'created, exists 1',
	'until_done: the first takes the key of an ended job, the second finds it taken');
select is((select count(*) from outbox.job where dedupe_key = 'over' and id <> :over), 1::bigint, 'one job was made');
select is((select job_id from outbox.dedupe where key = 'over'),
	(select id from outbox.job where dedupe_key = 'over' and id <> :over), 'and has the key');
select is_empty($$select id from outbox.job except select job_id from outbox.ready
	except select job_id from outbox.attempt$$, 'every job is owed');
select is_empty($$select job_id from outbox.ready except select id from outbox.job$$, 'and no other');

-- ---- invalid payloads refuse their own element only

select test.announce('checked', schema => '{"type": "object"}') as x \gset
select results_eq($$select status, id is null, issues::text from outbox.enqueue_many(
		array['checked', 'checked', 'a'], array['1', '{}', '1'], array['c1', 'c2', 'c3'])$$,
	$$values ('invalid_payload', true, '[{"path": "", "message": "must be of type object, not number"}]'),
		('created', false, null), ('created', false, null)$$, 'one of three');
select is((select count(*) from outbox.dedupe where key = 'c1'), 0::bigint, 'it takes no key');

-- ---- refusals of the call: name the element, and nothing is enqueued

create table test.before as select (select count(*) from outbox.job) as jobs,
	(select count(*) from outbox.ready) as ready, (select count(*) from outbox.dedupe) as keys;

select throws_ok('select * from outbox.enqueue_many(' || c.arguments || ')', c.code, c.message, c.message)
from (values
	($$array['a', '/'], array['1', '2']$$, '22023', 'element 2: kind ''/'' must match ^[a-z0-9][a-z0-9._-]{0,99}$'),
	($$array['a'], array['1', null]$$, '22023', 'element 2: payload must not be null'),
	($$array['a'], array['1', '2', 'x']$$, '22P02', 'element 3: invalid input syntax for type json'),
	($$array['a'], array['1', '2'], array['r1', '']$$, '22023', 'element 2: dedupe_key must not be empty'),
	($$array['a'], array['1', '2'], delays => array['0', '-1 s']::interval[]$$, '22023', 'element 2: delay -00:00:01 must be between 0 and 10 years'),
	($$array['a'], array['1', '2'], run_ats => array[now(), 'infinity']$$, '22023', 'element 2: run_at infinity must be finite and within 10 years'),
	($$array['a'], array['1', '2'], priorities => array[1, 9]$$, '22023', 'element 2: priority 9 must be between 1 (first) and 4 (last)'),
	($$array['a'], array['1'], priorities => null$$, '22023', 'element 1: priority null must be between 1 (first) and 4 (last)'),
	($$array['a'], array['1', '2'], metadatas => array['1', '{']$$, '22P02', 'element 2: invalid input syntax for type json'),
	($$array['a'], array['1', repeat('[', 501) || repeat(']', 501)]$$, '22023', 'element 2: payload nesting is deeper than the limit of 500 levels for kind "a"'),
	($$array['a'], array['1', '2'], dedupe => 'x'$$, '22023', 'dedupe ''x'' must be "forever" or "until_done"'),
	($$array['a', 'b', 'c'], array['1', '2']$$, '22023', 'kinds has 3 elements, not 1 or 2 as payloads'),
	($$array['a'], array['1', '2'], array['r1', 'r2', 'r3']$$, '22023', 'dedupe_keys has 3 elements, not 1 or 2 as payloads'),
	($$array['a'], array['1', '2', '3'], versions => array[1, 2]$$, '22023', 'versions has 2 elements, not 1 or 3 as payloads'),
	($$null, array['1']$$, '22023', 'element 1: kind NULL must match ^[a-z0-9][a-z0-9._-]{0,99}$')
) c (arguments, code, message);
select results_eq('select (select count(*) from outbox.job), (select count(*) from outbox.ready), (select count(*) from outbox.dedupe)',
	'select * from test.before', 'nothing was enqueued');

-- ---- many

select is((select count(distinct id) from outbox.enqueue_many(array['big'], array_fill('{}'::text, array[10000]))),
	10000::bigint, 'ten thousand in one call');

select * from finish();
rollback;
