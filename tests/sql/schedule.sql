-- Schedules: setting, firing, what is missed, failures, clocks. The outbox's clock is a
-- setting here, and the session's zone is New York's, which must not matter.
\set QUIET on
set client_min_messages = warning;
set timezone = 'America/New_York';
create extension if not exists dblink;
create schema test;
create or replace function outbox.now() returns timestamptz language sql stable
	as $$ select current_setting('test.now')::timestamptz $$;

create function test.at(moment timestamptz) returns void language sql
	as $$ select set_config('test.now', moment::text, false) $$;

-- Fires, and says what became of each tick: 'name event 03-29 01:00, ...'.
create function test.fire(most integer default 100) returns text language sql as $$
	select string_agg(concat_ws(' ', e.name, e.event,
		to_char(e.nominal at time zone 'UTC', 'MM-DD HH24:MI')), ', ')
	from outbox.schedule_fire(most) e $$;

create function test.next(name text) returns text language sql as $$
	select to_char(s.next_at at time zone 'UTC', 'MM-DD HH24:MI')
	from outbox.schedules s where s.name = next.name $$;

create function test.job_count(kind text) returns bigint language sql
	as $$ select count(*) from outbox.job j where j.kind = job_count.kind $$;

select plan(99);

-- ---- setting

select test.at('2026-03-01 12:00Z');
select is(outbox.schedule_set('digest', '30 7 * * *', 'email.digest', '{"day": "{{nominal_date}}"}',
	time_zone => 'Europe/Berlin', tenant_key => 'org1', priority => 3, max_attempts => 4),
	'2026-03-02 06:30Z', 'schedule_set returns the next tick');
select is(array(select row(s.kind, s.payload::text, s.gap, s.fold, s.catch_up, s.paused, s.last_at,
		s.changed_by)::text from outbox.schedules s),
	array[row('email.digest', '{"day": "{{nominal_date}}"}', 'after', 'first', 'skip', false,
		null, session_user)::text], 'and keeps what it was given');

select test.at('2026-03-02 06:29Z');
select is(outbox.schedule_set('digest', '30 7 * * *', 'email.digest', '{"day": "{{nominal_date}}"}',
	time_zone => 'Europe/Berlin', tenant_key => 'org1', priority => 3, max_attempts => 5),
	'2026-03-02 06:30Z', 'again, before the tick');
select test.at('2026-03-02 06:30:30Z');
select is(outbox.schedule_set('digest', '30 7 * * *', 'email.digest', '{"day": "{{nominal_date}}"}',
	time_zone => 'Europe/Berlin', tenant_key => 'org1', priority => 3, changed_by => 'alice'),
	'2026-03-02 06:30Z', 'a tick that is due stays due when the timing is not changed');
select is((select row(s.max_attempts, s.changed_by)::text from outbox.schedules s),
	row(null::smallint, 'alice')::text, 'what else has changed is taken over');
select is(outbox.schedule_set('digest', '31 7 * * *', 'email.digest', time_zone => 'Europe/Berlin'),
	'2026-03-02 06:31Z', 'a changed expression counts from now');
select is(outbox.schedule_set('digest', '31 7 * * *', 'email.digest'),
	'2026-03-02 07:31Z', 'a changed zone as well');
select is((select s.payload::text from outbox.schedules s), '{}', 'a payload may be left out');

