-- What an "ok" does in the settle transaction: commit statements, follow-ups; and hooks.
begin;
\ir helpers.psql
select * from no_plan();

create table test.users (id integer primary key, name text, welcomed boolean not null default false, note jsonb);
insert into test.users values (1, 'ann'), (2, 'bob'), (3, 'o''hara \ "x"');

-- Runs a new job of a kind to its "ok" and says what became of it: outcome, code, error.
create function test.finish(kind text, commits text default null, follow_ups text default null, result text default 'ok')
	returns text language plpgsql as $$
declare
	id constant bigint := test.enqueue(kind);
	a outbox.attempt;
	answer outbox.settled;
begin
	perform test.claim(kind);
	answer := test.settle(id, result, case when result <> 'ok' then 'own' end, commits => commits, follow_ups => follow_ups);
	select * into a from outbox.attempt t where t.job_id = id;
	if (answer.outcome, answer.code, answer.next_at) is distinct from (a.outcome, a.code, a.next_at) then
		raise 'the answer differs from the record';
	end if;
	return concat_ws(' ', a.outcome, a.code, a.error);
end $$;

-- ---- commit statements

select test.announce('commits', commits => '{
	"welcome": "update test.users set welcomed = true where id = $1",
	"rename": "update test.users set name = $2 where id = $1",
	"note": "update test.users set note = $2 where id = $1",
	"by_name": "update test.users set welcomed = true where name = $1",
	"none": "update test.users set welcomed = false",
	"add": "insert into test.users (id, name) values ($1, $2)",
	"call": "select test.finish($1)",
	"final": "update test.users set note = null where id = 3 ;\n",
	"two": "update test.users set welcomed = true; drop table test.users",
	"broken": "update test.nowhere set x = 1",
	"syntax": "update",
	"ddl": "drop table test.users"}') as x \gset
select is(test.finish('commits', '[{"name":"welcome","args":["1"]}]'), 'succeeded', 'a statement');
select ok(welcomed, 'was run') from test.users where id = 1;
select is(test.finish('commits', '[]'), 'succeeded', 'no statement');
select is(test.finish('commits', '[{"name":"none"}]'), 'succeeded', 'without arguments');
select is((select count(*) from test.users where welcomed), 0::bigint, 'was run');
select is(test.finish('commits', '[{"name":"rename","args":["2",null]},{"name":"welcome","args":[2]}]'), 'succeeded', 'two, with null and a number');
select is((select welcomed and name is null from test.users where id = 2), true, 'were run');
select is(test.finish('commits', '[{"name":"by_name","args":["o''hara \\ \"x\""]}]'), 'succeeded', 'quotes and backslashes');
select ok(welcomed, 'are passed as they are') from test.users where id = 3;
select is(test.finish('commits', '[{"name":"rename","args":["2","x''); drop table test.users; --"]}]'), 'succeeded', 'an argument that tries to be SQL');
select is((select name from test.users where id = 2), 'x''); drop table test.users; --', 'is text');
select is(test.finish('commits', '[{"name":"note","args":["2",{"a":[1]}]}]'), 'succeeded', 'an object as an argument');
select is((select note from test.users where id = 2), '{"a": [1]}', 'is JSON text');

select is(test.finish('commits', '[{"name":"final"}]'), 'succeeded', 'a semicolon at the end');

-- failures: the attempt is charged, and nothing of the others stays

