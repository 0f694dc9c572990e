-- Retention: what goes and when, what never goes, that every step is small, and that walks
-- keep their places.
\set QUIET on
set client_min_messages = warning;
create extension if not exists dblink;
create schema test;
select plan(52);

-- ---- jobs with a past

create function test.old_id(age interval) returns bigint language sql
	as 'select outbox.id_at(now() - age) | nextval(''outbox.job_seq'')';

-- A job that was made `age` ago; its kind is the first word of its name.
create function test.old_job(name text, age interval, run_at timestamptz) returns bigint language sql
as $$
	insert into outbox.job (id, created_at, run_at, priority, kind, correlation_id, payload)
	values (test.old_id(age), now() - age, run_at, 2, split_part(name, ' ', 1), name, '{}') returning id
$$;

-- A job that was made `age` ago and ended `ended` ago in this state, by this many attempts.
create function test.ended(name text, state outbox.outcome, age interval, ended interval,
	attempts integer default 1)
	returns bigint language plpgsql
as $$
declare
	id constant bigint := test.old_job(name, age, now() - age);
begin
	insert into outbox.attempt (job_id, attempt, kind, outcome, finished_at)
	select id, n, split_part(name, ' ', 1),
		case when n = attempts then state else 'failed' end,
		now() - ended - (attempts - n) * interval '1 minute'
	from generate_series(1, attempts) n;
	return id;
end $$;

-- A job that is owed since, or until, due.
create function test.owed(name text, age interval, due interval, attempts integer default 0)
	returns bigint language plpgsql
as $$
declare
	id constant bigint := test.old_job(name, age, now() + due);
begin
	insert into outbox.attempt (job_id, attempt, kind, outcome, finished_at, next_at)
	select id, n, split_part(name, ' ', 1), 'failed', now() - age, now() + due
	from generate_series(1, attempts) n;
	insert into outbox.ready (kind, priority, due_at, job_id, attempt)
	values (split_part(name, ' ', 1), 2, now() + due, id, attempts);
	return id;
end $$;

-- The names of the jobs that are left, and steps until there is nothing more to do.
create function test.left_over() returns text[] language sql
	as 'select coalesce(array_agg(correlation_id order by correlation_id), ''{}'') from outbox.job';

create function test.pass(most integer default 1000) returns text language plpgsql
as $$
declare
	counts jsonb := '{}';
	step record;
	again boolean := true;
begin
	while again loop
		again := false;
		for step in select * from outbox.retain(most) loop
			again := again or step.more;
			if step.deleted > 0 then
				counts := counts || jsonb_build_object(step.what,
					coalesce((counts ->> step.what)::bigint, 0) + step.deleted);
			end if;
		end loop;
	end loop;
	return counts;
end $$;

create function test.new_rounds() returns void language sql
	as 'update outbox.retention_walk set started_at = now() - interval ''2 days''';

-- ---- SWP-03: every state, at its age and past it

select test.ended('k succeeded 6d', 'succeeded', '400 days', '6 days') \g /dev/null
select test.ended('k succeeded 8d', 'succeeded', '400 days', '8 days') \g /dev/null
select test.ended('k succeeded young', 'succeeded', '6 days', '6 days') \g /dev/null
select test.ended('k cancelled 89d', 'cancelled', '400 days', '89 days') \g /dev/null
select test.ended('k cancelled 91d', 'cancelled', '400 days', '91 days') \g /dev/null
select test.ended('k dead 400d', 'dead', '400 days', '400 days') \g /dev/null
select test.owed('k pending', '400 days', '-400 days') \g /dev/null
select test.owed('k pending future', '400 days', '2 years') \g /dev/null
select test.owed('k retrying', '400 days', '-100 days', 3) \g /dev/null
select test.owed('k running', '400 days', '-400 days', 1) as running \gset
delete from outbox.ready where job_id = :running;
insert into outbox.claim (id, claimed_at, found, worker, kind, ids, attempts)
values (1, now() - interval '1 day', 'poll', 'w', 'k', array[:running], array[2]);
select test.ended('k replayed', 'dead', '400 days', '400 days') as replayed \gset
select is((select status from outbox.replay(:replayed)), 'rearmed', 'a dead job is replayed');

select is(test.pass(), '{"cancelled": 1, "succeeded": 1}', 'counts are by state');
select is(test.left_over(), array['k cancelled 89d', 'k dead 400d', 'k pending',
	'k pending future', 'k replayed', 'k retrying', 'k running', 'k succeeded 6d',
	'k succeeded young'], 'succeeded and cancelled go by the end of the last attempt, the others stay');
select is(test.pass(), '{}', 'a second pass finds nothing');
select is((select count(*) from outbox.retain()), 0::bigint, 'and looks at nothing');
select is((select count(*) from outbox.attempt where job_id in (:running, :replayed)), 2::bigint,
	'the attempts of what goes on stay, budgets count them');

