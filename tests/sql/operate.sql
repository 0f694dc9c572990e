-- cancel, replay, resend, retry_now, many at once, and erasing a tenant.
\set QUIET on
set client_min_messages = warning;
create extension if not exists dblink;
create schema test;

-- Everything due of the kind goes to worker "w".
create function test.claim(kind text) returns bigint language sql
	as $$ select count(*) from outbox.claim('w', 'default', array[kind], array[1000], 1000) $$;

-- Ends the attempt in flight, as outbox.settle says it.
create function test.finish(job_id bigint, outcome text, code text default null)
	returns text language sql
	as $$
	select s.outcome::text from outbox.settle_claimed(outcome, code, null, array(
		select row(c.id, c.worker, c.found, u.job_id, u.attempt)::outbox.claimed
		from outbox.jobs v cross join lateral outbox.claim_of(v.id, v.attempts + 1) c
		cross join unnest(c.ids, c.attempts) u (job_id, attempt)
		where v.id = finish.job_id and u.job_id = v.id and u.attempt = v.attempts + 1)) s
	$$;

create function test.run(job_id bigint, outcome text, code text default null)
	returns text language sql
	as $$ select test.claim((select kind from outbox.job j where j.id = run.job_id));
	select test.finish(run.job_id, run.outcome, run.code) $$;

create function test.state(job_id bigint) returns text language sql
	as $$ select outbox.job_state(job_id) $$;

create function test.other_session(sql text) returns void language sql
	as $$ select dblink_connect('other', format('host=%s port=%s dbname=%s user=%s',
		current_setting('unix_socket_directories'), current_setting('port'),
		current_database(), current_user));
	select dblink_exec('other', 'begin');
	select dblink_send_query('other', sql) $$;

select plan(92);

insert into outbox.kind (name, backoff_ms) values ('six', 0);

-- ---- one job in each state

select id as pending from outbox.enqueue('one', '{}', delay => '1 hour') \gset
select id as retrying from outbox.enqueue('two', '{}') \gset
select id as running from outbox.enqueue('three', '{}') \gset
select id as succeeded from outbox.enqueue('four', '{}') \gset
select id as dead from outbox.enqueue('five', '{}') \gset
select id as cancelled from outbox.enqueue('six', '{}') \gset
select test.run(:retrying, 'retry', 'busy') as x, test.claim('three') as y,
	test.run(:succeeded, 'ok') as z, test.run(:dead, 'fail', 'bounced') as u,
	outbox.cancel(:cancelled) as v \gset

select is(test.state(:pending), 'pending', 'there is a pending job');
select is(test.state(:retrying), 'retrying', 'there is a retrying job');
select is(test.state(:running), 'running', 'there is a running job');
select is(test.state(:succeeded), 'succeeded', 'there is a succeeded job');
select is(test.state(:dead), 'dead', 'there is a dead job');
select is(test.state(:cancelled), 'cancelled', 'there is a cancelled job');

-- ---- refusals (SET-08: what is in flight)

select is(r.status, 'not_found', 'replay of no job') from outbox.replay(1) r;
select is(r.status, 'not_ended', 'replay of a pending job') from outbox.replay(:pending) r;
select is(r.status, 'not_ended', 'replay of a retrying job') from outbox.replay(:retrying) r;
select is(r.status, 'in_flight', 'replay of a running job') from outbox.replay(:running) r;
select is(r.status, 'not_found', 'resend of no job') from outbox.resend(1) r;
select is(r.status, 'in_flight', 'resend of a running job') from outbox.resend(:running) r;
select throws_ok(format('select outbox.resend(%s, 0)', :dead), '22023',
	'attempts 0 must be between 1 and 10000', 'resend of no attempts');
select is(r.status, 'not_found', 'retry_now of no job') from outbox.retry_now(1) r;
select is(r.status, 'in_flight', 'retry_now of a running job') from outbox.retry_now(:running) r;
select is(r.status, 'ended', 'retry_now of a succeeded job') from outbox.retry_now(:succeeded) r;
select is(r.status, 'ended', 'retry_now of a dead job') from outbox.retry_now(:dead) r;
select is(r.status, 'ended', 'retry_now of a cancelled job') from outbox.retry_now(:cancelled) r;
select is((select count(*) from outbox.rearm), 0::bigint, 'a refusal leaves no trace');

