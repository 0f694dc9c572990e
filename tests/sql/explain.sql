-- explain: each of its answers.
set client_min_messages = warning;
create schema test;

create function test.answers(job_id bigint, tenant text default null, no_tenant boolean default false)
	returns text language sql
	as $$ select string_agg(answer, ' ' order by ordinality)
	from outbox.explain(job_id, tenant, no_tenant) with ordinality $$;

create function test.detail(job_id bigint, answer text) returns text language sql
	as $$ select e.detail from outbox.explain(job_id) e where e.answer = detail.answer $$;

-- A worker whose last beat is so old.
create function test.worker(id text, kinds text[], versions integer[], silent interval default '0',
	lane text default 'default') returns void language sql
	as $$
	insert into outbox.worker (id, host, pid, program_version, lane, lease_ms, kinds, versions,
		started_at, seen_at)
	values (id, 'host-1', 42, '0.1.0', lane, 10000, kinds, versions, now(), now() - silent)
	on conflict (id) do update set seen_at = excluded.seen_at, lane = excluded.lane,
		versions = excluded.versions
	$$;

create function test.finish(job_id bigint, outcome text, code text) returns text language sql
	as $$
	select s.outcome::text from outbox.settle_claimed(outcome, code, 'mailbox full', array(
		select row(c.id, c.worker, c.found, finish.job_id, v.attempts + 1)::outbox.claimed
		from outbox.jobs v cross join lateral outbox.claim_of(v.id, v.attempts + 1) c
		where v.id = finish.job_id)) s
	$$;

select plan(39);

select is(test.answers(1), null, 'no such job: no answer');

-- ---- owed

select id from outbox.enqueue('mail', '{}', tenant_key => 'ours') \gset
select is(test.answers(:id), 'unknown_kind', 'no runner has announced the kind');
select is(test.answers(:id, 'theirs'), null, 'not found by another tenant');
select is(test.answers(:id, no_tenant => true), null, 'not found without a tenant');
select is(test.answers(:id, 'ours'), 'unknown_kind', 'found by its tenant');

insert into outbox.kind (name, timeout_ms, backoff_ms, backoff_max_ms)
	values ('mail', 60000, 3600000, 3600000);
select is(test.answers(:id), 'no_worker', 'the kind is known and no worker has it');
select test.worker('w1', '{other,mail}', '{9,3}', lane => 'bulk') as x \gset
select is(test.answers(:id), 'no_worker', 'a worker of another lane does not help');
select test.worker('w1', '{other,mail}', '{9,3}', '1 min') as x \gset
select is(test.answers(:id), 'claimer_silent', 'there is a worker, but no claimer for it');
select is(at, seen_at, 'at: the last beat') from outbox.explain(:id), outbox.worker;
select test.worker('w1', '{other,mail}', '{9,3}') as x \gset
select is(test.answers(:id), 'waiting', 'nothing is wrong');
select is(test.detail(:id, 'waiting'), '0 due jobs of kind mail come before it', 'it is the first');

select id as second from outbox.enqueue('mail', '{}') \gset
select id as urgent from outbox.enqueue('mail', '{}', priority => 1) \gset
select id as later from outbox.enqueue('mail', '{}', priority => 1, delay => '1 h') \gset
select is(test.detail(:second, 'waiting'), '2 due jobs of kind mail come before it',
	'its place is by priority, then by time; what is not due does not count');
select is(test.detail(:urgent, 'waiting'), '0 due jobs of kind mail come before it',
	'an urgent one passes');
select count(*) as x from outbox.enqueue_many(array['mail'], array_fill('{}'::text, array[1000]),
	priorities => array[1]) \gset
select is(test.detail(:second, 'waiting'), 'at least 1000 due jobs of kind mail come before it',
	'it stops counting');
delete from outbox.ready where job_id not in (:id, :second, :urgent, :later);

select is(test.answers(:later), 'not_due', 'a delayed job');
select is(e.at, j.run_at, 'at: when it is due') from outbox.explain(:later) e, outbox.job j
	where j.id = :later;
select is(test.detail(:later, 'not_due'), 'it was enqueued for later', 'why it is not due');

select id as new from outbox.enqueue('mail', '{}', version => 4) \gset
select is(test.answers(:new), 'no_version', 'the only worker is too old');
select is(test.detail(:new, 'no_version'),
	'it asks for version 4 of its handler, the newest worker has 3', 'both versions are named');
select test.worker('w2', '{mail}', '{4}') as x \gset
select is(test.answers(:new), 'waiting', 'a new worker can take it');
select test.worker('w2', '{mail}', '{4}', '1 min') as x \gset
select is(test.answers(:new), 'no_version', 'not when it has gone silent');

update outbox.lane set paused = true, changed_by = 'alice', changed_at = now();
select is(test.answers(:id), 'lane_paused', 'the lane is paused');
select is(test.detail(:id, 'lane_paused'), 'lane default was paused by alice', 'by whom');
select is(test.answers(:later), 'not_due lane_paused', 'everything in its way is named');
update outbox.lane set paused = false;

-- ---- in flight

select count(*) as x from outbox.claim('w1', 'default', '{mail}', '{2}', 2) \gset
select is(test.answers(:id), 'in_flight', 'a worker has it');
select matches(test.detail(:id, 'in_flight'), '^attempt 1 is with worker w1'
	' \(host host-1, process 42, last beat [0-9]+ s ago\)$', 'which one, where, and its beat');
select outbox.cancel(:id, 'bob', 'a mistake') as x \gset
select is(test.answers(:id), 'in_flight cancel_requested', 'a cancel is on its way');
select is(test.detail(:id, 'cancel_requested'), 'by bob: a mistake', 'by whom and why');
delete from outbox.cancel;
select test.worker('w1', '{other,mail}', '{9,3}', '11 s') as x \gset
select is(test.answers(:id), 'in_flight worker_silent', 'its beats have stopped');
update outbox.claim set claimed_at = now() - interval '71 s';
select is(test.answers(:id), 'in_flight overdue worker_silent', 'its time is over');
delete from outbox.worker where id = 'w1';
select is(test.answers(:id), 'in_flight overdue worker_gone', 'its worker is gone');

-- ---- ended

select test.finish(:id, 'retry', 'busy') as x \gset
select matches(test.answers(:id), '^not_due ', 'a backoff');
select is(test.detail(:id, 'not_due'),
	'attempt 1 ended as failed with code busy and the next one has to wait', 'after what');
select test.finish(:urgent, 'fail', 'bounced') as x \gset
select is(test.answers(:urgent), 'dead', 'it has ended');
select is(test.detail(:urgent, 'dead'), 'attempt 1 ended as dead with code bounced: mailbox full',
	'how');
select test.worker('w3', '{mail}', '{9}') as x, outbox.cancel(:later, 'bob', 'a mistake') as y \gset
select is(test.answers(:later), 'cancelled', 'it was cancelled');
select is(test.detail(:later, 'cancelled'), 'attempt 1 ended as cancelled by bob: a mistake', 'by whom');
select count(*) as x from outbox.claim('w3', 'default', '{mail}', '{9}', 9) \gset
select test.finish(:second, 'ok', null) as x \gset
select is(test.answers(:second), 'succeeded', 'it has succeeded');
delete from outbox.job where id = :urgent;
select is(test.answers(:urgent), 'history_only', 'only its history is left');

select * from finish();