-- ---- settings

update outbox.retention set dead = '1 year', succeeded = null;
select test.new_rounds() \g /dev/null
select test.pass() \g /dev/null
select is(test.pass(), '{}', 'a round that is through begins anew');
select ok(not 'k dead 400d' = any (test.left_over()), 'dead goes when it is set');
select ok('k replayed' = any (test.left_over()), 'not when it was sent out again');
update outbox.retention set dead = null, succeeded = '5 days';
select is(test.pass(), '{"succeeded": 2}', 'a new setting begins a walk of its own');
select is((select count(*) from outbox.retention_walk where what = 'dead'), 0::bigint,
	'a walk that nobody asks for is forgotten');

select throws_ok($$update outbox.retention set succeeded = '0'$$, '23514', null,
	'0 is refused');
select throws_ok($$update outbox.retention set dead = '-1 day'$$, '23514', null,
	'a negative time is refused');
select throws_ok($$update outbox.retention set attempts = '1 mon -31 days'$$, '23514', null,
	'a disguised negative time is refused');
select throws_ok($$update outbox.retention set attempts_per_job = 0$$, '23514', null,
	'0 attempts are refused');
select throws_ok($$update outbox.retention set dedupe_keys = '1000 years'$$, '23514', null,
	'what no clock can reach is refused');
select throws_ok($$insert into outbox.retention (one) values (true)$$, '23505', null,
	'there is one row of settings');
select throws_ok(format($$insert into outbox.kind (name, retention) values ('z', %L)$$, r),
	'23514', null, 'kinds: ' || r || ' is refused')
from unnest(array['{"succeeded": 0}', '{"dead": -1}', '{"dead": "7d"}', '{"dead": [5]}',
	'{"pending": 5}', '[]', '{"succeeded": 1e300}']) r;
select lives_ok($$insert into outbox.kind (name, retention)
	values ('z', '{"succeeded": 1, "cancelled": null}')$$, 'a second and for ever are times');
select throws_ok('select outbox.retain(0)', '22023', null, 'a step of nothing is refused');
delete from outbox.kind;
delete from outbox.claim;
delete from outbox.ready;
delete from outbox.job;
delete from outbox.attempt;
update outbox.retention set (succeeded, cancelled, dead) = ('7 days', '90 days', null);

-- ---- kinds

insert into outbox.kind (name, retention) values
	('short', '{"succeeded": 3600, "dead": 86400}'), ('long', '{"succeeded": null}'),
	('same', '{"succeeded": 604800}');
select test.ended(kind || ' ' || state || ' ' || age, state::outbox.outcome, age::interval,
	age::interval)
from unnest(array['short', 'long', 'same', 'unknown']) kind,
	unnest(array['succeeded', 'dead', 'cancelled']) state,
	unnest(array['30m', '2h', '2d', '8d', '200d']) age \g /dev/null
select is(test.pass(), '{"dead": 3, "cancelled": 4, "succeeded": 8}',
	'each kind has its own times');
select is((select array_agg(distinct split_part(n, ' ', 1)) from unnest(test.left_over()) n
	where n ~ 'succeeded (8d|200d)'), array['long'], 'long keeps what succeeded for ever');
select is((select array_agg(n order by n) from unnest(test.left_over()) n where n ~ '^short'),
	array['short cancelled 2d', 'short cancelled 2h', 'short cancelled 30m', 'short cancelled 8d',
	'short dead 2h', 'short dead 30m', 'short succeeded 30m'], 'short keeps little');
select is((select count(*) from unnest(test.left_over()) n where n ~ '^unknown'), 12::bigint,
	'a kind that nobody announced has the usual times');
select is((select count(*) from outbox.attempt where finished_at < now() - interval '30 days'),
	(select count(*) from unnest(test.left_over()) n where n ~ '200d'),
	'of old attempts only those are left whose job is kept');

-- ---- attempts and keys

delete from outbox.job;
delete from outbox.attempt;
delete from outbox.retention_walk;
select test.ended('a dead 40d', 'dead', '50 days', '40 days', 3) as dead \gset
select test.ended('a dead many', 'dead', '2 days', '1 day', 60) as many \gset
select test.ended('a succeeded', 'succeeded', '50 days', '8 days', 3) as history \gset
select test.ended('a succeeded many', 'succeeded', '50 days', '8 days', 60) as long_history \gset
select test.owed('a retrying', '50 days', '1 hour', 60) as retrying \gset
insert into outbox.rearm (job_id, created_at, due_at, action, from_attempt, budget_from, triggered_by)
values (:history, now(), now(), 'resend', 1, 1, 'me');
insert into outbox.cancel (job_id, requested_at, cancelled_by)
values (:history, now(), 'me');
select is(test.pass(), '{"attempts": 2, "succeeded": 2, "attempts_per_job": 10}',
	'attempts are counted for themselves');
