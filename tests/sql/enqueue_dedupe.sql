-- Dedupe keys (ENQ-07): what enqueue answers when the key is held by a job of each state.
--
--   the key's job is          dedupe => 'forever'             dedupe => 'until_done'
--                             same kind   other kind          same kind   other kind
--   pending (also delayed)    exists      dedupe_conflict     exists      dedupe_conflict
--   retrying                  exists      dedupe_conflict     exists      dedupe_conflict
--   running                   exists      dedupe_conflict     exists      dedupe_conflict
--   succeeded                 exists      dedupe_conflict     created     created
--   dead                      exists      dedupe_conflict     created     created
--   cancelled                 exists      dedupe_conflict     created     created
--   deleted by retention      exists      dedupe_conflict     created     created
--   of another tenant         created     created             created     created
--
-- exists and dedupe_conflict give the id of the key's job. The mode is a matter of the call,
-- not of the key: how the key's job was enqueued does not count. Jobs without a tenant have the keys of a tenant of their own.
begin;
\ir helpers.psql
select * from no_plan();

-- one key for each call that is to be tried
create table test.held as
select a.mode, s.state, a.asked, case a.mode || a.asked
	when 'foreversame' then 'exists' when 'foreverother' then 'dedupe_conflict'
	when 'until_donesame' then s.same else s.other end as answer,
	format('%s.%s.%s', a.mode, s.state, a.asked) as key
from (values ('forever', 'same'), ('forever', 'other'), ('until_done', 'same'), ('until_done', 'other')
) a (mode, asked)
cross join (values
	('pending', 'exists', 'dedupe_conflict'),
	('retrying', 'exists', 'dedupe_conflict'),
	('running', 'exists', 'dedupe_conflict'),
	('succeeded', 'created', 'created'),
	('dead', 'created', 'created'),
	('cancelled', 'created', 'created'),
	('deleted', 'created', 'created')) s (state, same, other);
alter table test.held add id bigint;
update test.held h set id = test.job_in(h.state, h.key, h.key, h.mode, 'org1');

create function test.answer(kind text, key text, mode text, tenant text) returns outbox.enqueue_result
	language sql as $$ select e from outbox.enqueue(kind, '{}', key, mode, tenant) e $$;

-- other tenants first, so that their jobs are there when the key's own tenant asks
select is((test.answer(key, key, mode, 'org2')).status, 'created',
	format('%s, %s: another tenant', mode, state)) from test.held where asked = 'same';
select is((test.answer(key, key, mode, null)).status, 'created',
	format('%s, %s: no tenant', mode, state)) from test.held where asked = 'same';

alter table test.held add got outbox.enqueue_result;
update test.held set got = test.answer(case asked when 'same' then key else 'other' end, key, mode, 'org1');
select is((got).status, answer, format('%s, %s: %s kind', mode, state, asked)) from test.held;
select is_empty($$select * from test.held where answer <> 'created' and (got).id <> id$$,
	'exists and dedupe_conflict name the job of the key');
select is_empty($$select * from test.held where (answer = 'dedupe_conflict') <> ((got).existing_kind is not null)
	or (got).existing_kind <> key$$, 'dedupe_conflict names the kind of the key');
select is_empty($$select * from test.held h join outbox.dedupe d on d.tenant_key = 'org1' and d.key = h.key
	where d.job_id <> (h.got).id or d.kind <> case when (h.asked, h.answer) = ('other', 'created')
	then 'other' else h.key end$$, 'the key belongs to the job that was answered');

-- the mode of the key's own job does not count
select test.job_in('succeeded', 'm1', 'm1', 'forever') as x, test.job_in('succeeded', 'm2', 'm2', 'until_done') as y \gset
select is((test.answer('m1', 'm1', 'until_done', null)).status, 'created', 'until_done takes a key that was taken forever');
select is((test.answer('m2', 'm2', 'forever', null)).status, 'exists', 'forever respects a key that was taken until_done');

-- the tenant '' cannot be named, so it cannot be confused with no tenant
select throws_ok($$select outbox.enqueue('k', '{}', 'key', tenant_key => '')$$, '22023', 'tenant_key must not be empty', 'no empty tenant');

-- within one transaction
select is((test.answer('t', 't', 'until_done', null)).status, 'created', 'until_done: the first of a transaction');
select is((test.answer('t', 't', 'until_done', null)).status, 'exists', 'until_done: the second');

select * from finish();
rollback;
