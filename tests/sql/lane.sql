-- Lanes: pausing, resuming and setting them, what they list, kinds that move between them.
begin;
\ir helpers.psql
select * from no_plan();

create function test.in_lane(lane text, kind text) returns text language sql as $$
	select coalesce(string_agg(c.payload #>> '{}', ' '), '')
	from outbox.claim('w0', lane, array[kind], '{9}', 9) c
$$;
create function test.hello(worker text, lane text, kind text, version integer) returns void
	language sql as $$
	select from outbox.worker_hello(worker, 'host', 1, '1', lane, 30000, json_build_array(
		json_build_object('kind', kind, 'version', version, 'lane', lane)), '{}', '{}')
$$;

-- ---- pausing

select test.enqueue('a', '"a1"') \g /dev/null
select outbox.enqueue('a', '"a2"', delay => '1 h') \g /dev/null
select results_eq($$select name, paused, notify, changed_by, changed_at from outbox.lane_pause('default', 'alice')$$,
	$$values ('default', true, true, 'alice', outbox.now())$$, 'lane_pause says how the lane is now');
select is(test.in_lane('default', 'a'), '', 'nothing is claimed from a paused lane');
select is(outbox.next_due('default', '{a}'), null, 'and nothing is due there');
select isnt(outbox.next_due(null, '{a}'), null, 'it is due all the same');
select test.sleep('1 s') \g /dev/null
select is((outbox.lane_pause('default', 'bob')).changed_by, 'alice', 'pausing it again changes nothing');
select results_eq($$select paused, changed_by, changed_at from outbox.lane_resume('default', 'carol')$$,
	$$values (false, 'carol', outbox.now())$$, 'lane_resume');
select is(test.in_lane('default', 'a'), 'a1', 'and work goes on');
select is((outbox.lane_resume('default')).changed_by, 'carol', 'resuming what is not paused changes nothing');

select is((outbox.lane_pause('new')).changed_by, session_user::text, 'a lane that nobody serves yet can be paused');
select throws_ok($$select outbox.lane_resume('none')$$, '42704', 'there is no lane "none"', 'resuming what is not there');
select throws_ok($$select outbox.lane_pause('No')$$, '22023', 'lane ''No'' must match ^[a-z0-9][a-z0-9._-]{0,99}$', 'a name that is none');
select throws_ok('select outbox.lane_pause(null)', '22023', 'lane NULL must match ^[a-z0-9][a-z0-9._-]{0,99}$', 'no name');

-- ---- notifications on and off

select is((outbox.lane_set('default', false)).notify, false, 'lane_set');
select is((outbox.kind_rules('a')).notify, false, 'enqueue notifies nobody');
select is((outbox.lane_pause('default')).notify, false, 'pausing leaves it');
select is((outbox.lane_set('default', true)).paused, true, 'and it leaves the pause');
select is((outbox.lane_set('quiet', false)).paused, false, 'a lane is made for it');
select outbox.lane_resume('default') \g /dev/null

-- ---- what is listed

select test.announce('mail', lane => 'bulk') \g /dev/null
select test.enqueue('mail') from generate_series(1, 3) \g /dev/null
select test.enqueue('unknown') \g /dev/null
select test.hello('w1', 'bulk', 'mail', 1) \g /dev/null
select test.hello('w2', 'bulk', 'mail', 1) \g /dev/null
select test.hello('late', 'bulk', 'mail', 1) \g /dev/null
update outbox.worker set seen_at = seen_at - interval '1 h' where id = 'late';
select test.hello('w3', 'empty', 'other', 1) \g /dev/null
select is((select count(*) from outbox.claim('w1', 'bulk', '{mail}', '{1}', 1)), 1::bigint, 'one is running');
select results_eq('select lane, paused, notify, kinds, owed, running, workers, complete from outbox.lane_list()',
	$$values ('bulk', false, true, 1::bigint, 2::bigint, 1::bigint, 2::bigint, true),
		('default', false, true, 2, 2, 1, 0, true), ('empty', false, true, 1, 0, 0, 1, true),
		('new', true, true, 0, 0, 0, 0, true), ('quiet', false, false, 0, 0, 0, 0, true)$$, 'lane_list');
select is((select complete from outbox.lane_list(1) where lane = 'bulk'), false, 'counting stops where it is told to');

-- ---- a kind moves while its jobs wait

select test.hello('old', 'default', 'moves', 3) \g /dev/null
select test.enqueue('moves', '"m1"') \g /dev/null
select test.hello('new', 'bulk', 'moves', 4) \g /dev/null
select is(test.in_lane('default', 'moves'), '', 'its old lane has lost it');
select is(outbox.next_due('default', '{moves}'), null, 'and has nothing to wait for');
select is(test.in_lane('bulk', 'moves'), 'm1', 'its new lane has it');
select test.enqueue('moves', '"m2"') \g /dev/null
select test.hello('old', 'default', 'moves', 3) \g /dev/null
select is(test.in_lane('default', 'moves'), '', 'an older runner does not bring it back');
select set_eq($$select * from outbox.kinds_without_runner('bulk')$$, '{}'::text[], 'it has a runner there');
delete from outbox.worker where id = 'new';
select set_eq($$select * from outbox.kinds_without_runner('bulk')$$, '{moves}'::text[], 'a runner of another lane is none');
select test.hello('old', 'default', 'moves', 4) \g /dev/null
select is(test.in_lane('bulk', 'moves'), '', 'of equal versions, the last word counts');
select is(test.in_lane('default', 'moves'), 'm2', 'in both directions');

select * from finish();
rollback;
