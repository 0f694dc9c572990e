-- cancel in every state (SET-08), wherever a job stands in ready; cancels. (operate.sql has tenants and
-- many at once, settle.sql what becomes of an attempt that was to be cancelled.)
begin;
\ir helpers.psql
select * from no_plan();

-- ---- what cancel answers, what becomes of the job

create table test.jobs as
select s.state, s.answer, s.after, s.attempts, test.job_in(s.state, 'state.' || s.state) as id
from (values
	('pending', 'cancelled', 'cancelled', 1),
	('retrying', 'cancelled', 'cancelled', 2),
	('running', 'requested', 'running', 0),
	('succeeded', 'ended', 'succeeded', 1),
	('dead', 'ended', 'dead', 1),
	('cancelled', 'ended', 'cancelled', 1)) s (state, answer, after, attempts);
select is(outbox.cancel(id, 'bob', 'not wanted'), answer, 'cancel of a job that is ' || state) from test.jobs;
select is(outbox.cancel(id, 'eve'), case answer when 'requested' then 'requested' else 'ended' end, 'again, ' || state) from test.jobs;
select is(test.state(id), after, state || ', after it') from test.jobs;
select is((select count(*) from outbox.attempt a where a.job_id = id), attempts::bigint, state || ': attempts') from test.jobs;
select is_empty('select from outbox.ready', 'nothing is owed');
select is(outbox.cancel(1), 'not_found', 'no such job');
select results_eq($$select c.job_id, c.cancelled_by, c.reason, c.requested_at from outbox.cancel c$$,
	$$select id, 'bob', 'not wanted', now() from test.jobs where state = 'running'$$, 'the first request stays');
select results_eq($$select a.attempt, a.outcome::text, a.trigger::text, a.triggered_by, a.reason, a.started_at, a.worker, a.next_at, a.finished_at
		from outbox.attempt a join test.jobs j on j.id = a.job_id and j.state = 'retrying' order by a.attempt desc limit 1$$,
	$$values (2::smallint, 'cancelled', 'manual', 'bob', 'not wanted', null::timestamptz, null::text, null::timestamptz, now())$$,
	'the ledger says who, why, and that it was never started');
select is(outbox.cancel((outbox.enqueue('k', '{}', null, 'forever', 'org1', 'alice', 'req', 'trace')).id), 'cancelled', 'without a name');
select results_eq($$select triggered_by, reason, tenant_key, subject_key, correlation_id, traceparent from outbox.attempt where kind = 'k'$$,
	$$values (session_user::text collate "default", null::text, 'org1', 'alice', 'req', 'trace')$$, 'it is the session''s user; tenant and trace are the job''s');

-- ---- it is found wherever it waits

select is(outbox.cancel((outbox.enqueue('k', '{}', priority => p, delay => d)).id), 'cancelled',
	format('priority %s, delay %s', p, d))
from generate_series(1, 4) p, unnest(array['0', '1 day']::interval[]) d;
create table test.waiting as select label, test.enqueue('waiting.' || label) as id
from unnest(array['retry', 'release', 'lost', 'retries', 'replay', 'retry_now', 'retry_now_retry']) label;
create function test.step(label text, id bigint) returns void language plpgsql as $$ begin
	case label
		when 'retry' then perform test.run(id, 'retry', 'x', 60000);
		when 'release' then perform test.run(id, 'release', 'claim_late', 5000);
		when 'lost' then perform test.run(id, 'lost');
		when 'retries' then
			perform test.run(id, 'retry', 'x', 1);
			perform test.sleep('1 min');
			perform test.run(id, 'retry', 'x', 60000);
		when 'replay' then perform test.run(id, 'fail'); perform outbox.replay(id, 'alice');
		when 'retry_now' then perform test.run(id, 'retry', 'x', 60000); perform outbox.retry_now(id, 'alice');
		when 'retry_now_retry' then
			perform test.run(id, 'retry', 'x', 60000);
			perform outbox.retry_now(id, 'alice');
			perform test.run(id, 'retry', 'x', 60000);
	end case;
end $$;
select test.step(label, id) from test.waiting \g /dev/null
select is(outbox.cancel(id), 'cancelled', 'after ' || label) from test.waiting;
select is_empty('select from outbox.ready', 'nothing is owed');

-- ---- cancels: which attempts are to be stopped, of these workers

delete from outbox.cancel;
select test.enqueue('c') as one, test.enqueue('c') as two, test.enqueue('c') as three \gset
select test.claim('c', 'w1', 2), test.claim('c', 'w2', 1) \g /dev/null
select outbox.cancel(:one, 'bob', 'why'), outbox.cancel(:three, 'bob') \g /dev/null
select results_eq($$select * from outbox.cancels('{w1,w2,w3}') order by job_id$$,
	format($$values ('w1', %s::bigint, 1::smallint, 'bob', 'why'), ('w2', %s, 1::smallint, 'bob', null)$$, :one, :three), 'two of three');
select results_eq($$select job_id from outbox.cancels('{w2}')$$, array[:three]::bigint[], 'of one worker');
select is_empty($$select * from outbox.cancels('{}')$$, 'of none');
select (test.settle(:three, 'fail')).outcome as x \gset
select is_empty($$select * from outbox.cancels('{w2}')$$, 'none that has ended');
select (test.settle(:two, 'ok', done => false)).outcome as x \gset
insert into outbox.cancel values (:two, now(), 'bob');
select results_eq($$select job_id from outbox.cancels('{w1}')$$, array[:one]::bigint[], 'not when it came too late either');

select * from finish();
rollback;
