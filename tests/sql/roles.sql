-- What each role may and may not do; what a handler commits runs with the settler's rights.
begin;
\ir helpers.psql
\ir ../../sql/roles.sql
select plan(89);

-- Runs a statement as a role: "ok", or the SQLSTATE of what it raised.
create function test.try(role text, statement text) returns text language plpgsql as $$
begin
	execute format('set local role %I', role);
	execute statement;
	execute 'reset role';
	return 'ok';
exception when others then
	return sqlstate;
end $$;

create function test.line(statement text) returns text language sql
	as $$ select regexp_replace(statement, '\s+', ' ', 'g') $$;

create function test.may(role text, statement text) returns text language sql
	as $$ select is(test.try(role, statement), 'ok', role || ' may ' || test.line(statement)) $$;

create function test.may_not(role text, statement text) returns text language sql
	as $$ select is(test.try(role, statement), '42501', role || ' may not ' || test.line(statement)) $$;

grant usage on schema test to public;
create role stranger;
create schema app;
create table app.seen (job_id bigint, what text);
create table app.secret (what text);
grant usage on schema app to outbox_worker;
grant insert on app.seen to outbox_worker;

select test.announce('mail', commits => '{
	"note": "insert into app.seen values (1, $1)",
	"leak": "insert into app.secret values ($1)"}') \g /dev/null
select test.enqueue('mail', '{"password": "of somebody else"}') as mail \gset
select test.job_in('dead', 'broken') as dead \gset
select test.job_in('running', 'busy') as busy \gset

-- ---- everybody

select test.may_not('stranger', s) from unnest(array[
	$$select outbox.enqueue('k', '{}')$$,
	'select outbox.schema_version()',
	'select from outbox.jobs']) s;

-- ---- producers

select test.may('outbox_producer', s) from unnest(array[
	$$select outbox.enqueue('k', '{}', dedupe_key => 'a', dedupe => 'until_done')$$,
	$$select outbox.enqueue('k', '{}'::jsonb)$$,
	$$select outbox.enqueue_strict('k', '{}'::json)$$,
	$$select outbox.enqueue_many(array['k'], array['{}', '{}'])$$,
	format('select outbox.fence(%s, 1)', :busy),
	'select outbox.schema_version()']) s;
select is(test.try('outbox_producer', format('select outbox.fence(%s, 2)', :busy)), 'OB001',
	'a fence says no to a producer as to anybody');
select test.may_not('outbox_producer', s) from unnest(array[
	'select payload from outbox.job', 'select from outbox.jobs', 'select from outbox.attempt',
	'select from outbox.ready', 'select from outbox.dedupe', 'select from outbox.kind',
	'select installation from outbox.meta',
	format('select outbox.job_details(%s)', :mail),
	format('select outbox.cancel(%s)', :mail),
	$$select outbox.claim('w', 'default', array['mail'], array[1], 1)$$,
	'delete from outbox.ready',
	$$insert into outbox.job (id, created_at, run_at, priority, kind, payload)
		values (1, now(), now(), 2, 'k', '{}')$$]) s;
select is((select array_agg(distinct p.proname order by p.proname) from pg_proc p
	where p.pronamespace = 'outbox'::regnamespace
		and has_function_privilege('outbox_producer', p.oid, 'execute')),
	array['enqueue', 'enqueue_many', 'enqueue_strict', 'fence', 'schema_version']::name[],
	'these are all functions that a producer may execute');
select is((select array_agg(distinct p.proname order by p.proname) from pg_proc p
	where p.pronamespace = 'outbox'::regnamespace and p.prosecdef),
	array['enqueue', 'enqueue_many', 'fence']::name[],
	'only these run with the rights of the owner');
select is((select count(*) from pg_proc p
	where p.pronamespace = 'outbox'::regnamespace and p.prosecdef
		and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)),
	0::bigint, 'and they fix their search path');

-- ---- the programs

select test.may('outbox_worker', s) from unnest(array[
	$$select outbox.worker_hello('w', 'host', 1, '1', 'default', 1000, '[{"kind": "new"}]', '{}', '{}')$$,
	$$select outbox.worker_beat(array['w'])$$,
	$$select outbox.next_due('default', array['mail'])$$,
	$$select outbox.cancels(array['w'])$$,
	$$select outbox.release_claims(array[1])$$,
	$$select outbox.recover('nobody')$$,
	'select outbox.workers_to_watch()', 'select outbox.collect_claims()',
	'select outbox.retain()', 'select outbox.schedule_fire()',
	$$select outbox.worker_bye('w')$$]) s;