begin isolation level repeatable read;
select throws_ok(format('select outbox.replay(%s)', :dead), '25001', null,
	'an old snapshot cannot tell whether the job was rearmed meanwhile');
rollback;

-- ---- replay: a whole fresh budget

select is(r.status, 'rearmed', 'replay of a dead job')
	from outbox.replay(:dead, 'alice', 'the mailbox exists now') r;
select results_eq(format('select action, from_attempt, budget_from, budget, triggered_by, reason
	from outbox.rearm where job_id = %s', :dead),
	$$ values ('replay', 1::smallint, 1::smallint, null::smallint, 'alice',
		'the mailbox exists now') $$, 'it says who, why, and that the budget is anew');
select is(test.state(:dead), 'retrying', 'the job is owed again');
select is(r.status, 'not_ended', 'a second replay') from outbox.replay(:dead) r;
select results_eq($$ select attempt, trigger, reason
	from outbox.claim('w', 'default', '{five}', '{9}', 9) $$,
	$$ values (2::smallint, 'manual', 'the mailbox exists now') $$,
	'the next attempt is a manual one, and due at once');
select is(test.finish(:dead, 'retry', 'busy'), 'failed', 'its first failure is not the last');
select results_eq(format('select trigger::text, triggered_by from outbox.attempt
	where job_id = %s order by attempt', :dead),
	$$ values ('automatic', null), ('manual', 'alice') $$, 'the ledger says who asked');

select is(r.status, 'rearmed', 'replay of a succeeded job') from outbox.replay(:succeeded) r;
select is(triggered_by, session_user::text, 'by nobody else than the session''s user')
	from outbox.rearm where job_id = :succeeded;
select is(test.run(:succeeded, 'ok'), 'succeeded', 'it succeeds again');

-- ---- resend: the granted attempts

select is(r.status, 'rearmed', 'resend of a cancelled job')
	from outbox.resend(:cancelled, 2, 'bob') r;
select is(test.run(:cancelled, 'retry', 'busy'), 'failed', 'the first of two attempts');
select is(test.run(:cancelled, 'retry', 'busy'), 'dead', 'the second one is the last');

select is(r.status, 'rearmed', 'resend of a job that is owed later')
	from outbox.resend(:retrying, 1, 'bob') r;
select is((select count(*) from outbox.ready where job_id = :retrying), 1::bigint,
	'it is owed once');
select is(test.run(:retrying, 'retry', 'busy'), 'dead', 'one attempt was granted');

-- ---- retry_now: the budget goes on

select is(r.status, 'rearmed', 'retry_now of a pending job')
	from outbox.retry_now(:pending, 'carol', 'it is urgent') r;
select is(test.state(:pending), 'pending', 'it stays one without attempts');
select ok(due_at <= now(), 'it is due') from outbox.jobs where id = :pending;
select is(r.status, 'already_due', 'retry_now of a job that is due')
	from outbox.retry_now(:pending) r;
select is((select count(*) from outbox.ready where job_id = :pending), 1::bigint,
	'it is owed once');

select id as budget from outbox.enqueue('seven', '{}', max_attempts => 3) \gset
select test.run(:budget, 'retry', 'busy') as x \gset
select is(r.status, 'rearmed', 'retry_now of a retrying job') from outbox.retry_now(:budget) r;
select is(test.run(:budget, 'retry', 'busy'), 'failed', 'its second failure of three');
select is(r.status, 'rearmed', 'retry_now once more') from outbox.retry_now(:budget) r;
select is(test.run(:budget, 'retry', 'busy'), 'dead', 'its third failure is the last');

select r.status as x from outbox.resend(:budget, 2) r \gset
select test.run(:budget, 'retry', 'busy') as x \gset
select r.status as x from outbox.retry_now(:budget) r \gset
select is(test.run(:budget, 'retry', 'busy'), 'dead',
	'after a resend retry_now goes on with the granted attempts');

-- ---- the last attempt that there is a number for

select id as limited from outbox.enqueue('limit', '{}') \gset
select test.run(:limited, 'fail') as x \gset
update outbox.attempt set attempt = 32766 where job_id = :limited;
select is(r.status, 'rearmed', 'replay after 32766 attempts') from outbox.replay(:limited) r;
select is(test.run(:limited, 'retry'), 'dead', 'attempt 32767 is the last one');
select is(r.status, 'attempt_limit', 'replay after it') from outbox.replay(:limited) r;
select is(r.status, 'attempt_limit', 'resend after it') from outbox.resend(:limited) r;
select is(test.state(:limited), 'dead', 'and it is not owed');

-- ---- cancel

select is(outbox.cancel(1), 'not_found', 'cancel of no job');
select is(outbox.cancel(:dead, 'dave', 'never mind'), 'cancelled', 'cancel of a retrying job');
select is(outbox.cancel(:dead), 'ended', 'cancel of a cancelled job');
select results_eq(format('select outcome::text, trigger::text, triggered_by, reason
	from outbox.attempt where job_id = %s order by attempt desc limit 1', :dead),
	$$ values ('cancelled', 'manual', 'dave', 'never mind') $$, 'the ledger says who and why');
select is(outbox.cancel(:running, 'dave'), 'requested', 'cancel of a running job');
select is(test.finish(:running, 'ok'), 'succeeded', 'an ok that wins the race stands');

select array_agg(id order by id) as ids from outbox.enqueue_many(array['twelve'],
	array_fill('{}'::text, array[6])) \gset
select test.claim('twelve') as x \gset
select results_eq(format('select status from outbox.act_on_ids(''cancel'', %L, ''dave'')', :'ids'),
	array_fill('requested'::text, array[6]), 'cancel of six running jobs');
create table test.ended as
	select i.id, i.said, test.finish(i.id, i.said) as outcome
	from unnest(:'ids'::bigint[], array['ok', 'retry', 'fail', 'cancel', 'lost', 'release'])
		i (id, said);
select results_eq('select said, outcome, test.state(id) from test.ended order by id',
	$$ values ('ok', 'succeeded', 'succeeded'), ('retry', 'cancelled', 'cancelled'),
		('fail', 'dead', 'dead'), ('cancel', 'cancelled', 'cancelled'),
		('lost', 'cancelled', 'cancelled'), ('release', 'cancelled', 'cancelled') $$,
	'whatever a cancelled attempt ends in, the job is not owed again');

-- a cancel that came too late must not meet a later attempt
insert into outbox.cancel values (:running, outbox.now(), 'dave');
select is(r.status, 'rearmed', 'replay of a job with a stale cancel')
	from outbox.replay(:running) r;
select is(test.run(:running, 'retry', 'busy'), 'failed', 'its next failure is not a cancel');

-- ---- tenants: outside of it a job is not found

select id as ours from outbox.enqueue('eight', '{}', tenant_key => 'ours', delay => '1 h') \gset
select id as free from outbox.enqueue('eight', '{}', delay => '1 h') \gset
select is(outbox.cancel(:ours, 'eve', tenant => 'theirs'), 'not_found', 'cancel, other tenant');
select is(outbox.cancel(:ours, 'eve', no_tenant => true), 'not_found', 'cancel, no tenant');
select is(outbox.cancel(:free, 'eve', tenant => 'ours'), 'not_found',
	'cancel of a job without a tenant');
select is(r.status, 'not_found', 'retry_now, other tenant')
	from outbox.retry_now(:ours, tenant => 'theirs') r;
select is(r.status, 'rearmed', 'retry_now, its tenant')
	from outbox.retry_now(:ours, tenant => 'ours') r;
select is(r.status, 'rearmed', 'retry_now, without a tenant')
	from outbox.retry_now(:free, no_tenant => true) r;
select results_eq(format('select status from outbox.act_on_ids(''cancel'', array[%s, %s],
	tenant => ''ours'') order by job_id', :ours, :free), $$ values ('cancelled'), ('not_found') $$,
	'many: each by itself');

-- ---- dedupe keys (ENQ-07)

select id as first from outbox.enqueue('nine', '{}', dedupe_key => 'k', dedupe => 'until_done') \gset
select test.run(:first, 'fail', 'x') as x \gset
select id as second from outbox.enqueue('nine', '{}', dedupe_key => 'k', dedupe => 'until_done') \gset
select results_eq(format('select * from outbox.replay(%s)', :first),
	format('values (''occupied_key'', %s::bigint)', :second),
	'replay into a key that an open job has: refused, naming the job');
select is(test.state(:first), 'dead', 'it stays dead');
select test.run(:second, 'ok') as x \gset
select is(r.status, 'rearmed', 'replay when that job has ended') from outbox.replay(:first) r;
select results_eq($$ select status, id from outbox.enqueue('nine', '{}', dedupe_key => 'k',
	dedupe => 'until_done') $$, format('values (''exists'', %s::bigint)', :first),
	'the key is its own again');
select is(r.status, 'occupied_key', 'now the other one is refused') from outbox.resend(:second) r;
-- ENQ-07: of several, only the one whose key is taken
select array_agg(id order by id) as several from outbox.enqueue_many(array['nine.many'],
	array_fill('{}'::text, array[3]), array['a', 'b', 'c'], 'until_done') \gset
select count(test.run(i, 'fail', 'x')) as x from unnest(:'several'::bigint[]) i \gset
select id as taker from outbox.enqueue('nine.many', '{}', 'b', 'until_done') \gset
select results_eq(format('select status, blocking_id from outbox.act_on_ids(''replay'', %L)
	order by job_id', :'several'),
	format('values (''rearmed'', null::bigint), (''occupied_key'', %s), (''rearmed'', null)', :taker),
	'replaying many');
select test.claim('nine.many') as x \gset
select is((select array_agg(test.state(i) order by i) from unnest(:'several'::bigint[]) i),
	'{running,dead,running}', 'the others run');

-- ---- many

select array_agg(id order by id) as many from outbox.enqueue_many(array['ten'],
	array_fill('{}'::text, array[5])) \gset
select results_eq(format('select job_id, status from outbox.act_on_ids(''cancel'',
	array(select i from unnest(%L::bigint[]) i order by i desc) || 1::bigint) order by 1',
	:'many'),
	format('select 1::bigint, ''not_found'' union all
		select i, ''cancelled'' from unnest(%L::bigint[]) i order by 1', :'many'),
	'each id once, by its order');
select throws_ok($$ select * from outbox.act_on_ids('delete', '{}') $$, '22023', null,
	'an unknown action is refused');
select throws_ok($$ select * from outbox.act_on_matching('replay', null) $$, '22023',
	'state must be named', 'a filter without a state is refused');
select results_eq($$ select status, count(*) from outbox.act_on_matching('replay', 'cancelled',
	kind => 'ten', dry_run => true) group by 1 $$, $$ values ('matched', 5::bigint) $$,
	'a dry run names what matches');
select is(count(*), 5::bigint, 'and does nothing')
	from outbox.list_jobs('cancelled', kind => 'ten');
select cursor as cursor from outbox.act_on_matching('replay', 'cancelled', kind => 'ten',
	max_jobs => 3) with ordinality order by ordinality desc limit 1 \gset
select is(count(*), 3::bigint, 'at most so many') from outbox.list_jobs('retrying', kind => 'ten');
select is(count(*), 2::bigint, 'the cursor goes on') from outbox.act_on_matching('replay',
	'cancelled', kind => 'ten', max_jobs => 3, after => :'cursor');

-- ---- erasing a tenant

create function test.erase(tenant text, batch integer, out erased bigint, out in_flight bigint)
	language plpgsql as $$
declare
	step record;
	place bigint := 0;
begin
	erased := 0;
	in_flight := 0;
	while place is not null loop
		step := outbox.erase_tenant(tenant, batch, place, 'dave');
		erased := erased + step.erased;
		in_flight := in_flight + step.in_flight;
		place := step.next;
	end loop;
end $$;

create function test.traces(tenant text) returns table (name text, rows bigint) language sql
	as $$
	select 'job', count(*) from outbox.job where tenant_key = tenant
	union all select 'attempt', count(*) from outbox.attempt where tenant_key = tenant
	union all select 'dedupe', count(*) from outbox.dedupe where tenant_key = tenant
	$$;

create function test.orphans() returns table (name text, id bigint) language sql
	as $$
	select 'ready', r.job_id from outbox.ready r where not exists (
		select from outbox.job j where j.id = r.job_id)
	union all select 'rearm', r.job_id from outbox.rearm r where not exists (
		select from outbox.job j where j.id = r.job_id)
	union all select 'cancel', r.job_id from outbox.cancel r where not exists (
		select from outbox.job j where j.id = r.job_id)
	$$;

select array_agg(id order by id) as gone from outbox.enqueue_many(array['erase'],
	array_fill('{}'::text, array[10]), tenant_keys => array['leaver'],
	dedupe_keys => array(select 'k' || n from generate_series(1, 10) n)) \gset
select id as stays from outbox.enqueue('erase', '{}', tenant_key => 'stayer',
	dedupe_key => 'k1') \gset
select test.claim('erase') as x, test.finish(:stays, 'fail') as y \gset
create table test.leaving as
	select i.n, i.id, test.finish(i.id, i.said) as outcome
	from unnest(:'gone'::bigint[], array['ok', 'ok', 'ok', 'retry', 'retry', 'fail'])
		with ordinality i (id, said, n) where i.said is not null;
select id as x from outbox.enqueue('erase', '{}', tenant_key => 'leaver', delay => '1 h') \gset
select r.status as x from test.leaving l, outbox.replay(l.id) r where l.n = 1 \gset
insert into outbox.cancel select id, outbox.now(), 'dave' from test.leaving where n = 2;
-- history and keys that have outlived their jobs
insert into outbox.attempt (job_id, attempt, outcome, finished_at, kind, tenant_key)
	values (77, 1, 'succeeded', outbox.now(), 'erase', 'leaver'),
		(78, 1, 'succeeded', outbox.now(), 'erase', 'stayer');
insert into outbox.dedupe select 'leaver', 'old' || n, 77, 'erase' from generate_series(1, 9) n;
insert into outbox.dedupe values ('stayer', 'old', 78, 'erase');

select throws_ok('select outbox.erase_tenant(null)', '22023', null, 'no tenant is refused');
select results_eq($$ select * from test.erase('leaver', 4) $$, $$ values (8::bigint, 4::bigint) $$,
	'jobs in flight are left, all others and the old history are erased');
select is(count(*), 4::bigint, 'those in flight are cancelled') from outbox.cancel c
	where c.cancelled_by = 'dave' and c.reason = 'the tenant is erased';
select test.finish(i, 'retry') as x from unnest(:'gone'::bigint[]) i where test.state(i) = 'running'
	limit 1 \gset
select results_eq($$ select * from test.erase('leaver', 1000) $$,
	$$ values (1::bigint, 3::bigint) $$, 'another one, when it has ended');
select count(test.finish(i, 'ok')) as x from unnest(:'gone'::bigint[]) i
	where test.state(i) = 'running' \gset
select results_eq($$ select * from test.erase('leaver', 1) $$, $$ values (3::bigint, 0::bigint) $$,
	'the last ones');
select results_eq($$ select * from test.traces('leaver') $$,
	$$ values ('job', 0::bigint), ('attempt', 0), ('dedupe', 0) $$, 'nothing is left of them');
select results_eq($$ select * from test.traces('stayer') $$,
	$$ values ('job', 1::bigint), ('attempt', 2), ('dedupe', 2) $$, 'nobody else lost anything');
select is_empty('select * from test.orphans()', 'no rows of erased jobs are left elsewhere');

-- ---- two sessions (SET-08)

select id as contested from outbox.enqueue('eleven', '{}') \gset
select test.run(:contested, 'fail') as x \gset
begin;
select r.status as x from outbox.replay(:contested) r \gset
select test.other_session(format('select status from outbox.replay(%s)', :contested)) as x \gset
commit;
select is(status, 'not_ended', 'of two operators at once the second is refused')
	from dblink_get_result('other') r (status text);
select is((select count(*) from outbox.ready where job_id = :contested), 1::bigint,
	'the job is owed once');
select dblink_disconnect('other') as x \gset

select * from finish();
