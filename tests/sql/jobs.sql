-- The view outbox.jobs: the state of a job along every path, and what else it shows; ids.
begin;
\ir helpers.psql
select * from no_plan();

-- ---- states along a path: each step by name

create function test.walk(steps text) returns text language plpgsql as $$
declare
	kind constant text := 'walk.' || md5(steps);
	id bigint;
	step text;
	states text[];
begin
	foreach step in array string_to_array(steps, ' ') loop
		case step
			when 'enqueue' then id := test.enqueue(kind);
			when 'delayed' then id := (outbox.enqueue(kind, '{}', delay => '1 day')).id;
			when 'claim' then
				perform test.sleep('1 h');
				perform test.claim(kind);
			when 'cancel' then perform outbox.cancel(id);
			when 'replay' then perform outbox.replay(id);
			when 'resend' then perform outbox.resend(id);
			when 'retry_now' then perform outbox.retry_now(id);
			when 'recover' then perform outbox.recover('w1');
			when 'fence' then perform outbox.fence(id, (test.place(id)).attempt);
			when 'collect' then
				perform test.sleep('1 min');
				perform outbox.collect_claims();
			else perform test.settle(id, step, done => false);
		end case;
		states := states || test.state(id);
	end loop;
	return array_to_string(states, ' ');
end $$;

select is(test.walk(w.steps), w.states, w.steps)
from (values
	('enqueue claim ok collect', 'pending running succeeded succeeded'),
	('delayed retry_now claim ok', 'pending pending running succeeded'),
	('enqueue claim retry claim retry claim ok', 'pending running retrying running retrying running succeeded'),
	('enqueue claim fail collect', 'pending running dead dead'),
	('enqueue claim cancel ok', 'pending running running succeeded'),
	('enqueue claim cancel retry', 'pending running running cancelled'),
	('enqueue claim release claim ok', 'pending running retrying running succeeded'),
	('enqueue claim recover claim recover claim recover', 'pending running retrying running retrying running dead'),
	('enqueue cancel', 'pending cancelled'),
	('delayed cancel replay claim ok', 'pending cancelled retrying running succeeded'),
	('enqueue claim fail replay claim ok', 'pending running dead retrying running succeeded'),
	('enqueue claim ok resend claim ok', 'pending running succeeded retrying running succeeded'),
	('enqueue claim ok resend claim fail replay claim retry retry_now claim ok',
		'pending running succeeded retrying running dead retrying running retrying retrying running succeeded'),
	('enqueue claim ok resend resend cancel', 'pending running succeeded retrying retrying cancelled'),
	('enqueue claim retry retry_now cancel', 'pending running retrying retrying cancelled'),
	('enqueue claim fence ok', 'pending running running succeeded'),
	('enqueue claim fence retry claim fence ok', 'pending running running retrying running running succeeded'),
	('enqueue claim cancel collect retry', 'pending running running running cancelled'),
	('enqueue claim fail replay cancel replay claim ok', 'pending running dead retrying cancelled retrying running succeeded')
) w (steps, states);

-- ---- what the view shows

select id from outbox.enqueue('shown', '{}', null, 'forever', 'org1', 'alice', 'req-7', priority => 3, delay => '1 min') \gset
create function test.shown(id bigint) returns text language sql as $$
	select concat_ws(' ', kind, state, tenant_key, subject_key, correlation_id, attempts, due_at - outbox.now(), code, priority,
		finished_at - outbox.now()) from outbox.jobs j where j.id = shown.id
$$;
select is(test.shown(:id), 'shown pending org1 alice req-7 0 00:01:00 3', 'pending');
select test.sleep('1 h') as x \gset
select test.claim('shown') as x \gset
select is(test.shown(:id), 'shown running org1 alice req-7 0 3', 'running');
select (test.settle(:id, 'retry', 'busy', 60000)).outcome as x \gset
select is(test.shown(:id), 'shown retrying org1 alice req-7 1 00:01:00 busy 3 00:00:00', 'retrying');
select test.sleep('1 h') as x \gset
select (test.run(:id, 'ok')).outcome as x \gset
select is(test.shown(:id), 'shown succeeded org1 alice req-7 2 3 00:00:00', 'succeeded');
select is(test.state(1), null, 'no such job');
select is((select count(*) from outbox.jobs), (select count(*) from outbox.job), 'every job once');

-- ---- ids

select ok(bool_and(later), 'ids grow') from (
	select id > lag(id) over (order by n) as later from (
		select n, outbox.new_id() as id from generate_series(1, 1000) n) i) l;
select ok(outbox.new_id() between outbox.id_at(clock_timestamp() - interval '1 s') and outbox.id_at(clock_timestamp() + interval '1 s'),
	'id_at bounds the ids of an instant');
select ok(outbox.id_at('2248-09-26') > 0, 'there are ids until 2248');

select * from finish();
rollback;