select throws_matching('select outbox.schedule_set(' || arguments || ')', problem, problem)
from (values
	($$'Digest', '@daily', 'k'$$, 'name ''Digest'' must match'),
	($$null, '@daily', 'k'$$, 'name NULL must match'),
	($$'s', '0 0 31 4 *', 'k'$$, 'no month'),
	($$'s', null, 'k'$$, 'cron'),
	($$'s', '@daily', 'A kind'$$, 'kind ''A kind'' must match'),
	($$'s', '@daily'$$, 'must have a kind or a function'),
	($$'s', '@daily', 'k', function => 'test.fan_out'$$, 'there is no function test.fan_out'),
	($$'s', '@daily', 'k', function => 'outbox.utc_text'$$, 'and not both'),
	($$'s', '@daily', function => 'outbox.utc_text', tenant_key => 't'$$, 'not for a function'),
	($$'s', '@daily', function => 'outbox.utc_text(now()); select 1; --'$$, 'function|syntax|expected'),
	($$'s', '@daily', 'k', gap => 'later'$$, 'gap ''later'''),
	($$'s', '@daily', 'k', fold => null$$, 'fold NULL'),
	($$'s', '@daily', 'k', catch_up => 'some'$$, 'catch_up ''some'''),
	($$'s', '@daily', 'k', catch_up_window => '1 h'$$, 'catch_up_window'),
	($$'s', '@daily', 'k', catch_up => 'all', catch_up_window => '0'$$, 'catch_up_window'),
	($$'s', '@daily', 'k', priority => 5$$, 'priority'),
	($$'s', '@daily', 'k', tenant_key => ''$$, 'tenant_key'),
	($$'s', '@daily', 'k', time_zone => 'Berlin'$$, 'time_zone ''Berlin'' is not known'),
	($$'s', '@daily', 'k', time_zone => null$$, 'time_zone NULL is not known'),
	($$'s', '@daily', 'k', time_zone => 'FOO-3'$$, 'time_zone ''FOO-3'' is not known'),
	($$'s', '@daily', 'k', time_zone => 'CET'$$, 'time_zone "CET" has no daylight saving time')
) t (arguments, problem);

select throws_ok('select ' || call, '42704', 'there is no schedule ''none''', call)
from (values ('outbox.schedule_pause(''none'')'), ('outbox.schedule_resume(''none'')'),
	('outbox.schedule_remove(''none'')'), ('outbox.schedule_run_now(''none'')'),
	('outbox.schedule_next(''none'')')) t (call);
select outbox.schedule_remove('digest');
select is((select count(*) from outbox.schedules), 0::bigint, 'removed');
select is(outbox.schedules_next_due(), null, 'without schedules nothing is due');

-- ---- firing

select test.at('2026-03-28 12:00Z');
select outbox.schedule_set('night', '30 2 * * *', 'report',
	'{"at":"{{nominal}}", "day":"{{nominal_date}}", "x":"{{other}}"}', time_zone => 'Europe/Berlin',
	tenant_key => 'org1', priority => 3, max_attempts => 4);
select is(outbox.schedules_next_due(), '2026-03-29 01:00Z', 'due where the gap ends');
select is(test.fire(), null, 'not before its time');
select test.at('2026-03-29 00:59:59.999Z');
select is(test.fire(), null, 'not a millisecond before');
select test.at('2026-03-29 01:00:00.020Z');
select is(test.fire(), 'night fired 03-29 01:00', 'at its time');
select is(test.fire(), null, 'once');
select is((select row(j.kind, j.payload::text, j.tenant_key, j.priority, j.max_attempts, j.dedupe_key,
		j.run_at = outbox.now())::text from outbox.job j),
	row('report', '{"at":"2026-03-29T01:00:00Z", "day":"2026-03-29", "x":"{{other}}"}', 'org1', 3, 4,
		'schedule:night:2026-03-29T01:00:00Z', true)::text, 'the job');
select is(test.next('night'), '03-30 00:30', 'moved on to the next day');
select is((select last_at from outbox.schedules), '2026-03-29 01:00Z', 'and remembers the last tick');

-- A row that came back from a backup: the key keeps the tick from running twice.
update outbox.schedule set next_at = '2026-03-29 01:00Z';
select is((select row(event, job_id = (select id from outbox.job))::text from outbox.schedule_fire()),
	row('exists', true)::text, 'a tick that had run is told apart');
select is(test.job_count('report'), 1::bigint, 'and runs once');

