-- settle: what is recorded, and what changes nothing.
begin;
\ir helpers.psql
select * from no_plan();

-- ---- the row of an attempt

select test.announce('mail') as x \gset
select id from outbox.enqueue('mail', '{}', null, 'forever', 'org1', 'alice', 'req-7', '00-ab') \gset
select count(*) from outbox.claim('w7', 'default', '{mail}', '{1}', 1, 'nudge') \g /dev/null
select results_eq(format($$select job_id, attempt, kind, outcome::text, code, next_at, duration_ms, worker, warning
		from test.settle(%s, 'ok', 'odd', 5000, null, '{"a": 1.0}', true, dropped => 7)$$, :id),
	format($$values (%s::bigint, 1::smallint, 'mail', 'succeeded', null::text, null::timestamptz, 2, 'w7', null::text)$$, :id),
	'what settle answers of a success');
select results_eq(format($$select outcome::text, code, kind, tenant_key, subject_key, correlation_id, traceparent, worker,
		found::text, trigger::text, triggered_by, reason, error, response::text, dropped_bytes, duration_ms, exit_status,
		signal, next_at, finished_at, started_at from outbox.attempt where job_id = %s$$, :id),
	$$values ('succeeded', null::text, 'mail', 'org1', 'alice', 'req-7', '00-ab', 'w7', 'nudge', 'automatic', null::text,
		null::text, null::text, '{"a": 1.0}', 7, 2, 0::smallint, null::smallint, null::timestamptz, now(),
		now() - interval '2 ms')$$, 'what it records');
select is(test.state(:id), 'succeeded', 'its state');

select test.enqueue('mail') as id \gset
select test.claim('mail') as x \gset
select is((test.settle(:id, 'retry', 'exit_3', 60000, 'no route', 'some text', dropped => 0, exit_status => 3, signal => 9)).next_at,
	now() + interval '1 min', 'a failure is owed again');
select results_eq(format($$select outcome::text, code, error, response::text, dropped_bytes, exit_status, signal, next_at
		from outbox.attempt where job_id = %s$$, :id),
	$$values ('failed', 'exit_3', 'no route', '"some text"', null::integer, 3::smallint, 9::smallint, now() + interval '1 min')$$,
	'text is stored as a JSON string, zero dropped bytes as null');
select results_eq(format('select kind, priority, due_at, version, attempt from outbox.ready where job_id = %s', :id),
	$$values ('mail', 2::smallint, now() + interval '1 min', 0, 1::smallint)$$, 'its row in ready');
select is(test.state(:id), 'retrying', 'its state');

select test.enqueue('mail') as id \gset
select test.claim('mail') as x \gset
select is((test.settle(:id, 'fail', 'bounced', 5, 'gone')).code, 'bounced', 'a permanent failure');
select is(test.state(:id), 'dead', 'its state');
select test.enqueue('mail') as id \gset
select test.claim('mail') as x \gset
select is((test.settle(:id, 'cancel', reason => 'unsubscribed')).outcome, 'cancelled', 'a handler cancels');
select is((select reason from outbox.attempt where job_id = :id), 'unsubscribed', 'its reason is kept');
select is(test.state(:id), 'cancelled', 'its state');
select test.enqueue('mail') as id \gset
select test.claim('mail') as x \gset
select is((test.settle(:id, 'release', 'drained')).next_at, now(), 'handed back: due at once');
select is(test.state(:id), 'retrying', 'its state');
select is((select count(*) from outbox.claim), 0::bigint, 'no claim is left');

-- numbers that do not fit, times that are not given

select test.enqueue('mail') as id \gset
select test.claim('mail', most => 2) as x \gset
select is_empty(format($$select s.* from test.place(%1$s) p, outbox.settle(array[p.claim_id], array[p.claim_index], array[%1$s],
	array[p.attempt], '{ok}', '{null}', '{null}', '{null}', '{null}', '{null}', '{null}', '{0}',
	array[9223372036854775807], '{null}', '{0}', '{null}', '{null}', array[9223372036854775807], '{}') s$$, :id),
	'a plain success does not come back');
select results_eq(format('select started_at, duration_ms, dropped_bytes, exit_status from outbox.attempt where job_id = %s', :id),
	'values (null::timestamptz, 2147483647, 2147483647, null::smallint)', 'never started; what does not fit is the most that does');

-- ---- an attempt ends once

create function test.snapshot() returns text language sql as $$
	select md5(concat((select string_agg(a::text, ',' order by a.job_id, a.attempt) from outbox.attempt a),
		(select string_agg(r::text, ',' order by r.job_id) from outbox.ready r),
		(select string_agg(c::text, ',' order by c.id) from outbox.claim c)))
