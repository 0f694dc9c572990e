-- claim, next_due, kinds_owed, release_claims.
begin;
\ir helpers.psql
select * from no_plan();

-- Enqueues a job whose payload is its name, and claims by such names.
create function test.job(name text, kind text, priority integer default 2, delay interval default null,
	version integer default null) returns void language sql as $$
	select outbox.enqueue(kind, to_json(name), priority => priority, delay => delay, version => version)
$$;
create function test.names(kinds text[], limits integer[], most integer, versions integer[] default null,
	after timestamptz[] default null, lane text default 'default') returns text language sql as $$
	select coalesce(string_agg(c.payload #>> '{}', ' '), '')
	from outbox.claim('w1', lane, kinds, limits, most, 'nudge', versions, after) c
$$;

-- ---- order: by priority over all kinds, then due time, then id

select test.job(name, kind, priority, delay) from (values
	('a2', 'a', 2, null), ('b1', 'b', 1, '2 s'::interval), ('a1', 'a', 1, '3 s'), ('c4', 'c', 4, null),
	('b3', 'b', 3, '1 s'), ('a3', 'a', 3, null), ('b2', 'b', 2, null), ('a2later', 'a', 2, '1 s'),
	('future', 'a', 1, '1 h')) j (name, kind, priority, delay) \g /dev/null
select test.sleep('1 min') as x \gset
savepoint queue;
select is(test.names('{a,b,c}', '{9,9,9}', 9), 'b1 a1 a2 b2 a2later a3 b3 c4', 'all of it, in order');
select is(test.names('{a,b,c}', '{9,9,9}', 9), '', 'nothing is due any more');
rollback to queue;
select is(test.names('{c,b,a}', '{9,9,9}', 9), 'b1 a1 a2 b2 a2later a3 b3 c4', 'the order of the kinds does not matter');
rollback to queue;
select is(test.names('{a,b,c}', '{9,9,9}', 3), 'b1 a1 a2', 'the best three');
select is(test.names('{a,b,c}', '{9,9,9}', 3), 'b2 a2later a3', 'the next three');
rollback to queue;
select is(test.names('{a,b,c}', '{1,2,9}', 9), 'b1 a1 b2 c4', 'a limit for each kind');
rollback to queue;
select is(test.names('{a,b,c}', '{0,2,null}', 9), 'b1 b2', 'no room for a kind');
rollback to queue;
select is(test.names('{b}', '{9}', 9), 'b1 b2 b3', 'only the kinds that are named');
rollback to queue;
select is(test.names('{b}', '{2}', 9), 'b1 b2', 'the limit of a single kind holds over its priorities');
rollback to queue;
select is(test.names('{b}', '{9}', 2), 'b1 b2', 'and so does that of the call');
rollback to queue;
select is(test.names('{a,b,c}', '{9,9,9}', 0), '', 'no room at all');
select is(test.names('{}', '{}', 9), '', 'no kinds at all');
select is(test.names('{a,b,c}', '{2147483647,9,9}', 2147483647), 'b1 a1 a2 b2 a2later a3 b3 c4', 'the largest room');
rollback to queue;

-- due at the same instant, as jobs of one transaction are: the lowest id then
select test.job(name, kind, 2, delay) from (values
	('dlater', 'd', '1 s'::interval), ('f', 'f', null), ('d', 'd', null), ('e', 'e', null)) j (name, kind, delay) \g /dev/null
select test.sleep('1 min') as x \gset
select is(test.names('{d,e,f}', '{9,9,9}', 9), 'f d e dlater', 'of kinds due at the same instant');
rollback to queue;

-- ---- what a claim leaves behind

create table test.claimed as select * from outbox.claim('w9', 'default', '{a,b}', '{2,9}', 4, 'sweep');
select is((select string_agg(payload #>> '{}', ' ' order by priority, due_at) from test.claimed), 'b1 a1 a2 b2', 'four');
select results_eq('select id, kind, worker, found::text, claimed_at = outbox.now(), ids, attempts from outbox.claim order by id',
	'select claim_id, kind, ''w9'', ''sweep'', true, array_agg(job_id order by claim_index),
	array_agg(attempt order by claim_index) from test.claimed group by claim_id, kind order by claim_id',
	'one claim row a kind, in the order of claim_index');
select results_eq('select kind, priority, array_agg(claim_index order by due_at), min(claim_size) from test.claimed group by kind, priority order by kind, priority',
	$$values ('a', 1::smallint, '{1}'::integer[], 2), ('a', 2::smallint, '{2}', 2), ('b', 1::smallint, '{1}', 2), ('b', 2::smallint, '{2}', 2)$$, 'claim_index and claim_size');
select is((select count(*) from outbox.ready r join test.claimed c using (job_id)), 0::bigint, 'they are not ready any more');
select is((select count(*) from outbox.ready), 5::bigint, 'the others are');
select is((select array_agg(distinct test.state(job_id)) from test.claimed), '{running}', 'their state');
select is((select array_agg(distinct attempt) from test.claimed), '{1}', 'the first attempt');
select is((select array_agg(distinct trigger) from test.claimed), '{automatic}', 'by nobody');
rollback to queue;

-- ---- what a worker gets

select test.announce('full', '{"max_attempts": 3}') as x \gset
select id from outbox.enqueue('full', ' {"x" : 1.0} ', null, 'forever', 'org1', 'alice', 'req-7', '00-ab',
	'1 s', null, 3, null, '{"s": 1}', 12) \gset
select test.sleep('1 min') as x \gset
select results_eq('select job_id, attempt, kind, payload::text, max_attempts, idempotency_key, tenant_key,
		subject_key, correlation_id, traceparent, metadata::text, created_at, trigger, reason, version, priority,
		due_at, claimed_at from outbox.claim(''w1'', ''default'', ''{full}'', ''{9}'', 9)',
	format($$select %s::bigint, 1::smallint, 'full', ' {"x" : 1.0} ', 3, installation || '-%1$s', 'org1', 'alice',
		'req-7', '00-ab', '{"s": 1}', now() + interval '1 min', 'automatic', null::text, 12, 3::smallint,
		now() + interval '61 s', outbox.now() from outbox.meta$$, :id), 'everything of a job');
select is((test.settle(:id, 'retry', after_ms => 0)).outcome, 'failed', 'it fails');
select test.sleep('1 hour') as x \gset
select results_eq('select job_id, attempt, idempotency_key from outbox.claim(''w1'', ''default'', ''{full}'', ''{9}'', 9)',
	format($$select %s::bigint, 2::smallint, installation || '-%1$s' from outbox.meta$$, :id),
	'the second attempt, with the same idempotency key');
select is((select c.max_attempts from outbox.enqueue('full', '1', max_attempts => 7),
	outbox.claim('w1', 'default', '{full}', '{9}', 9) c), 7, 'max_attempts of the job wins');
select is((select c.max_attempts from outbox.enqueue('unknown', '1'),
	outbox.claim('w1', 'default', '{unknown}', '{9}', 9) c), 8, 'a kind that nobody announced has the default');

-- the attempt after a replay says who and why, the one after that does not

select test.enqueue('again') as id \gset
select (test.run(:id, 'fail')).outcome as x, outbox.replay(:id, 'alice', 'try again') as y \gset
select results_eq('select attempt, trigger, reason from outbox.claim(''w1'', ''default'', ''{again}'', ''{9}'', 9)',
	$$values (2::smallint, 'manual', 'try again')$$, 'after a replay');
select (test.settle(:id, 'retry')).outcome as x, test.sleep('1 h') as y \gset
select results_eq('select attempt, trigger, reason from outbox.claim(''w1'', ''default'', ''{again}'', ''{9}'', 9)',
	$$values (3::smallint, 'automatic', null::text)$$, 'after the one after a replay');
select (test.settle(:id, 'fail')).outcome as x, outbox.replay(:id, 'alice') as y \gset
select results_eq('select trigger, reason from outbox.claim(''w1'', ''default'', ''{again}'', ''{9}'', 9)',
	$$values ('manual', null::text)$$, 'after a replay without a word');

-- ---- versions (DEP-02)

select test.job(name, 'v', version => version) from (values ('any', null), ('five', 5), ('nine', 9)) j (name, version) \g /dev/null
savepoint versions;
select is(test.names('{v}', '{9}', 9, '{4}'), 'any', 'an old handler gets what any may run');
select is(test.names('{v}', '{9}', 9, '{5}'), 'five', 'at least version 5');
rollback to versions;
select is(test.names('{v}', '{9}', 9, '{9}'), 'any five nine', 'the newest gets all');
rollback to versions;
select is(test.names('{v}', '{9}', 9, '{null}'), 'any five nine', 'null is any');
rollback to versions;
select is(test.names('{v}', '{1}', 9, '{4}'), 'any', 'rows of other versions take no room');
select is(test.names('{v}', '{1}', 9, '{9}'), 'five', 'and wait in order');

-- ---- after: where to start looking, of each kind and priority

select test.job(name, kind, priority, delay) from (values
	('x1', 'x', 1, '1 s'::interval), ('x1b', 'x', 1, '2 s'), ('x2', 'x', 2, '3 s'), ('y1', 'y', 1, '4 s')) j (name, kind, priority, delay) \g /dev/null
select outbox.now() as start \gset
select test.sleep('1 min') as x \gset
savepoint positions;
select is(test.names('{x,y}', '{9,9}', 9, null, array_fill(null::timestamptz, array[8])), 'x1 x1b y1 x2', 'null is from the head');
rollback to positions;
select is(test.names('{x,y}', '{9,9}', 9, null, array[:'start'::timestamptz + interval '1 s']), 'x1b y1 x2', 'exclusive, and of the first kind and priority only');
rollback to positions;
select is(test.names('{x,y}', '{9,9}', 9, null, array[null, :'start'::timestamptz + interval '1 h', null, null, :'start'::timestamptz + interval '3 s']), 'x1 x1b y1', 'each kind and priority its own');
rollback to positions;

create table test.two as select * from outbox.claim('w1', 'default', '{x}', '{9}', 2);
select results_eq('select claim_index, claim_size, payload #>> ''{}'' from test.two order by due_at',
	$$values (1, 2, 'x1'), (2, 2, 'x1b')$$, 'two of a claim');
rollback to positions;

-- ---- lanes

insert into outbox.lane (name, paused) values ('bulk', true), ('fast', false);
select is(test.names('{x,y}', '{9,9}', 9, lane => 'bulk'), '', 'nothing is claimed from a paused lane');
select is(outbox.next_due('bulk', '{x,y}'), null, 'and nothing is due there');
select is(test.names('{y}', '{9}', 9, lane => 'fast'), 'y1', 'a lane that is not');
select is(test.names('{x}', '{1}', 9, lane => 'nobody.knows'), 'x1', 'a lane without a row');
rollback to positions;

-- ---- many at once: more than fit into a page

select count(*) as x from outbox.enqueue_many('{many}', array_fill('1'::text, array[3000])) \gset
select is((select count(*) from outbox.claim('w1', 'default', '{many}', '{2500}', 2500)), 2500::bigint, '2500 in one claim');
select is((select count(*) from outbox.ready where kind = 'many'), 500::bigint, '500 are left');
select is((select cardinality(ids) from outbox.claim where kind = 'many'), 2500, 'all in one row');

-- ---- next_due, kinds_owed

select is(outbox.next_due('default', '{nothing}'), null, 'next_due of a kind that owes nothing');
select is(outbox.next_due('default', '{}'), null, 'next_due of no kinds');
select is(outbox.next_due('default', '{x,y}'), :'start'::timestamptz + interval '1 s', 'the earliest of all kinds and priorities');
select test.job('n', 'n', 3, '10 min'), test.job('n', 'n', 4, '5 min'), test.job('n', 'n', 1, '1 min', 7) \g /dev/null
select is(outbox.next_due('default', '{n}') - outbox.now(), '1 min', 'also in the future');
select is(outbox.next_due('default', '{n}', '{6}') - outbox.now(), '5 min', 'not counting what is not for this version');
select set_eq('select * from outbox.kinds_owed()', 'select distinct kind from outbox.ready', 'kinds_owed: each once');
select test.announce('x', lane => 'fast') as x \gset
select results_eq('select * from outbox.kinds_owed(''fast'')', 'values (''x''::text)', 'kinds_owed of a lane');
select bag_has('select * from outbox.kinds_owed(''default'')', 'values (''y''::text), (''n'')', 'unknown kinds are in lane default');
delete from outbox.ready;
select is_empty('select * from outbox.kinds_owed()', 'kinds_owed: none');

-- ---- release_claims

select test.enqueue('r') as one, test.enqueue('r') as two \gset
select test.claim('r') as x \gset
select (test.settle(:one, 'ok', done => false)).outcome as x \gset
select claim_id from test.place(:one) \gset
select lives_ok(format('select outbox.release_claims(array[%s])', :claim_id), 'release_claims');
select results_eq('select job_id, attempt, outcome::text, code, next_at = outbox.now(), worker from outbox.attempt where kind = ''r'' order by job_id',
	format($$values (%s::bigint, 1::smallint, 'succeeded', null, null::boolean, 'w1'), (%s, 1::smallint, 'released', 'claim_lost', true, 'w1')$$, :one, :two),
	'what was not settled is handed back');
select is(test.state(:two), 'retrying', 'and is owed');
select is((select count(*) from outbox.claim where id = :claim_id), 0::bigint, 'the claim is gone');
select lives_ok(format('select outbox.release_claims(array[%s, 99])', :claim_id), 'releasing it again');
select is((select count(*) from outbox.attempt where job_id = :two), 1::bigint, 'changes nothing');
select is(test.claim('r'), array[:two]::bigint[], 'it is claimed again');

select * from finish();
rollback;
