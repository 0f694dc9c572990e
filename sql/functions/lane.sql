-- Lanes: named sets of kinds, each served by claimers and runners of its own. A kind is in the
-- lane that its newest manifest says (see kind_announce), and before that in lane default. A
-- row of outbox.lane only keeps what differs from the defaults.

-- lane_list(at_most): every lane that has a row, a kind or a worker.
--
--   kinds           in it, announced or with work
--   owed, running   their jobs, waiting or in flight
--   workers         with a beat that is not older than their lease
--   complete        false when counting what is owed stopped at at_most jobs (see backlog)
create or replace function outbox.lane_list(at_most integer default 100000)
	returns table (
		lane text, paused boolean, notify boolean, pooled boolean, kinds bigint, owed bigint,
		running bigint, workers bigint, complete boolean, changed_at timestamptz,
		changed_by text)
	language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	with backlog as materialized (
		select b.lane, count(*) as kinds, sum(b.pending + b.retrying)::bigint as owed,
			sum(b.running)::bigint as running, bool_and(b.complete) as complete
		from outbox.backlog(at_most => lane_list.at_most) b group by b.lane
	), lanes as (
		select l.name from outbox.lane l union select b.lane from backlog b
		union select w.lane from outbox.worker w
	)
	select n.name, coalesce(l.paused, false), coalesce(l.notify, true),
		coalesce(l.pooled, false), coalesce(b.kinds, 0), coalesce(b.owed, 0),
		coalesce(b.running, 0),
		(select count(*) from outbox.live_workers() w where w.lane = n.name),
		coalesce(b.complete, true), l.changed_at, l.changed_by
	from lanes n
	left join outbox.lane l on l.name = n.name
	left join backlog b on b.lane = n.name
	order by n.name
	$$;

-- lane_change(lane, paused, notify, changed_by): the row of a lane, which is made where there
-- is none, with what is not null changed, and who did it when. Saying what is so already
-- changes nothing.
-- Locks: the row of the lane.
create or replace function outbox.lane_change(
	lane text, paused boolean, notify boolean, changed_by text)
	returns outbox.lane language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
	changed outbox.lane;
begin
	if lane is null or lane !~ '^[a-z0-9][a-z0-9._-]{0,99}$' then
		raise exception 'lane % must match ^[a-z0-9][a-z0-9._-]{0,99}$',
			quote_nullable(left(lane, 120)) using errcode = '22023';
	end if;
	insert into outbox.lane as l (name, paused, notify, changed_at, changed_by)
	values (lane, coalesce(paused, false), coalesce(notify, true), outbox.now(), changed_by)
	on conflict (name) do update set
		paused = coalesce(lane_change.paused, l.paused),
		notify = coalesce(lane_change.notify, l.notify),
		changed_at = excluded.changed_at, changed_by = excluded.changed_by
	where l.paused <> coalesce(lane_change.paused, l.paused)
		or l.notify <> coalesce(lane_change.notify, l.notify)
	returning l.* into changed;
	if not found then
		select l.* into changed from outbox.lane l where l.name = lane;
	end if;
	return changed;
end $$;

-- lane_pause(lane, changed_by): nothing of the lane is claimed until lane_resume; what is in
-- flight goes on, and jobs are enqueued as before. A lane that nobody serves yet may be paused.
create or replace function outbox.lane_pause(lane text, changed_by text default session_user)
	returns outbox.lane language sql
	as 'select outbox.lane_change(lane, true, null, changed_by)';

-- lane_resume(lane, changed_by): its claimers are told to look for everything that is owed.
create or replace function outbox.lane_resume(lane text, changed_by text default session_user)
	returns outbox.lane language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
	if not exists (select from outbox.lane_list(1) l where l.lane = lane_resume.lane) then
		raise exception 'there is no lane "%"', lane using errcode = '42704';
	end if;
	-- those that are awake as well: they take the lane for empty
	perform pg_notify('outbox', o.kind) from outbox.kinds_owed(lane) o (kind);
	return outbox.lane_change(lane, false, null, changed_by);
end $$;

-- lane_set(lane, notify, changed_by): whether enqueueing wakes the lane's claimers. Without it
-- they find jobs when they look by themselves, and no producer ever waits for the lock that a
-- notification takes.
create or replace function outbox.lane_set(
	lane text, notify boolean, changed_by text default session_user)
	returns outbox.lane language sql
	as 'select outbox.lane_change(lane, null, notify, changed_by)';