select alike(test.finish('commits', '[{"name":"none"},' || c.commits || ']'), 'failed commit_failed commit_failed: ' || c.error, c.commits)
from (values
	('{"name":"missing"}', 'commit statement "missing" is not declared for kind "commits" (42704)'),
	('{"args":[]}', 'commit statement "<NULL>" is not declared for kind "commits" (42704)'),
	('{"name":"add","args":["1","x"]}', 'duplicate key value violates unique constraint "users_pkey" (23505)'),
	('{"name":"welcome","args":["one"]}', '%"one" (22P02)'),
	('{"name":"welcome","args":[]}', '%(42601)'),
	('{"name":"welcome","args":["1","2"]}', '%(42601)'),
	('{"name":"welcome","args":"1"}', '%(22023)'),
	('{"name":"welcome","args":["\u0000"]}', '%(22P05)'),
	('{"name":"broken"}', 'relation "test.nowhere" does not exist (42P01)'),
	('{"name":"two"}', 'commit statement "two" contains a semicolon (42601)'),
	('{"name":"syntax"}', '%(42601)'),
	('{"name":"ddl"}', '%(42601)')
) c (commits, error);
select is((select count(*) from test.users where welcomed), 2::bigint, 'the statement before them was undone');
select alike(test.finish('commits', '{"name":"welcome"}'), 'failed commit_failed %', 'commits that are no array');
select alike(test.finish('commits', '['), 'failed commit_failed %', 'commits that are no JSON');
select is(test.finish('commits', '[{"name":"welcome","args":["1"]}]'), 'succeeded', 'after failures a statement works as before');
select is(test.finish('nobody.announced', '[{"name":"welcome"}]'),
	'failed commit_failed commit_failed: commit statement "welcome" is not declared for kind "nobody.announced" (42704)', 'a kind without statements');
select is((select count(*) from outbox.attempt where code = 'commit_failed' and next_at > now() and outcome = 'failed'),
	(select count(*) from outbox.ready r join outbox.attempt a using (job_id) where a.code = 'commit_failed'), 'they are owed again');
select test.announce('once', '{"max_attempts":1}') as x \gset
select is(test.finish('once', '[{"name":"x"}]'),
	'dead commit_failed commit_failed: commit statement "x" is not declared for kind "once" (42704)', 'a failed commit uses up the budget');
select is(test.finish('commits', '[{"name":"none"}]', null, 'retry'), 'failed own', 'only an ok runs them');
select is((select count(*) from test.users where welcomed), 3::bigint, 'this did not');

-- errors that may go away are for the caller to try again

create function test.raise(code text) returns void language plpgsql as $$ begin raise exception 'not now' using errcode = code; end $$;
select test.announce('raises', commits => '{"raise": "select test.raise($1)"}') as x \gset
select throws_ok(format($$select test.finish('raises', '[{"name":"raise","args":["%s"]}]')$$, code), code, 'not now', code || ' is raised')
from unnest(array['40001', '40P01', '55P03', '53100', '53300', '58030', '57P01', '25006']) code;
select is(test.finish('raises', format('[{"name":"raise","args":["%s"]}]', code)), format('failed commit_failed commit_failed: not now (%s)', code), code || ' is charged')
from unnest(array['P0001', '23503', '42501', '08006', '22012']) code;

-- ---- follow-ups

select test.enqueue('x') as x \gset
select is(test.finish('parent', null, '[{"kind":"child","payload":{"n": 1.0}}]'), 'succeeded', 'a follow-up');
select results_eq($$select payload::text, priority, run_at = now(), tenant_key, dedupe_key from outbox.job where kind = 'child'$$,
	$$values ('{"n": 1.0}', 2::smallint, true, null::text, null::text)$$, 'is a job like any other');
