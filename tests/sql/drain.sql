-- What `outbox drain` asks: whether there is anything to do, when there is next, how far to skip
-- ahead, and what became of it all. No helpers.psql, which has a clock of its own; moving the
-- clock is rolled back here.
begin;
\set QUIET on
set client_min_messages = warning;
create schema test;
select * from no_plan();

-- An owed job, with so many attempts behind it.
create function test.owe(id bigint, kind text, due_in interval, attempt integer default 0) returns void
	language sql as $$ insert into outbox.ready (kind, priority, due_at, job_id, attempt)
	values (kind, 2, outbox.now() + due_in, id, attempt) $$;
create function test.state(until interval default '-1 s') returns text language sql as $$
	select concat_ws(' ', case when s.is_due then 'due' end, case when s.is_busy then 'busy' end,
		s.next_at - outbox.now())
	from outbox.drain_state('{default,bulk}', '{a,b}', '{1,1}', outbox.now() + until) s $$;

-- ---- drain_state

select is(test.state(), 'busy', 'the runners have not said hello');
select from outbox.worker_hello('w1', 'h', 1, '1', 'default', 1000, '[{"kind":"a","version":1}]', '{}', '{}') \g /dev/null
select is(test.state(), 'busy', 'one of them has');
select from outbox.worker_hello('w2', 'h', 1, '1', 'bulk', 1000, '[{"kind":"b","version":1,"lane":"bulk"}]', '{}', '{}') \g /dev/null
select is(test.state(), '', 'nothing is owed');
select test.owe(1, 'b', '2 h'), test.owe(2, 'nobody', '0 s') \g /dev/null
select is(test.state(), '02:00:00', 'something is, later; other kinds do not count');
select test.owe(3, 'a', '0 s') \g /dev/null
select is(test.state(), 'due busy 00:00:00', 'something is due');
select outbox.lane_pause('default') \g /dev/null
select is(test.state(), '02:00:00', 'but not in a paused lane');
select outbox.lane_resume('default') \g /dev/null
select count(*) from outbox.claim('w1', 'default', '{a}', '{9}', 9) \g /dev/null
select is(test.state(), 'busy 02:00:00', 'something is in flight');
truncate outbox.claim, outbox.ready;
select outbox.schedule_set('s', '* * * * *', 'a') \g /dev/null
update outbox.schedule set next_at = outbox.now() + interval '1 h';
select is(test.state(), '', 'a tick that is not asked for');
select is(test.state('1 h'), '01:00:00', 'one that is');
select outbox.schedule_pause('s') \g /dev/null
select is(test.state('1 h'), '', 'a paused schedule has none');
select outbox.schedule_resume('s') \g /dev/null

select is(outbox.drain_until('90m'), outbox.now() + '90 min', 'until: a span');
select is(outbox.drain_until('2030-01-01Z'), '2030-01-01Z'::timestamptz, 'until: an instant');
select is(outbox.drain_until(null), null, 'until: none');

-- ---- drain_skip: what is due after it, by the names of the jobs

create function test.skip(tick_in interval default '1 y') returns text language plpgsql as $$
declare
	due text;
begin
	update outbox.schedule set next_at = outbox.now() + tick_in;
	perform outbox.drain_skip('{a,b}', s.next_at, 'infinity')
	from outbox.drain_state('{default,bulk}', '{a,b}', '{1,1}', 'infinity') s;
	select concat_ws(' ', string_agg(r.job_id::text, ' ' order by r.due_at),
		(select 'tick' from outbox.schedule s where s.next_at <= outbox.now())) into due
	from outbox.ready r where r.due_at <= outbox.now();
	delete from outbox.ready where due_at <= outbox.now();
	return due;
end $$;

select test.owe(1, 'a', '10 s', 1), test.owe(2, 'b', '11 s', 1), test.owe(3, 'a', '20 s', 2),
	test.owe(4, 'a', '21 s', 1), test.owe(5, 'nobody', '1 s') \g /dev/null
select is(test.skip(), '5 1 2 3', 'retries that wait up to twice as long come along');
select is(test.skip(), '4', 'and the next');
select test.owe(1, 'a', '10 s', 1), test.owe(2, 'b', '12 s'), test.owe(3, 'a', '13 s', 1) \g /dev/null
select is(test.skip(), '1 2', 'unless another job comes between');
select is(test.skip(), '3', 'then they are next');
select test.owe(1, 'a', '10 s', 1), test.owe(2, 'a', '13 s', 1) \g /dev/null
select is(test.skip('12 s'), '1', 'or a tick');
select is(test.skip(), '2', 'then they are next');
insert into outbox.attempt (job_id, attempt, kind, outcome, finished_at) values (1, 1, 'a', 'failed', outbox.now() - interval '59 s');
select test.owe(1, 'a', '1 s', 1), test.owe(2, 'a', '100 s', 1), test.owe(3, 'a', '122 s', 1) \g /dev/null
select is(test.skip(), '1 2', 'a retry has waited since its failure');
select is(test.skip(), '3', 'and not longer');
select test.owe(1, 'a', '10 s'), test.owe(2, 'a', '10 s', 3), test.owe(3, 'a', '11 s') \g /dev/null
select is(test.skip(), '1 2', 'jobs that are no retries wait for their time');
select is(test.skip(), '3', 'each');
select is(test.skip('1 h'), 'tick', 'a tick alone');

-- ---- drain_counts

create function test.attempt(job_id bigint, attempt integer, kind text, outcome outbox.outcome) returns void
	language sql as $$ insert into outbox.attempt (job_id, attempt, kind, outcome, finished_at)
	values (job_id, attempt, kind, outcome, outbox.now()) $$;
truncate outbox.ready, outbox.attempt;
select test.attempt(1, 1, 'a', 'failed'), test.attempt(2, 1, 'a', 'dead') \g /dev/null
select outbox.drain_begin() \g /dev/null
select is_empty('select * from outbox.drain_counts()', 'what was there before does not count');
select test.attempt(1, 2, 'a', 'succeeded'), test.attempt(3, 1, 'a', 'failed'), test.attempt(3, 2, 'a', 'released'),
	test.attempt(3, 3, 'a', 'dead'), test.attempt(4, 1, 'b', 'lost'), test.attempt(4, 2, 'b', 'cancelled') \g /dev/null
select test.owe(5, 'a', '1 h', 1), test.owe(6, 'c', '0 s'), test.owe(7, 'c', '1 h') \g /dev/null
select results_eq('select * from outbox.drain_counts()', $$values ('a', 1::bigint, 1::bigint, 0::bigint,
	1::bigint, 0::bigint, 0::bigint, 3::bigint), ('b', 0, 0, 1, 0, 0, 0, 2), ('c', 0, 0, 0, 0, 2, 1, 0)$$, 'drain_counts');
select is(outbox.drain_most_tried(), 'job 5 of kind "a" has been tried 1 times', 'drain_most_tried');
select outbox.drain_begin() \g /dev/null
select results_eq('select kind, attempts from outbox.drain_counts()', $$values ('a', 0::bigint), ('c', 0)$$, 'a new beginning');

select * from finish();
rollback;