set role outbox_worker;
select test.claim('mail') \g /dev/null
reset role;
select is(outbox.job_state(:mail), 'running', 'a worker claims');
select test.may_not('outbox_worker', s) from unnest(array[
	format('select outbox.replay(%s)', :dead),
	$$update outbox.job set payload = '{}'$$,
	$$update outbox.attempt set outcome = 'succeeded'$$,
	$$insert into outbox.job (id, created_at, run_at, priority, kind, payload)
		values (1, now(), now(), 2, 'k', '{}')$$,
	$$update outbox.retention set succeeded = '1 day'$$,
	$$insert into outbox.hook (transition, function) values ('dead', 'app.f')$$,
	'delete from outbox.meta', 'truncate outbox.ready']) s;

-- ---- a handler's statements: what is not granted fails that attempt, and no other

select test.settle(:mail, 'retry') \g /dev/null
select test.enqueue('mail') as plain \gset
select test.enqueue('mail') as granted \gset
select test.enqueue('mail') as denied \gset
grant execute on all functions in schema test to outbox_worker;
set role outbox_worker;
select test.claim('mail') \g /dev/null
select c.id as claim from outbox.claim c where kind = 'mail' \gset
select s.* into temp settled from outbox.settle(
	array[:claim, :claim, :claim]::bigint[], array[1, 2, 3], array[:plain, :granted, :denied]::bigint[],
	array[1, 1, 1]::smallint[], array['ok', 'ok', 'ok'], null, null, null, null, null, null,
	null, null, null, null,
	array[null, '[{"name": "note", "args": ["hello"]}]', '[{"name": "leak", "args": ["x"]}]'],
	array[null, '[{"kind": "after", "payload": {}}]', null], null, array[:claim]::bigint[]) s;
reset role;
select results_eq('select job_id, outcome::text, code from settled order by job_id',
	format($$values (%s, 'succeeded', null), (%s, 'failed', 'commit_failed')$$, :granted, :denied),
	'a statement without its grant is commit_failed, the other ones settle');
select is(test.state(:plain), 'succeeded', 'as does a result without any');
select is((select array_agg(what) from app.seen), array['hello'], 'the granted statement ran');
select is((select count(*) from app.secret), 0::bigint, 'the other one did not');
select matches((select error from outbox.attempt where job_id = :denied),
	'permission denied for table secret', 'and the attempt says why');
select is((select count(*) from outbox.jobs where kind = 'after'), 1::bigint,
	'a follow-up is enqueued');

-- ---- operators

select test.may('outbox_operator', s) from unnest(array[
	format('select outbox.replay(%s)', :dead),
	format('select outbox.retry_now(%s)', :mail),
	format('select outbox.cancel(%s)', :mail),
	format('select outbox.resend(%s)', :plain),
	$$select outbox.erase_tenant('nobody')$$,
	$$select outbox.enqueue('k', '{}')$$,
	$$update outbox.lane set paused = true where name = 'other'$$,
	$$update outbox.retention set succeeded = '1 day'$$,
	$$select outbox.schedule_set('daily', '@daily', kind => 'k')$$,
	$$insert into outbox.hook (transition, function) values ('dead', 'app.f')$$,
	format('select outbox.job_details(%s)', :mail)]) s;
select test.may_not('outbox_operator', s) from unnest(array[
	$$select outbox.claim('w', 'default', array['k'], array[1], 1)$$,
	$$update outbox.job set payload = '{}'$$,
	$$update outbox.attempt set outcome = 'succeeded'$$,
	$$insert into outbox.job (id, created_at, run_at, priority, kind, payload)
		values (1, now(), now(), 2, 'k', '{}')$$,
	$$update outbox.kind set commits = '{}'$$,
	'delete from outbox.migration']) s;

-- ---- viewers

select test.may('outbox_viewer', s) from unnest(array[
	'select outbox.list_jobs()', 'select from outbox.jobs', 'select outbox.count_jobs()',
	format('select outbox.job_details(%s)', :mail), format('select outbox.job_history(%s)', :mail),
	format('select outbox.explain(%s)', :mail), 'select outbox.backlog()', 'select outbox.stats()',
	'select outbox.schema_version()']) s;
select test.may_not('outbox_viewer', s) from unnest(array[
	$$select outbox.enqueue('k', '{}')$$,
	format('select outbox.cancel(%s)', :mail),
	format('select outbox.replay(%s)', :dead),
	$$update outbox.job set payload = '{}'$$, 'delete from outbox.attempt',
	$$update outbox.lane set paused = false$$]) s;

-- ---- guardrails

create role clerk login;
select outbox.guardrails('clerk', '30 seconds', '2 seconds') \g /dev/null
select is(s.setconfig, array['idle_in_transaction_session_timeout=30000', 'lock_timeout=2000'],
	'a login gets its guardrails, in this database')
from pg_db_role_setting s join pg_roles r on r.oid = s.setrole
join pg_database d on d.oid = s.setdatabase
where r.rolname = 'clerk' and d.datname = current_database();
select ok(not r.rolcanlogin, r.rolname || ' is a group') from pg_roles r where r.rolname ~ '^outbox_';

\ir ../../sql/roles.sql
select pass('the file may be repeated');
select * from finish();
rollback;