select is((select array_agg(attempt order by attempt) from outbox.attempt where job_id = :dead),
	array[3]::smallint[], 'the last attempt of a job that is kept stays');
select is((select array[min(attempt), max(attempt)] from outbox.attempt where job_id = :many),
	array[11, 60]::smallint[], 'the newest 50 stay');
select is((select array_agg(attempt order by attempt) from outbox.attempt where job_id = :history),
	array[1, 2, 3]::smallint[], 'history outlives its job');
select is((select array[min(attempt), max(attempt)] from outbox.attempt where job_id = :long_history),
	array[11, 60]::smallint[], 'the newest 50 of it');
select is((select count(*) from outbox.rearm where job_id = :history)
	+ (select count(*) from outbox.cancel where job_id = :history), 0::bigint,
	'requests go with the job');
select is((select count(*) from outbox.attempt where job_id = :retrying), 60::bigint,
	'the attempts of a job that goes on all stay');
select is((select state from outbox.jobs where id = :dead), 'dead', 'the job is dead as before');

-- a claim that still stands names an attempt that has ended
insert into outbox.claim (id, claimed_at, found, worker, kind, ids, attempts)
values (2, now() - interval '60 days', 'poll', 'w', 'a', array[:history], array[1]);
update outbox.retention set attempts = '1 day';
select is(test.pass(), '{}', 'attempts stay while a claim of their time stands');
delete from outbox.claim;
select test.new_rounds() \g /dev/null
select test.pass() \g /dev/null
select is(test.pass(), '{"attempts": 102}', 'and go when it has gone');
update outbox.retention set attempts = null, attempts_per_job = null;
select is((select count(*) from outbox.retention_due() where what ~ 'attempts'), 0::bigint,
	'null keeps attempts for ever');

insert into outbox.dedupe (tenant_key, key, job_id, kind)
select '', 'gone', test.old_id('50 days'), 'a' union all
select '', 'dead', :dead, 'a' union all
select 't', 'retrying', :retrying, 'a' union all
select 't', 'young', test.old_id('1 day'), 'a';
select is(test.pass(), '{}', 'keys are for ever');
update outbox.retention set dedupe_keys = '30 days';
select is(test.pass(), '{"dedupe_keys": 2}', 'unless set');
select is((select array_agg(key order by key) from outbox.dedupe), array['retrying', 'young'],
	'the key of a job that goes on stays, however old');

-- ---- small steps, and what stays is not seen again

delete from outbox.kind;
delete from outbox.job;
delete from outbox.ready;
delete from outbox.attempt;
delete from outbox.retention_walk;
update outbox.retention set (succeeded, dead, attempts, dedupe_keys)
	= ('7 days', '300 days', '300 days', null);
select count(test.ended('s dead', 'dead', '30 days', '20 days')) from generate_series(1, 250) \g /dev/null
select count(test.ended('s succeeded', 'succeeded', '20 days', '20 days'))
from generate_series(1, 250) \g /dev/null
select results_eq($$select what, deleted, more from outbox.retain(100) order by 1$$,
	$$values ('succeeded', 0::bigint, true)$$, 'a step looks at no more than it may');
select is(test.pass(100), '{"succeeded": 250}', 'further steps go on where it ended');
select is((select count(*) from outbox.job), 250::bigint, 'the others are left');
select test.ended('s succeeded', 'succeeded', '8 days', '8 days') \g /dev/null
select results_eq($$select what, deleted, more from outbox.retain(100)$$,
	$$values ('succeeded', 1::bigint, false)$$, 'what has become old since is all that is seen');
select is((select state from outbox.jobs where kind = 's' limit 1), 'dead', 'dead ones stay');

-- ---- somebody else is at it

select test.ended('s succeeded', 'succeeded', '8 days', '8 days') as locked \gset
select dblink_connect('other', format('host=%s port=%s dbname=%s user=%s',
	current_setting('unix_socket_directories'), current_setting('port'), current_database(),
	current_user)) \g /dev/null
select dblink_exec('other', 'begin') \g /dev/null
select from dblink('other', 'select id from outbox.job where kind = ''s'' and id = ' || :locked
	|| ' for update') l (id bigint) \g /dev/null
select is(test.pass(), '{}', 'a job that somebody operates on is passed over');
select from dblink('other', 'select status from outbox.resend(' || :locked || ')') l (status text)
	\g /dev/null
select dblink_exec('other', 'commit') \g /dev/null
select test.new_rounds() \g /dev/null
select test.pass() \g /dev/null
select test.pass() \g /dev/null
select is(outbox.job_state(:locked), 'retrying', 'and stays when it was sent out again');

select * from finish();
