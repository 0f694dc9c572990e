-- Firing schedules: what outbox-sweep does when one is due.

-- schedule_after(schedule, after): its first tick later than `after`.
create or replace function outbox.schedule_after(schedule outbox.schedule, after timestamptz)
	returns timestamptz language sql immutable parallel safe
	as $$ select outbox.cron_next(schedule.cron, after, schedule.time_zone, schedule.gap,
		schedule.fold) $$;

-- schedules_next_due(): when outbox.schedule_fire has something to do next, or null.
create or replace function outbox.schedules_next_due() returns timestamptz
	language sql stable
	set search_path = pg_catalog, pg_temp
	as 'select min(s.next_at) from outbox.schedule s where not s.paused';

-- schedule_latest(due, now): its last tick that is not later than `now`, by halving: there is
-- no search backwards.
create or replace function outbox.schedule_latest(due outbox.schedule, now timestamptz)
	returns timestamptz language plpgsql immutable
	set search_path = pg_catalog, pg_temp
as $$
declare
	low timestamp := due.next_at at time zone 'UTC'; -- a tick
	high timestamp := now at time zone 'UTC';        -- none between it and now
	middle timestamp;
	tick timestamp;
begin
	while high - low > interval '1 second' loop
		middle := low + (high - low) / 2;
		tick := outbox.schedule_after(due, middle at time zone 'UTC') at time zone 'UTC';
		if tick <= now at time zone 'UTC' then
			low := tick;
		else
			high := middle;
		end if;
	end loop;
	return low at time zone 'UTC';
end $$;

-- earlier_by(at, span): like the operator -, except that days have 24 hours in any session.
create or replace function outbox.earlier_by(at timestamptz, span interval) returns timestamptz
	language sql immutable parallel safe
	as $$ select (at at time zone 'UTC' - span) at time zone 'UTC' $$;

-- schedule_oldest(due, now): ticks before this instant are skipped.
create or replace function outbox.schedule_oldest(due outbox.schedule, now timestamptz)
	returns timestamptz language sql immutable
	as $$
	select case due.catch_up
		when 'all' then outbox.earlier_by(now, coalesce(due.catch_up_window, interval '24 hours'))
		when 'latest' then greatest(outbox.schedule_latest(due, now),
			outbox.earlier_by(now, due.catch_up_window))
		else now - interval '2 minutes' end
	$$;

-- schedule_skip(due, oldest): passes over the ticks before `oldest` and returns an event for
-- each of the first 20; the last of them speaks for the rest.
create or replace function outbox.schedule_skip(due outbox.schedule, oldest timestamptz)
	returns setof outbox.schedule_event language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	event outbox.schedule_event;
begin
	for n in 1 .. 20 loop
		event := (due.name, 'skipped', due.next_at, null, due.kind, null);
		due.next_at := outbox.schedule_after(due, due.next_at);
		if n = 20 and due.next_at < oldest then
			due.next_at := outbox.schedule_after(due, oldest - interval '1 microsecond');
			event.detail := 'and all others before ' || outbox.utc_text(due.next_at);
		end if;
		return next event;
		exit when due.next_at >= oldest;
	end loop;
	update outbox.schedule s set next_at = due.next_at where s.name = due.name;
end $$;

-- schedule_run(schedule, nominal, dedupe_key): enqueues the job of a tick, or calls its
-- function. Returns what enqueue returned; status called for a function.
create or replace function outbox.schedule_run(
	schedule outbox.schedule, nominal timestamptz, dedupe_key text)
	returns outbox.enqueue_result language plpgsql
as $$
declare
	payload text;
	result outbox.enqueue_result;
