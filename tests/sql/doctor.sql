-- doctor: each check finds what it is there for. Times are too long to wait for: rows are made
-- that old, or grades are asked for by themselves.
begin;
\ir helpers.psql
create extension dblink;
select plan(27);

create function test.finds("check" text, severity text, pattern text) returns text language sql
	as $$ select is((select array[d.severity, case when d.detail ~ pattern then pattern else d.detail end]
		from outbox.doctor() d where d."check" = finds."check"),
		array[finds.severity, pattern], format('%s: %s, %s', finds."check", finds.severity, pattern)) $$;

select is(outbox.graded(null, 1, 2), 'ok', 'nothing is ok');
select is(array(select outbox.graded(n, 1, 2) from generate_series(0, 2) n),
	array['ok', 'warning', 'critical'], 'grades');
select results_eq($$select distinct severity from outbox.doctor() where "check" not in
	('programs', 'listener')$$, array['ok'], 'an empty outbox is well');

-- ---- work (DEP-02: kinds that nobody serves)

select test.enqueue('mail') \g /dev/null
select test.finds('overdue', 'ok', 'of kind mail, has waited for 00:0');
select test.finds('kinds', 'warning', 'no live worker has a handler: mail$');
select test.finds('workers', 'critical', '^0 alive$');
insert into outbox.worker (id, host, pid, program_version, lane, lease_ms, kinds, versions, started_at, seen_at)
values ('here', 'h', 1, '1', 'default', 30000, '{mail}', '{0}', now(), now()),
	('gone', 'h', 2, '1', 'default', 30000, '{mail}', '{0}', now(), now() - interval '10 minutes');
select test.finds('kinds', 'ok', 'has a worker');
select test.finds('workers', 'warning', '^1 alive, the last beat 00:00:0.* ago; silent past their lease: gone for 00:10:0');
delete from outbox.worker where id = 'gone';
select test.finds('workers', 'ok', '^1 alive');
update outbox.ready set due_at = due_at - interval '10 minutes';
select test.finds('overdue', 'warning', 'has waited for 00:10:0');
update outbox.ready set due_at = due_at - interval '1 hour';
select test.finds('overdue', 'critical', 'has waited for 01:10:0');
update outbox.lane set paused = true, changed_by = 'alice' where name = 'default';
select test.finds('lanes', 'warning', 'lane default is paused by alice');
select test.finds('overdue', 'ok', 'no job is due');
update outbox.ready set due_at = now() + interval '1 day';
update outbox.lane set paused = false;
select test.finds('overdue', 'ok', 'no job is due');

-- ---- sessions

select test.finds('listener', 'warning', 'none is connected');
select dblink_connect(name, format('host=%s port=%s dbname=%s user=%s application_name=%s',
	current_setting('unix_socket_directories'), current_setting('port'), current_database(),
	current_user, name))
from unnest(array['outbox-listen', 'outbox-claim', 'outbox-settle', 'outbox-sweep', 'report']) name \g /dev/null
select dblink_exec('outbox-listen', 'notify outbox_ping_x') \g /dev/null
select pg_stat_clear_snapshot() \g /dev/null
select test.finds('listener', 'ok', 'tried itself 00:00:0');
select test.finds('programs', 'ok', 'outbox-claim: 1 sessions, outbox-settle: 1 sessions');
select dblink_exec('report', 'begin isolation level repeatable read') \g /dev/null
select from dblink('report', 'select 1') r (one integer) \g /dev/null
select pg_stat_clear_snapshot() \g /dev/null
select test.finds('snapshot', 'ok', format('pid %s \(report, user %s, idle in transaction\) has held one for 00:00:0',
	(select a.pid from pg_stat_activity a where a.application_name = 'report'), current_user));
select dblink_exec('report', 'commit') \g /dev/null
select test.finds('connections', 'ok', '^[0-9]+ of [0-9]+ are used, [4-9] by programs');
select test.finds('notifications', 'ok', 'of the queue is used');
select test.finds('prepared transactions', 'ok', 'none');
select test.finds('replication slots', 'ok', 'none holds anything back');
select test.finds('deadlocks', 'ok', '^0 in this database');

-- ---- tables

select is((select count(*) from outbox.doctor() where "check" like 'vacuum %'), 5::bigint,
	'vacuum of each hot table');
update pg_index set indisvalid = false where indexrelid = 'outbox.rearm_job'::regclass;
select test.finds('indexes', 'critical', 'invalid: outbox.rearm_job');

-- ---- rights

select is((select count(*) from outbox.doctor() where "check" = 'privileges'), 0::bigint,
	'a superuser sees everything');
\ir ../../sql/roles.sql
set role outbox_viewer;
create temporary table seen as select * from outbox.doctor();
reset role;
select is((select severity from seen where "check" = 'privileges'), 'warning',
	'a viewer is told what it cannot see');

select * from finish();
rollback;