$$;

select test.enqueue('once') as one, test.enqueue('once') as two, test.enqueue('once') as three \gset
select test.claim('once') as x \gset
select test.place(:one) as place1, test.place(:two) as place2, test.place(:three) as place3 \gset
select (test.settle(:one, 'ok', done => false)).outcome as x, (test.settle(:two, 'retry', 'a', done => false)).outcome as y \gset
create table test.as_it_was as select test.snapshot();

-- said once more, because the answer was lost: what it has become
select is((test.settle(:one, 'ok', place => :'place1', done => false)).outcome, 'succeeded', 'a success repeated');
select results_eq(format($$select outcome::text, code, next_at is null from test.settle(%s, 'retry', 'a', place => '%s', done => false)$$,
	:two, :'place2'), $$values ('failed', 'a', false)$$, 'a failure repeated');

select is((test.settle(r.job, r.outcome, place => r.place::test.place, done => false, began_us => outbox.clock_us() - 3000)).job_id,
	null, r.label)
from (values
	(:one, 'ok', :'place1', 'a success after a success'),
	(:one, 'retry', :'place1', 'a failure after a success'),
	(:one, 'fail', :'place1', 'a death after a success'),
	(:two, 'ok', :'place2', 'a success after a failure'),
	(:two, 'retry', :'place2', 'a failure after a failure'),
	(:two, 'lost', :'place2', 'a loss after a failure'),
	(:three, 'ok', :'place1', 'the place of another job'),
	(:one, 'ok', :'place3', 'another job in the place of this one'),
	(:three, 'ok', '(999999999,3,1)', 'a claim that never was'),
	(:three, 'ok', format('(%s,3,2)', (:'place3'::test.place).claim_id), 'another attempt'),
	(:three, 'ok', format('(%s,0,1)', (:'place3'::test.place).claim_id), 'index 0'),
	(:three, 'ok', format('(%s,4,1)', (:'place3'::test.place).claim_id), 'an index past the end'),
	(:three, 'ok', format('(%s,-3,1)', (:'place3'::test.place).claim_id), 'a negative index'),
	(:three, 'ok', format('(%s,,1)', (:'place3'::test.place).claim_id), 'no index'),
	(:three, 'ok', '(,3,1)', 'no claim'),
	(1, 'ok', :'place3', 'a job that never was'),
	(:three, 'retry', :'place1', 'a failure in the place of another job'),
	(:three, 'fail', format('(%s,3,2)', (:'place3'::test.place).claim_id), 'of another attempt'),
	(:three, 'release', format('(%s,4,1)', (:'place3'::test.place).claim_id), 'with an index past the end')
) r (job, outcome, place, label);
select is(test.snapshot(), (select * from test.as_it_was), 'none of these changed anything');

-- a late result for an attempt that was handed back and claimed again

select test.enqueue('late') as id \gset
select test.claim('late') as x \gset
select test.place(:id) as first \gset
select lives_ok(format('select outbox.release_claims(array[%s])', (:'first'::test.place).claim_id), 'handed back');
select is(test.claim('late'), array[:id]::bigint[], 'claimed again');
select is((test.settle(:id, 'ok', place => :'first')).job_id, null, 'the result of the first attempt comes late');
select is(test.state(:id), 'running', 'and changes nothing');
select is((test.settle(:id, 'ok')).attempt, 2::smallint, 'the second one is accepted');

-- ---- batches

-- Settles all in flight of a kind; outcomes by place, the rest "ok". What has become of them,
-- in order.
create function test.settle_all(kind text, outcomes text[] default '{}', times integer default 1, done boolean default true)
	returns text language sql as $$
	with flight as (
		select c.id as claim, u.n::integer as place, u.job_id, u.attempt, coalesce(outcomes[u.n], 'ok') as outcome
		from outbox.claim c cross join unnest(c.ids, c.attempts) with ordinality u (job_id, attempt, n)
		cross join generate_series(1, times)
		where c.kind = settle_all.kind
	), arrays as (
		select array_agg(claim order by random) as c, array_agg(place order by random) as p,
			array_agg(job_id order by random) as j, array_agg(attempt order by random) as a,
			array_agg(outcome order by random) as o, array_agg(null::text) as t, array_agg(null::bigint) as b,
			array_agg(0) as i, array_agg(0::bigint) as z, array_agg(false) as f, count(*)
		from (select *, random() from flight) s
	), answers as (
		select s.* from arrays, outbox.settle(c, p, j, a, o, t, t, t, f, b, t, z, z, i, i, t, t, z,
			case when done then c else '{}' end) s)
	select string_agg(ended.outcome, ' ' order by ended.job_id, ended.outcome = 'refused')
	from (
		select job_id, coalesce(outcome::text, 'refused') as outcome from answers
		union all
		select job_id, 'succeeded' from flight where job_id not in (select job_id from answers)) ended
