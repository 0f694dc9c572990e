-- Schedules: jobs that recur. See cron.sql for the expressions and for gap and fold.
--
--   select outbox.schedule_set('digest', '30 7 * * mon-fri', 'email.digest',
--       '{"day":"{{nominal_date}}"}', time_zone => 'Europe/Berlin');
--
-- A tick has a nominal time: the instant that its expression names, however late it runs. Its
-- job's dedupe key is schedule:NAME:NOMINAL, with the nominal time in UTC, and its payload is
-- the schedule's, in which {{nominal}} stands for the nominal time in UTC
-- (2026-03-29T01:00:00Z) and {{nominal_date}} for its date in the schedule's zone.
--
-- Instead of a kind, a schedule may name an SQL function (scheduled_at timestamptz), called
-- with the rights of the sweeper's role. All that it enqueues commits with its tick.
--
-- Ticks that could not run at their time are dealt with as catch_up says:
--   skip    those more than two minutes late are skipped, each with an event
--   latest  only the newest runs
--   all     all run, in order
-- For the last two, catch_up_window bounds how late a tick may be (latest: any, all: a day).

-- utc_text(at): 2026-03-29T01:00:00Z.
create or replace function outbox.utc_text(at timestamptz) returns text
	language sql stable parallel safe
	as $$ select pg_catalog.to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') $$;

-- lock_schedule(name): locks and returns the schedule; raises 42704 when there is none.
create or replace function outbox.lock_schedule(name text) returns outbox.schedule
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	schedule outbox.schedule;
begin
	select s.* into schedule from outbox.schedule s where s.name = lock_schedule.name for update;
	if not found then
		raise exception 'there is no schedule %', quote_nullable(name) using errcode = '42704';
	end if;
	return schedule;
end $$;

-- check_zone(name): refuses what is no zone of the IANA database. The server would take more:
-- any letters with a number, and abbreviations, which stand for one offset all the year.
create or replace function outbox.check_zone(name text) returns void
	language plpgsql stable
	set search_path = pg_catalog, pg_temp
as $$
begin
	if name = 'UTC' then
		return;
	end if;
	if not exists (select from pg_timezone_names z where z.name = check_zone.name) then
		raise exception 'time_zone % is not known to the server: name one like "Europe/Berlin"',
			quote_nullable(name) using errcode = '22023';
	end if;
	if exists (select from pg_timezone_abbrevs z where z.abbrev = check_zone.name)
		and name not in ('GMT', 'UCT') then
		raise exception 'time_zone "%" has no daylight saving time here: name one like "Europe/Berlin"',
			name using errcode = '22023';
	end if;
end $$;

-- function_name(name): schema.name of a function of that name that takes a timestamptz, found
-- on the caller's search path; raises 42883 when there is none.
create or replace function outbox.function_name(name text) returns text
	language plpgsql stable
as $$
declare
	found text;
begin
	select format('%I.%I', n.nspname, p.proname) into found
	from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
	where p.oid = to_regprocedure(name || '(timestamptz)') and p.prokind = 'f';
	if found is null then
		raise exception 'there is no function %(timestamptz)', name using errcode = '42883';
	end if;
	return found;
end $$;

-- check_schedule(…): refuses what no schedule may be, apart from cron, gap and fold, which
-- outbox.cron_next checks.
create or replace function outbox.check_schedule(schedule outbox.schedule) returns void
	language plpgsql stable
	set search_path = pg_catalog, pg_temp
as $$
declare
	rules record;
begin
	if schedule.name is null or schedule.name !~ '^[a-z0-9][a-z0-9._-]{0,99}$' then
		raise exception 'name % must match ^[a-z0-9][a-z0-9._-]{0,99}$',
			quote_nullable(left(schedule.name, 120)) using errcode = '22023';
	end if;
	perform outbox.check_zone(schedule.time_zone);
	if schedule.catch_up is null or schedule.catch_up not in ('skip', 'latest', 'all') then
		raise exception 'catch_up % must be "skip", "latest" or "all"',
			quote_nullable(schedule.catch_up) using errcode = '22023';
	end if;
	if schedule.catch_up_window <= interval '0' or
		schedule.catch_up = 'skip' and schedule.catch_up_window is not null then
		raise exception 'catch_up_window must be positive, and only with catch_up latest or all'
			using errcode = '22023';
	end if;
	if num_nonnulls(schedule.kind, schedule.function) <> 1 then
		raise exception 'a schedule must have a kind or a function, and not both'
			using errcode = '22023';
	end if;
	if schedule.function is null then
		rules := outbox.kind_rules(schedule.kind);
		perform outbox.check_job(schedule.kind, schedule.payload::text, rules.is_known,
			rules.max_bytes, rules.max_depth, null, schedule.tenant_key, null, null, null, null,
			null, schedule.priority, schedule.max_attempts, null, null);
	elsif num_nonnulls(schedule.payload, schedule.tenant_key, schedule.max_attempts) > 0 then
		raise exception 'payload, tenant_key and max_attempts are for a kind, not for a function'
			using errcode = '22023';
	end if;
end $$;