select id from outbox.enqueue('parent', '{}', null, 'forever', 'org1', 'alice', 'req-7', '00-ab') \gset
select test.claim('parent') as x \gset
select is((test.settle(:id, 'ok', follow_ups => '[{"kind":"heir","payload":null},
	{"kind":"full","payload":[" "],"dedupe_key":"k","dedupe":"until_done","tenant_key":"org2","subject_key":"bob","correlation_id":"c",
	"traceparent":"t","delay":"2 min","priority":3,"max_attempts":4,"metadata":{"m": 1},"version":5}]')).outcome, 'succeeded', 'two follow-ups');
select results_eq($$select payload::text, tenant_key, subject_key, correlation_id, traceparent, metadata::text from outbox.job where kind = 'heir'$$,
	$$values ('null', 'org1', 'alice', 'req-7', '00-ab', null::text)$$, 'who asked, and the trace, are those of the job');
select results_eq($$select payload::text, dedupe_key, tenant_key, subject_key, correlation_id, traceparent, run_at - now(), priority, max_attempts, metadata::text, version
		from outbox.job where kind = 'full'$$,
	$$values ('[" "]', 'k', 'org2', 'bob', 'c', 't', interval '2 min', 3::smallint, 4::smallint, '{"m": 1}', 5)$$, 'unless given');
select is(test.finish('parent', null, '[{"kind":"full","payload":1,"dedupe_key":"k","tenant_key":"org2"}]'), 'succeeded', 'a key that is taken already');
select is((select count(*) from outbox.job where kind = 'full'), 1::bigint, 'is no failure and no second job');
select is(test.finish('parent', null, '[{"kind":"child","payload":{"nul":"\u0000"}}]'), 'succeeded', 'the payload of a follow-up is kept');
select is((select payload::text from outbox.job where kind = 'child' order by id desc limit 1), '{"nul":"\u0000"}', 'byte for byte');
select is(test.finish('parent', null, $$[{"kind":"odd","payload":["\ud800\\u0000\\\u0000", "\\\\", 1.0],
	"metadata":{"\udC00": "\u0000"},"dedupe_key":"\u00e9\\u0000","subject_key":"a\tb"}]$$), 'succeeded', 'and so is what else is odd');
select results_eq($$select payload::text, metadata::text, dedupe_key, subject_key from outbox.job where kind = 'odd'$$,
	$$values ('["\ud800\\u0000\\\u0000", "\\\\", 1.0]', '{"\udC00": "\u0000"}', 'é\u0000', e'a\tb')$$, 'but keys are text');

select alike(test.finish('parent', null, '[{"kind":"undone","payload":1},' || c.follow_ups || ']'),
	'failed commit_failed commit_failed: ' || c.error, c.follow_ups)
from (values
	('{"kind":"/","payload":1}', 'kind ''/'' must match % (22023)'),
	('{"payload":1}', 'kind NULL must match % (22023)'),
	('{"kind":"child"}', 'payload must not be null (22023)'),
	('{"kind":"child","payload":1,"priority":9}', 'priority 9 must be between % (22023)'),
	('{"kind":"child","payload":1,"delay":"soon"}', 'invalid input syntax for type interval: "soon" (22007)'),
	('{"kind":"child","payload":1,"dedupe_key":"k","tenant_key":"org2"}', 'dedupe_key "k" belongs to job % of kind "full" (23505)'),
	('{"kind":"child","payload":1,"subject_key":"\u0000"}', 'a follow-up contains \\u0000 or half of a surrogate pair outside its payload (22P05)'),
	('1', '%')
) c (follow_ups, error);
select is((select count(*) from outbox.job where kind = 'undone'), 0::bigint, 'all or none');
select is((select count(*) from outbox.job where kind = 'child'), 2::bigint, 'so far two children');
select is(test.finish('parent', null, '[{"kind":"child","payload":1}]', 'retry'), 'failed own', 'only an ok has them');
select is((select count(*) from outbox.job where kind = 'child'), 2::bigint, 'still two');

-- ---- one that fails does not disturb the rest of its batch

select test.enqueue('commits') as one, test.enqueue('commits') as two, test.enqueue('commits') as three \gset
select test.claim('commits') as x \gset
select claim_id from test.place(:three) \gset
select is((select string_agg(s.outcome::text || coalesce(' ' || s.code, ''), ', ' order by s.job_id)
	from outbox.settle(array_fill(:claim_id::bigint, array[3]), array[1, 2, 3], array[:one, :two, :three]::bigint[], '{1,1,1}', '{ok,ok,ok}',
		'{null,null,null}', '{null,null,null}', '{null,null,null}', '{f,f,f}', '{null,null,null}', '{null,null,null}', '{0,0,0}', '{0,0,0}', '{0,0,0}', '{0,0,0}',
		array['[{"name":"rename","args":["1","one"]}]', '[{"name":"broken"}]', '[{"name":"welcome","args":["1"]}]'], '{null,null,null}', '{0,0,0}', array[:claim_id]) s),
	'succeeded, failed commit_failed, succeeded', 'the second of three');
select is((select name from test.users where id = 1), 'one', 'the statement of the first stays');

-- ---- hooks

create table test.called (n serial, hook text, kind text, job_id bigint, transition text);
create function test.note(job outbox.job, transition text) returns void language sql as
	$$ insert into test.called (hook, kind, job_id, transition) values ('note', job.kind, job.id, transition) $$;
create function test.second(job outbox.job, transition text) returns void language sql as
	$$ insert into test.called (hook, kind, job_id, transition) values ('second', job.kind, job.id, transition) $$;
create function test.fail(job outbox.job, transition text) returns void language plpgsql as
	$$ begin raise exception 'hook refused %', transition; end $$;
create function test.calls() returns text language plpgsql as $$
declare
	said text := (select string_agg(concat_ws(' ', hook, kind, transition), ', ' order by n) from test.called);
begin
	delete from test.called;
	return said;
end $$;

insert into outbox.hook (transition, kind, function) values
	('succeeded', null, 'test.note'), ('retrying', null, 'test.note'), ('dead', null, 'test.note'), ('cancelled', null, 'test.note'),
	('succeeded', 'hooked', 'test.second'), ('succeeded', 'never', 'test.second');
select is(test.finish('hooked'), 'succeeded', 'with hooks');
select is(test.calls(), 'note hooked succeeded, second hooked succeeded', 'both were called, in the order of registration');
select is(test.finish('other', null, null, 'retry'), 'failed own', 'a failure');
select is(test.calls(), 'note other retrying', 'is retrying');
select is(test.finish('other', null, null, 'lost'), 'lost own', 'a crash');
select is(test.calls(), 'note other retrying', 'is retrying as well');
select is(test.finish('other', null, null, 'fail'), 'dead own', 'a death');
select is(test.calls(), 'note other dead', 'is dead');
select is(test.finish('other', null, null, 'cancel'), 'cancelled own', 'a cancel');
select is(test.calls(), 'note other cancelled', 'is cancelled');
select is(test.finish('other', null, null, 'release'), 'released own', 'a release');
select is(test.calls(), null, 'is no transition');
select is(test.finish('hooked', '[{"name":"x"}]'), 'failed commit_failed commit_failed: commit statement "x" is not declared for kind "hooked" (42704)', 'a success withdrawn');
select is(test.calls(), 'note hooked retrying', 'is retrying only');
select is(outbox.cancel(test.enqueue('other')), 'cancelled', 'an operator''s cancel');
select is(test.calls(), 'note other cancelled', 'calls hooks too');

-- a hook that fails withdraws a success; any other end stands

insert into outbox.hook (transition, kind, function) values ('succeeded', 'bad', 'test.fail');
select is(test.finish('bad'), 'failed hook_failed hook_failed: hook refused succeeded (P0001)', 'a hook that fails on a success');
select is(test.calls(), 'note bad retrying', 'nothing of the success stays');
insert into outbox.hook (transition, kind, function)
	select t, 'bad', 'test.fail' from unnest(array['retrying', 'dead', 'cancelled']) t;
select is(test.finish('bad'), e'failed hook_failed hook_failed: hook refused succeeded (P0001)\nhook_failed: hook refused retrying (P0001)',
	'and another that fails on the retry');
select is(test.calls(), null, 'then no hook has had an effect');
select is(test.finish('bad', null, null, r.result), r.said, 'a hook that fails on ' || r.result)
from (values ('retry', 'failed own hook_failed: hook refused retrying (P0001)'), ('fail', 'dead own hook_failed: hook refused dead (P0001)'),
	('cancel', 'cancelled own hook_failed: hook refused cancelled (P0001)'), ('lost', 'lost own hook_failed: hook refused retrying (P0001)'),
	('release', 'released own')) r (result, said);
select throws_ok($$select outbox.cancel(test.enqueue('bad'))$$, 'P0001', 'hook refused cancelled', 'an operator sees it');
insert into outbox.hook (transition, kind, function) values ('succeeded', 'gone', 'test.no_such_function');
select alike(test.finish('gone'), 'failed hook_failed hook_failed: function "test.no_such_function" does not exist (42883)', 'a hook that is not there');
insert into outbox.hook (transition, kind, function) values ('succeeded', 'evil', 'test.note(null, null); drop table test.users; --');
select alike(test.finish('evil'), 'failed hook_failed %', 'a hook that tries to be SQL');
select has_table('test', 'users', 'is not');

-- a result that cannot be recorded is raised, and not taken for a repeated one

select test.enqueue('hooked') as id \gset
select test.claim('hooked') as x \gset
select throws_ok(format($$select test.settle(%s, 'ok', response => '{', is_json => true)$$, :id), '22P02', null, 'with hooks as without');
select is(test.state(:id), 'running', 'it is still in flight');

select * from finish();
rollback;