$$;
select count(*) from outbox.enqueue_many('{batch}', array_fill('{}'::text, array[5])) \g /dev/null
select test.claim('batch') as x \gset
select is(test.settle_all('batch', '{ok,retry,ok,fail}', done => false), 'succeeded failed succeeded dead succeeded', 'a mixed batch');
select is(test.settle_all('batch', '{ok,retry,ok,fail}', done => false), 'refused refused refused refused refused', 'the same again');
select is((select count(*) from outbox.attempt where kind = 'batch'), 5::bigint, 'is nothing new');
select is((select count(*) from outbox.ready where kind = 'batch'), 1::bigint, 'nor is anything owed twice');
select count(*) from outbox.enqueue_many('{twice}', array_fill('{}'::text, array[3])) \g /dev/null
select test.claim('twice') as x \gset
select is(test.settle_all('twice', times => 2), 'succeeded refused succeeded refused succeeded refused', 'each result twice in one batch');
select count(*) from outbox.enqueue_many('{partly}', array_fill('{}'::text, array[3])) \g /dev/null
select (test.claim('partly'))[2] as id \gset
select (test.settle(:id, 'ok', done => false)).outcome as x \gset
select is(test.settle_all('partly'), 'succeeded refused succeeded', 'one of three was settled before: the two others are');
select is((select count(*) from outbox.claim where kind = 'partly'), 0::bigint, 'and the claim is over');
select is((select count(*) from outbox.settle('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
	'{}', '{}', '{}', '{}', '{}', '{}')), 0::bigint, 'an empty batch');

-- ---- done_claims: a claim is only deleted when it is over

select test.enqueue('done') as one, test.enqueue('done') as two \gset
select test.claim('done') as x \gset
select (test.settle(:one, 'ok')).outcome as x \gset
select is((select count(*) from outbox.claim where kind = 'done'), 1::bigint, 'a claim that the settler took for done is kept');
select is(test.state(:two), 'running', 'its other job runs');
select (test.settle(:two, 'retry')).outcome as x \gset
select is((select count(*) from outbox.claim where kind = 'done'), 0::bigint, 'when all its attempts have ended it is deleted');
select test.enqueue('done') as three \gset
select test.claim('done') as x \gset
delete from outbox.job where id = :three;
select is((test.settle(:three, 'ok')).job_id, null, 'the result of a job that was erased');
select is((select count(*) from outbox.claim where kind = 'done'), 0::bigint, 'its claim is over');
select is((select count(*) from outbox.attempt where job_id = :three), 0::bigint, 'and leaves no history');

-- ---- poison: the caller finds it by splitting the batch

select test.enqueue('poison') as id \gset
select test.claim('poison') as x \gset
select throws_ok(format($$select test.settle(%s, 'ok', response => '{', is_json => true)$$, :id), '22P02', null, 'a response that is no JSON');
select throws_ok(format($$select test.settle(%s, 'retry', response => '{', is_json => true)$$, :id), '22P02', null, 'of a failure');
select throws_ok(format($$select test.settle(%s, 'odd')$$, :id), '22023', 'outcome ''odd'' is not known', 'an unknown outcome');
select is(test.state(:id), 'running', 'it is still in flight');
select is((test.settle(:id, 'retry', 'settle_failed')).code, 'settle_failed', 'and can be settled as failed');

-- ---- SET-08: cancels that were asked for meanwhile

create function test.cancelled(kind text, result text, others boolean default false) returns text language plpgsql as $$
declare
	id constant bigint := test.enqueue(kind);
	answer outbox.settled;
	a outbox.attempt;
begin
	perform test.claim(kind);
	perform outbox.cancel(id, 'bob', 'not wanted');
	answer := test.settle(id, result, 'code', 60000);
	select * into a from outbox.attempt t where t.job_id = id;
	return concat_ws(', ', a.outcome, a.code, a.triggered_by, a.reason, a.next_at is not null or answer.next_at is not null,
		test.state(id), (select count(*) from outbox.cancel c where c.job_id = id));
end $$;
select is(test.cancelled('c.' || r.result, r.result), r.said, 'cancel requested, then ' || r.result)
from (values
	('ok', 'succeeded, cancel requested by bob: not wanted, f, succeeded, 0'),
	('retry', 'cancelled, code, bob, not wanted, f, cancelled, 0'),
	('fail', 'dead, code, cancel requested by bob: not wanted, f, dead, 0'),
	('cancel', 'cancelled, code, bob, not wanted, f, cancelled, 0'),
	('lost', 'cancelled, code, bob, not wanted, f, cancelled, 0'),
	('release', 'cancelled, code, bob, not wanted, f, cancelled, 0')) r (result, said);
