-- recover, workers_to_watch, collect_claims.
begin;
\ir helpers.psql
select * from no_plan();

create function test.worker(id text) returns void language sql as $$
	select outbox.worker_hello(id, 'host', 1, '1.0', 'default', 30000, '[]', '{}', '{}')
$$;
create function test.ledger(kind text) returns text language sql as $$
	select string_agg(concat_ws(' ', attempt, outcome, code, case when next_at is null then 'over' end), ', ' order by job_id, attempt)
	from outbox.attempt a where a.kind = ledger.kind
$$;

-- ---- RUN-12: everything that a worker held is given back, once

select test.worker('w1'), test.worker('w2') \g /dev/null
select test.enqueue('a') as one, test.enqueue('a') as two, test.enqueue('b') as three, test.enqueue('b') as four \gset
select test.claim('a', 'w1'), test.claim('b', 'w1', 1), test.claim('b', 'w2') \g /dev/null
select (test.settle(:one, 'ok', done => false)).outcome as x \gset
select results_eq($$select job_id, attempt, kind, outcome::text, code, worker, next_at > now() from outbox.recover('w1') order by job_id$$,
	format($$values (%s::bigint, 1::smallint, 'a', 'lost', 'worker_lost', 'w1', true), (%s, 1::smallint, 'b', 'lost', 'worker_lost', 'w1', true)$$, :two, :three),
	'what had not ended is lost');
select is(test.ledger('a'), '1 succeeded over, 1 lost worker_lost', 'what had ended stays');
select is((select error from outbox.attempt where job_id = :two), 'the runner w1 went away', 'the record says which runner');
select results_eq('select worker from outbox.claim', array['w2'], 'its claims are gone, others are not');
select results_eq('select id from outbox.worker', array['w2'], 'it is forgotten');
select is(test.state(:four), 'running', 'the job of the other worker runs');
select results_eq('select job_id, attempt from outbox.ready order by job_id',
	format('values (%s::bigint, 1::smallint), (%s, 1::smallint)', :two, :three), 'both are owed');
select is_empty($$select * from outbox.recover('w1')$$, 'again: nothing');
select is_empty($$select * from outbox.recover('nobody')$$, 'a worker that never was: nothing');
select is((select count(*) from outbox.attempt), 3::bigint, 'nothing was recorded twice');
select is((test.settle(:two, 'ok')).job_id, null, 'a late result of the dead runner changes nothing');

-- ---- claims of a worker that is not registered

select test.sleep('1 h') as x \gset
select test.claim('a', 'ghost') as x \gset
select is((select count(*) from outbox.recover('ghost')), 1::bigint, 'are given back as well');
select is(test.ledger('a'), '1 succeeded over, 1 lost worker_lost, 2 lost worker_lost', 'and charged to the crashes');

-- ---- RUN-11: the third loss in a row is the end; a cancel ends it before

select test.sleep('1 h') as x \gset
select test.claim('a', 'w3') as x \gset
select results_eq($$select outcome::text, code from outbox.recover('w3')$$, $$values ('dead', 'crash_loop')$$, 'the third crash');
select is(test.state(:two), 'dead', 'its job is dead');
select test.enqueue('circles') as id \gset
select test.claim('circles', 'w4') as x \gset
select is(outbox.cancel(:id, 'bob', 'stop'), 'requested', 'a job is cancelled while its runner dies');
select results_eq($$select outcome::text, next_at from outbox.recover('w4')$$, $$values ('cancelled', null::timestamptz)$$, 'it is not owed again');
select results_eq(format('select triggered_by, reason, code from outbox.attempt where job_id = %s', :id), $$values ('bob', 'stop', 'worker_lost')$$, 'and says why');

-- ---- a job that was erased meanwhile

select test.enqueue('erased') as id \gset
select test.claim('erased', 'w5') as x \gset
delete from outbox.job where id = :id;
select is_empty($$select * from outbox.recover('w5')$$, 'nothing to give back');
select is((select count(*) from outbox.claim where worker = 'w5'), 0::bigint, 'the claim is gone');

-- ---- workers_to_watch

select test.claim('b', 'unregistered') as x \gset
select set_eq('select * from outbox.workers_to_watch()', $$values ('w2', 0::bigint, 30000::bigint), ('unregistered', null, 0)$$,
	'registered workers, and those that only a claim names');
select test.enqueue('b') as x, test.enqueue('b') as y, test.enqueue('b') as z \gset
select test.claim('b', 'a', 1), test.claim('b', 'w2', 1), test.claim('b', 'w3', 1) \g /dev/null
select set_eq('select worker from outbox.workers_to_watch() where beat is null', '{a,unregistered,w3}'::text[],
	'before, between and behind the registered ones');

-- ---- collect_claims: claims that are over and that nobody deleted

delete from outbox.claim;
select test.enqueue('c') as one, test.enqueue('c') as two, test.enqueue('c') as three \gset
select test.claim('c', 'w6', 1), test.claim('c', 'w6', 2) \g /dev/null
select (test.settle(:one, 'ok', done => false)).outcome, (test.settle(:two, 'ok', done => false)).outcome \g /dev/null
select is(outbox.collect_claims(), 0, 'not before 10 seconds');
select test.sleep('11 s') as x \gset
select is(outbox.collect_claims(), 1, 'the one that is over');
select results_eq('select ids from outbox.claim', format('select array[%s, %s]::bigint[]', :two, :three), 'the other one is kept');
select (test.settle(:three, 'retry', done => false)).outcome as x \gset
select is(outbox.collect_claims(0), 0, 'at most so many');
select is(outbox.collect_claims(5), 1, 'now it is over');
select test.enqueue('c') as four, test.enqueue('c') as five \gset
select test.claim('c', 'w6', 1), test.claim('c', 'w6', 1) \g /dev/null
select min(id) as first, max(id) as second from outbox.claim \gset
select (test.settle(:four, 'ok', done => false)).outcome \g /dev/null
select test.sleep('11 s') as x \gset
select is((select collected from outbox.collect_claims_after(:first)), 0, 'it looks behind the claim that it is given');
select is((select next_id < :first from outbox.collect_claims_after(0, 0)), true, 'the next look starts before what is left');
select is((select collected from outbox.collect_claims_after(:first - 1)), 1, 'and finds it');
insert into outbox.cancel values (:one, outbox.now(), 'bob'), (:three, outbox.now() - interval '1 h', 'bob'), (1, outbox.now() - interval '1 h', 'bob'),
	(:two, outbox.now() - interval '1 h', 'bob');
select is(outbox.collect_claims(), 0, 'no claims');
select results_eq('select job_id from outbox.cancel order by job_id', format('select unnest(array[%s, %s]::bigint[])', :one, :three),
	'cancels of jobs that have ended go as well: not those of a moment ago, nor of jobs that are owed');

select * from finish();
rollback;