begin
	if schedule.function is not null then
		execute format('select %s($1)', schedule.function) using nominal;
		-- What it left to be checked at commit must fail here, where it can be undone alone.
		set constraints all immediate;
		set constraints all deferred;
		return ('called', null, null, null, null)::outbox.enqueue_result;
	end if;
	payload := replace(schedule.payload::text, '{{nominal}}', outbox.utc_text(nominal));
	payload := replace(payload, '{{nominal_date}}',
		to_char(nominal at time zone schedule.time_zone, 'YYYY-MM-DD'));
	result := outbox.enqueue(schedule.kind, payload, dedupe_key,
		tenant_key => schedule.tenant_key, priority => schedule.priority,
		max_attempts => schedule.max_attempts);
	if result.status = 'invalid_payload' then
		raise exception 'payload of kind "%" is invalid: % %', schedule.kind,
			result.issues -> 0 ->> 'path', result.issues -> 0 ->> 'message' using errcode = '22023';
	end if;
	return result;
end $$;

-- schedule_step(name, now): the next thing to do for a schedule, whose row the caller has
-- locked: skips missed ticks, or runs one tick, and moves on. Returns null when nothing is due.
-- An error undoes the tick. One that may pass (a statement timeout, too, which would stop all
-- other schedules) makes the event retrying and leaves the tick due; others make it failed.
create or replace function outbox.schedule_step(name text, now timestamptz)
	returns outbox.schedule_event[] language plpgsql
as $$
declare
	due outbox.schedule;
	oldest timestamptz;
	following timestamptz;
	result outbox.enqueue_result;
	event outbox.schedule_event;
begin
	select s.* into due from outbox.schedule s
	where s.name = schedule_step.name and not s.paused and s.next_at <= now;
	if not found then
		return null;
	end if;
	event := (due.name, 'fired', due.next_at, null, due.kind, null);
	begin
		oldest := outbox.schedule_oldest(due, now);
		if due.next_at < oldest then
			return array(select e from outbox.schedule_skip(due, oldest) e);
		end if;
		following := outbox.schedule_after(due, due.next_at);
		result := outbox.schedule_run(due, due.next_at,
			'schedule:' || due.name || ':' || outbox.utc_text(due.next_at));
		event.job_id := result.id;
		if result.status not in ('created', 'called') then
			event.event := 'exists';
		end if;
	exception
		when serialization_failure or deadlock_detected or lock_not_available
			or insufficient_resources or operator_intervention or system_error
			or read_only_sql_transaction then
			event.event := 'retrying';
			event.detail := format('%s (%s)', sqlerrm, sqlstate);
		when others then
			-- without a next tick (its zone is gone from the server) there is nothing to move on to
			event.event := case when following is null then 'retrying' else 'failed' end;
			event.detail := format('%s (%s)', sqlerrm, sqlstate);
	end;
	if event.event = 'retrying' then
		return array[event];
	end if;
	update outbox.schedule s
	set next_at = following, last_at = due.next_at, last_error = event.detail
	where s.name = due.name;
	return array[event];
end $$;

-- schedule_fire(most): runs what is due, schedule by schedule in the order of their names, at
-- most so many ticks. Any number of sessions may call it at any time. Returns what became of
-- each tick:
--   fired    its job is enqueued (job_id), or its function was called
--   exists   its job had been enqueued before
--   skipped  it was missed, see catch_up
--   failed   detail says why; nothing of it is left, and the schedule goes on
--   retrying detail says why; the next call tries again
-- Locks: the rows of due schedules; those that others hold are left to them.
create or replace function outbox.schedule_fire(most integer default 100)
	returns setof outbox.schedule_event language plpgsql
	set lock_timeout = '2s'
as $$
declare
	now constant timestamptz := outbox.now();
	due_name text;
	events outbox.schedule_event[];
	steps integer := 0;
begin
	for due_name in
		select s.name from outbox.schedule s where not s.paused and s.next_at <= now
		order by s.name limit most for update skip locked
	loop
		loop
			events := outbox.schedule_step(due_name, now);
			exit when events is null;
			return query select e.* from unnest(events) e;
			steps := steps + 1;
			exit when events[1].event = 'retrying' or steps = most;
		end loop;
		exit when steps = most;
	end loop;
end $$;