select is(test.state(id), 'cancelled', 'no further attempt is owed') from outbox.job where kind = 'c.retry';
select is((select count(*) from outbox.ready where kind like 'c.%'), 0::bigint, 'nothing is owed');
-- a cancel of one job does not stop others from being settled in one statement
select test.enqueue('c.other') as other, test.enqueue('c.this') as this \gset
select test.claim('c.other') as x, test.claim('c.this') as y, outbox.cancel(:this) as z \gset
select is((test.settle(:other, 'ok')).outcome, 'succeeded', 'another job');
select is((select count(*) from outbox.cancel), 1::bigint, 'leaves the cancel alone');

-- ---- who asked: a replay's first attempt is manual

select test.enqueue('manual') as id \gset
select (test.run(:id, 'fail')).outcome as x, outbox.replay(:id, 'alice', 'once more') as y \gset
select (test.run(:id, 'retry', after_ms => 0)).outcome as x, test.sleep('1 h') as y \gset
select (test.run(:id, 'ok')).outcome as x \gset
select results_eq(format('select attempt, outcome::text, trigger::text, triggered_by, reason from outbox.attempt where job_id = %s order by attempt', :id),
	$$values (1::smallint, 'dead', 'automatic', null::text, null::text), (2::smallint, 'failed', 'manual', 'alice', 'once more'),
		(3::smallint, 'succeeded', 'automatic', null, null)$$, 'a replay');
select test.enqueue('manual') as id \gset
select (test.run(:id, 'fail')).outcome as x, outbox.resend(:id, 1, 'alice', 'again') as y \gset
select (test.run(:id, 'ok')).outcome as x \gset
select is((select trigger || ' ' || triggered_by || ' ' || reason from outbox.attempt where job_id = :id and attempt = 2),
	'manual alice again', 'a success after a resend');

-- A first attempt has one when the job was delayed, and somebody did not want to wait.
select outbox.enqueue('hasty', '{"n":1}', delay => '1 h') as x, test.enqueue('hasty') as other \gset
select id from outbox.job where kind = 'hasty' and id <> :other \gset
select outbox.retry_now(:id, 'carol', 'it is urgent') as x \gset
select results_eq('select job_id, trigger, reason from outbox.claim(''w1'', ''default'', ''{hasty}'', ''{9}'', 9) order by 1',
	format($$values (%s::bigint, 'manual', 'it is urgent'), (%s, 'automatic', null)$$, :id, :other), 'retry-now of a pending job');
select (s.p).claim_id as claim, array_agg((s.p).claim_index) as places, array_agg(j) as jobs
from unnest(array[:id, :other]) j, lateral (select test.place(j) as p) s group by 1 \gset
select is((select count(*) from outbox.settle(array[:claim, :claim], :'places', :'jobs', '{1,1}', '{ok,ok}', null, null, null, null,
	null, null, null, null, null, null, null, null, null, array[:claim])), 1::bigint, 'settled together, one of them by itself');
select results_eq(format('select trigger::text, triggered_by, reason from outbox.attempt where job_id in (%s, %s) order by job_id', :id, :other),
	$$values ('manual', 'carol', 'it is urgent'), ('automatic', null::text, null::text)$$, 'the ledger says who asked and why');
select is((select count(*) from outbox.claim where id = :claim), 0::bigint, 'their claim is over');
select id from outbox.enqueue('hasty', '{}', delay => '1 h') \gset
select outbox.retry_now(:id, 'carol', 'it is urgent') as x, test.run(:id, 'retry') as y \gset
select is((select trigger || ' ' || triggered_by || ' ' || reason from outbox.attempt where job_id = :id), 'manual carol it is urgent', 'a failure');

-- ---- helpers

select is(outbox.time_at(t), e, 'time_at ' || coalesce(t::text, 'null'))
from (values (null::bigint, null::timestamptz), (0, null), (1, timestamptz '1970-01-01 00:00:00.000001+00'),
	(1883211163546781, timestamptz '2029-09-04 10:12:43.546781+00')) c (t, e);
select is(outbox.clamp_int4(v), e, 'clamp_int4 ' || coalesce(v::text, 'null'))
from (values (null::bigint, null::integer), (0, 0), (2147483647, 2147483647), (2147483648, 2147483647), (-5, -5)) c (v, e);

select * from finish();
rollback;