-- SCH-04: restarted within the minute, neither lost nor doubled.
select test.at('2026-03-30 00:30:59Z');
select is(test.fire(), 'night fired 03-30 00:30', '59 s late');
select is(test.fire(), null, 'and once');

-- SCH-01: every quarter of an hour of a week, three times each.
select test.at('2026-10-20 12:00Z');
select outbox.schedule_remove('night');
select outbox.schedule_set('night', '30 2 * * *', 'report', time_zone => 'Europe/Berlin');
delete from outbox.job;
do $$
begin
	for minute in 0 .. 7 * 96 loop
		perform test.at('2026-10-20 12:00Z'::timestamptz + minute * interval '15 min');
		perform test.fire(), test.fire(), test.fire();
	end loop;
end $$;
select is((select string_agg(dedupe_key, ' ' order by id) from outbox.job), (
	select string_agg(format('schedule:night:2026-10-%sT0%s:30:00Z', day, case when day < 26 then 0 else 1 end),
		' ' order by day) from generate_series(21, 27) day),
	'once a day while the clocks change');

-- ---- SCH-04: missed ticks

create function test.prepare(cron text, catch_up text, catch_up_window interval default null)
	returns void language plpgsql as $$
begin
	delete from outbox.schedule;
	delete from outbox.job;
	delete from outbox.dedupe;
	perform test.at('2026-05-01 00:00Z');
	perform outbox.schedule_set('s', cron, 'missed', catch_up => catch_up,
		catch_up_window => catch_up_window);
end $$;

select test.prepare('30 12 * * *', 'skip');
select test.at('2026-05-01 12:32:00Z');
select is(test.fire(), 's fired 05-01 12:30', 'two minutes late is not missed');
select test.at('2026-05-02 13:30Z');
select is(test.fire(), 's skipped 05-02 12:30', 'an hour late is skipped, and said so');
select is(test.fire(), null, 'once');
select is(test.next('s'), '05-03 12:30', 'then it goes on');

select test.prepare('* * * * *', 'skip');
select test.at('2026-05-01 00:05:30Z');
select is(test.fire(),
	's skipped 05-01 00:01, s skipped 05-01 00:02, s skipped 05-01 00:03, s fired 05-01 00:04, '
	's fired 05-01 00:05', 'of several only the missed ones are skipped');
select test.at('2027-05-01 00:05:30Z');
select is((select row(count(*), min(nominal), max(nominal), max(detail))::text from outbox.schedule_fire()
		where event = 'skipped'),
	row(20, '2026-05-01 00:06Z'::timestamptz, '2026-05-01 00:25Z'::timestamptz,
		'and all others before 2027-05-01T00:04:00Z')::text, 'a year of ticks makes no flood of events');
select is(test.next('s'), '05-01 00:06', 'and is passed over at once');

select test.prepare('0 * * * *', 'latest');
select test.at('2026-05-01 03:30Z');
select is(test.fire(), 's skipped 05-01 01:00, s skipped 05-01 02:00, s fired 05-01 03:00',
	'latest: the newest runs, however late');
select test.at('2026-05-01 04:00:10Z');
select is(test.fire(), 's fired 05-01 04:00', 'latest: in time');
select test.prepare('0 0 1 * *', 'latest');
select test.at('2027-04-15 00:00Z');
select is((select count(*) from outbox.schedule_fire() where event = 'skipped'), 10::bigint,
	'latest: months later');
select is((select last_at from outbox.schedules), '2027-04-01Z', 'latest: the newest');
select test.prepare('0 * * * *', 'latest', '10 min');
select test.at('2026-05-01 02:30Z');
select is(test.fire(), 's skipped 05-01 01:00, s skipped 05-01 02:00', 'latest: not past its window');

select test.prepare('0 * * * *', 'all', '150 min');
select test.at('2026-05-01 04:30Z');
select is(test.fire(),
	's skipped 05-01 01:00, s fired 05-01 02:00, s fired 05-01 03:00, s fired 05-01 04:00',
	'all: all within the window');