-- schedule_set(name, cron, kind, …): makes or changes a schedule; call it with every deploy.
-- A schedule whose timing (cron, time_zone, gap, fold) stays as it was keeps its next tick, and
-- any schedule stays paused if it is. Returns the next tick.
-- Refuses wrong values with 22023, a missing function with 42883.
create or replace function outbox.schedule_set(
	name text, cron text,
	kind text default null,
	payload json default null,            -- {} for a kind
	time_zone text default 'UTC',
	gap text default 'after',             -- or skip
	fold text default 'first',            -- or last, both
	catch_up text default 'skip',         -- or latest, all
	catch_up_window interval default null,
	function text default null,           -- instead of a kind
	tenant_key text default null,
	priority integer default 2,
	max_attempts integer default null,
	changed_by text default session_user)
	returns timestamptz language plpgsql
as $$
#variable_conflict use_column
declare
	new outbox.schedule;
begin
	new.name := schedule_set.name;
	new.cron := schedule_set.cron;
	new.time_zone := schedule_set.time_zone;
	new.gap := schedule_set.gap;
	new.fold := schedule_set.fold;
	new.catch_up := schedule_set.catch_up;
	new.catch_up_window := schedule_set.catch_up_window;
	new.kind := schedule_set.kind;
	new.payload := coalesce(schedule_set.payload,
		case when schedule_set.kind is not null then json '{}' end);
	new.tenant_key := schedule_set.tenant_key;
	new.priority := schedule_set.priority;
	new.max_attempts := schedule_set.max_attempts;
	new.function := case when schedule_set.function is not null
		then outbox.function_name(schedule_set.function) end;
	new.paused := false;
	new.changed_at := outbox.now();
	new.changed_by := schedule_set.changed_by;
	perform outbox.check_schedule(new);
	new.next_at := outbox.schedule_after(new, outbox.now());

	insert into outbox.schedule as s select new.*
	on conflict (name) do update set
		cron = new.cron, time_zone = new.time_zone, gap = new.gap, fold = new.fold,
		catch_up = new.catch_up, catch_up_window = new.catch_up_window, kind = new.kind,
		function = new.function, payload = new.payload, tenant_key = new.tenant_key,
		priority = new.priority, max_attempts = new.max_attempts, changed_at = new.changed_at,
		changed_by = new.changed_by,
		next_at = case
			when (s.cron, s.time_zone, s.gap, s.fold) = (new.cron, new.time_zone, new.gap, new.fold)
				then s.next_at
			-- no tick twice, if the clock was set back
			else outbox.schedule_after(new, greatest(outbox.now(), s.last_at)) end
	returning s.next_at into new.next_at;
	perform pg_notify('outbox_schedule', '');
	return new.next_at;
end $$;

-- schedule_pause(name, changed_by): no tick runs until schedule_resume; those until then are
-- not missed but called off.
create or replace function outbox.schedule_pause(name text, changed_by text default session_user)
	returns void language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
	perform outbox.lock_schedule(name);
	update outbox.schedule s
	set paused = true, changed_at = outbox.now(), changed_by = schedule_pause.changed_by
	where s.name = schedule_pause.name and not s.paused;
end $$;

-- schedule_resume(name, changed_by): goes on with the first tick from now. Returns it.
create or replace function outbox.schedule_resume(name text, changed_by text default session_user)
	returns timestamptz language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	schedule outbox.schedule := outbox.lock_schedule(name);
begin
	if schedule.paused then
		schedule.next_at := outbox.schedule_after(schedule, greatest(outbox.now(), schedule.last_at));
		update outbox.schedule s
		set paused = false, next_at = schedule.next_at, changed_at = outbox.now(),
			changed_by = schedule_resume.changed_by
		where s.name = schedule.name;
		perform pg_notify('outbox_schedule', '');
	end if;
	return schedule.next_at;
end $$;

-- schedule_remove(name): jobs that it has enqueued stay.
create or replace function outbox.schedule_remove(name text)
	returns void language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
begin
	perform outbox.lock_schedule(name);
	delete from outbox.schedule s where s.name = schedule_remove.name;
end $$;

-- schedule_run_now(name): runs it once more, now, in this transaction, also when it is paused;
-- its ticks stay as they are. The nominal time is now. Returns the job; null for a function.
create or replace function outbox.schedule_run_now(name text)
	returns bigint language plpgsql
as $$
declare
	schedule constant outbox.schedule := outbox.lock_schedule(name);
begin
	return (outbox.schedule_run(schedule, outbox.now(), null)).id;
end $$;

-- schedule_next(name, n): the next n ticks, as an instant and on the schedule's wall clock. Of a
-- paused schedule: as if it were resumed now.
create or replace function outbox.schedule_next(
	name text, n integer default 10, out nominal timestamptz, out local timestamp)
	returns setof record language plpgsql stable
	set search_path = pg_catalog, pg_temp
as $$
declare
	schedule outbox.schedule;
begin
	select s.* into schedule from outbox.schedule s where s.name = schedule_next.name;
	if not found then
		raise exception 'there is no schedule %', quote_nullable(name) using errcode = '42704';
	end if;
	nominal := case when not schedule.paused then schedule.next_at
		else outbox.schedule_after(schedule, greatest(outbox.now(), schedule.last_at)) end;
	for i in 1 .. n loop
		local := nominal at time zone schedule.time_zone;
		return next;
		nominal := outbox.schedule_after(schedule, nominal);
	end loop;
end $$;

create or replace view outbox.schedules as
select name, cron, time_zone, kind, function, paused,
	case when not paused then next_at end as next_at,
	last_at,    -- nominal time of the last tick that ran or failed
	last_error, -- of that one
	gap, fold, catch_up, catch_up_window, payload, tenant_key, priority, max_attempts,
	changed_at, changed_by
from outbox.schedule;

comment on view outbox.schedules is 'every recurring job with its next tick';
