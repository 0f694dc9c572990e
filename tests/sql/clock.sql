-- The clock of the outbox: moving it and putting it back; delays. No helpers.psql, which has a
-- clock of its own.
\set QUIET on
set client_min_messages = warning;
create schema test;
select * from no_plan();

create function test.body() returns text language sql stable
	as $$ select p.prosrc from pg_proc p where p.oid = 'outbox.now()'::regprocedure $$;
select test.body() as plain \gset

select is(outbox.now(), now(), 'nobody has moved it');
select is(outbox.clock_offset(), '0'::interval, 'by no offset');

-- ---- moving

prepare ahead as select outbox.now() - now();
execute ahead \g /dev/null
execute ahead \g /dev/null
begin;
select is(outbox.clock_move('90 min'), now() + '90 min', 'clock_move says the new time');
select is(outbox.now(), now() + '90 min', 'which is there at once');
commit;
select is(outbox.now() - now(), '90 min'::interval, 'all sessions see it');
create table test.ahead as execute ahead;
select is((select t::text from test.ahead t), '(01:30:00)', 'plans made before as well');
select is(outbox.clock_us(), (extract(epoch from now()) * 1000000)::bigint + 5400000000, 'clock_us as well');
select outbox.clock_move('1 day 00:00:00.000001') \g /dev/null
select is(outbox.clock_offset(), '25:30:00.000001'::interval, 'moves add up');

-- ---- what is stored is in that time, whatever the zone of the session

set timezone = 'America/New_York';
select outbox.clock_move('1 year') \g /dev/null
select is(extract(epoch from outbox.now() - now())::numeric, 31557600 + 91800.000001, 'a year is 365.25 days');
select id as job from outbox.enqueue('k', '{}') \gset
select cmp_ok((select created_at from outbox.job where id = :job), '>', now() + interval '365 days', 'created_at');
select cmp_ok((select due_at from outbox.ready where job_id = :job), '>', now() + interval '365 days', 'due_at');
select cmp_ok(:job::bigint, '<', outbox.id_at(now() + interval '1 day'), 'ids are in the real time');
select count(*) from outbox.claim('w', 'default', '{k}', '{1}', 1) \g /dev/null
select outbox.recover('w') \g /dev/null
select cmp_ok((select finished_at from outbox.attempt where job_id = :job), '>', now() + interval '365 days', 'finished_at');
reset timezone;

-- ---- back again

select throws_ok('select outbox.clock_move(null)', '22004', 'by must not be null', 'by nothing');
select outbox.clock_move(-outbox.clock_offset()) \g /dev/null
select is(outbox.clock_offset(), '0'::interval, 'put back');
select is(test.body(), :'plain', 'nothing of it is left');
select outbox.clock_move('-1 h') \g /dev/null
select is(outbox.clock_offset(), '-1 h'::interval, 'into the past');
select outbox.clock_move(-outbox.clock_offset()) \g /dev/null

-- ---- only for the owner of the schema

create role visitor;
grant usage on schema outbox, test to visitor;
set role visitor;
select throws_ok($$select outbox.clock_move('1 h')$$, '42501', null, 'nobody else may');
reset role;
grant execute on function outbox.clock_move, outbox.clock_offset, outbox.now to visitor;
set role visitor;
select throws_ok($$select outbox.clock_move('1 h')$$, '42501', null, 'and cannot, whatever is granted');
reset role;

-- ---- delays

create function test.delayed(delay interval) returns interval language plpgsql as $$
declare
	job constant bigint := outbox.enqueue_strict('d', '{}', delay => delay);
begin
	return (select r.due_at - outbox.now() from outbox.ready r where r.job_id = job);
end $$;
select is(test.delayed(d), d, 'a delay of ' || d) from unnest(array['1 us', '1 ms', '1 h']::interval[]) d;
select is(test.delayed('10 years'), outbox.now() + '10 years' - outbox.now(), 'ten years');
select throws_ok($$select outbox.enqueue('d', '{}', delay => '10 years 1 day')$$, '22023', null, 'no longer');

select * from finish();