select test.at('2026-05-01 07:20Z');
select is(test.fire(2), 's fired 05-01 05:00, s fired 05-01 06:00', 'all: not more than asked for');
select is(outbox.schedules_next_due(), '2026-05-01 07:00Z', 'the rest is due');
select is(test.fire(), 's fired 05-01 07:00', 'and comes next');
select test.prepare('0 0 * * *', 'all');
select test.at('2026-05-04 12:00Z');
select is(test.fire(), 's skipped 05-02 00:00, s skipped 05-03 00:00, s fired 05-04 00:00',
	'all: a day, unless said otherwise');

-- The clock jumps ahead by 26 hours, and back.
select test.prepare('30 12 * * *', 'skip');
select test.at('2026-05-01 12:30:01Z');
select is(test.fire(), 's fired 05-01 12:30', 'before the jump');
select test.at('2026-05-02 14:30Z');
select is(test.fire(), 's skipped 05-02 12:30', 'after the jump ahead');
select test.at('2026-05-01 12:30:02Z');
select is(test.fire(), null, 'the jump back repeats nothing');
select outbox.schedule_set('s', '30 */12 * * *', 'missed');
select is(test.next('s'), '05-02 00:30', 'nor does a change after it');
select is(test.job_count('missed'), 1::bigint, 'one job');

-- ---- paused, resumed, by hand

select test.prepare('0 * * * *', 'all');
select outbox.schedule_pause('s', 'bob');
select is((select row(paused, next_at, changed_by)::text from outbox.schedules),
	row(true, null::timestamptz, 'bob')::text, 'paused');
select is(outbox.schedules_next_due(), null, 'nothing is due');
select test.at('2026-05-01 03:30Z');
select is(test.fire(), null, 'no tick runs');
select outbox.schedule_set('s', '0 * * * *', 'missed', catch_up => 'all');
select is((select paused from outbox.schedules), true, 'setting it again does not resume it');
select is((select array_agg(nominal) from outbox.schedule_next('s', 2)),
	array['2026-05-01 04:00Z', '2026-05-01 05:00Z']::timestamptz[], 'the next ticks of a paused one');
select is(outbox.schedule_resume('s'), '2026-05-01 04:00Z', 'goes on from now');
select is(test.fire(), null, 'what fell into the pause is called off');

select outbox.schedule_run_now('s') as id \gset
select is((select row(payload::text, dedupe_key)::text from outbox.job where id = :id),
	row('{}', null::text)::text, 'run now');
select isnt(outbox.schedule_run_now('s'), :id, 'as often as it is asked for');
select is(test.next('s'), '05-01 04:00', 'beside its ticks');
select outbox.schedule_set('s', '30 2 * * *', 'missed', time_zone => 'Europe/Berlin');
select is((select array_agg(row(nominal, local)::text) from outbox.schedule_next('s', 2)),
	array[row('2026-05-02 00:30Z'::timestamptz, '2026-05-02 02:30'::timestamp)::text,
		row('2026-05-03 00:30Z'::timestamptz, '2026-05-03 02:30'::timestamp)::text],
	'the next ticks, also on the wall clock');

-- ---- functions and failures

create table test.mode (mode text);
insert into test.mode values ('ok');
create table test.target (id integer primary key);
create table test.source (target integer references test.target deferrable initially deferred);
create function test.fan_out(scheduled_at timestamptz) returns integer language plpgsql as $$
declare
	mode text := (select m.mode from test.mode m);
begin
	perform outbox.enqueue('fan.out', format('{"n":%s}', n),
		dedupe_key => format('%s:%s', n, scheduled_at at time zone 'UTC'))
	from generate_series(1, 3) n;
	case mode
		when 'ok' then null;
		when 'raise' then raise exception 'no such customer' using errcode = 'P0001';
		when 'transient' then raise exception 'try again' using errcode = '40001';
		when 'sleep' then perform pg_sleep(60);
		when 'deferred' then insert into test.source values (7);
	end case;
	return 3;
end $$;

delete from outbox.schedule;
select test.at('2026-06-01 00:00Z');
select outbox.schedule_set('a', '0 * * * *', function => 'test.fan_out');
select outbox.schedule_set('b', '0 * * * *', 'beside');
select is((select function from outbox.schedules where name = 'a'), 'test.fan_out', 'its full name');
select test.at('2026-06-01 01:00Z');
select is(test.fire(), 'a fired 06-01 01:00, b fired 06-01 01:00', 'a function');
select is(test.job_count('fan.out'), 3::bigint, 'and its jobs');

update test.mode set mode = 'raise';
select test.at('2026-06-01 02:00Z');
select is((select array_agg(row(name, event, detail)::text) from outbox.schedule_fire()),
	array[row('a', 'failed', 'no such customer (P0001)')::text, row('b', 'fired', null::text)::text],
	'one that fails does not stop others');
select is(test.job_count('fan.out'), 3::bigint, 'nothing of it is left');
select is((select row(next_at, last_at, last_error)::text from outbox.schedules where name = 'a'),
	row('2026-06-01 03:00Z'::timestamptz, '2026-06-01 02:00Z'::timestamptz, 'no such customer (P0001)')::text,
	'and it goes on with the next tick');

update test.mode set mode = 'deferred';
select test.at('2026-06-01 03:00Z');
select is(test.fire(), 'a failed 06-01 03:00, b fired 06-01 03:00', 'what would fail at commit');

update test.mode set mode = 'transient';
select test.at('2026-06-01 04:00Z');
select is(test.fire(), 'a retrying 06-01 04:00, b fired 06-01 04:00', 'what may succeed soon is tried again');
select is(outbox.schedules_next_due(), '2026-06-01 04:00Z', 'and stays due');
update test.mode set mode = 'sleep';
set statement_timeout = '500ms';
select is(test.fire(), 'a retrying 06-01 04:00', 'a statement timeout is one of them');
reset statement_timeout;
update test.mode set mode = 'ok';
select test.at('2026-06-01 04:01:30Z');
select is(test.fire(), 'a fired 06-01 04:00', 'within the tick');
select is((select last_error from outbox.schedules where name = 'a'), null, 'and all is well again');
select is(test.job_count('fan.out'), 6::bigint, 'with its jobs');

update outbox.schedule set time_zone = 'Gone/City' where name = 'a';
select test.at('2026-06-01 05:00Z');
select is(test.fire(), 'a retrying 06-01 05:00, b fired 06-01 05:00', 'a zone that the server has no more');
select outbox.schedule_remove('a');

insert into outbox.kind (name, max_payload_bytes) values ('beside', 1);
select test.at('2026-06-01 06:00Z');
select is((select row(event, detail)::text from outbox.schedule_fire()),
	row('failed', 'payload is 2 bytes long, the limit is 1 for kind "beside" (22023)')::text,
	'a job that is refused');

-- ---- SCH-03: two sweepers: what one has locked, the other leaves alone

select test.at('2026-06-01 07:00Z');
select outbox.schedule_set('c', '0 * * * *', 'beside2');
update outbox.schedule set next_at = outbox.now(), kind = 'beside2';
select dblink_connect('other', format('host=%s port=%s dbname=%s user=%s',
	current_setting('unix_socket_directories'), current_setting('port'), current_database(), current_user));
select dblink_exec('other', 'begin');
select * from dblink('other', $$select name from outbox.schedule where name = 'b' for update$$) t (name text);
select is(test.fire(), 'c fired 06-01 07:00', 'the other one has b');
select dblink_exec('other', 'rollback');
select is(test.fire(), 'b fired 06-01 07:00', 'and gave it back');

select * from finish();
