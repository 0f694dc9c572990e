-- What `outbox drain` asks while a pipeline works: is there anything to do, and when is there
-- next? Only tests drain, so these may look at more than the pipeline ever does.

-- drain_until(until): an instant as people write it: what PostgreSQL reads as one, or how far
-- it is from now: 90s, 15m, 2h, 7d.
create or replace function outbox.drain_until(until text) returns timestamptz
	language sql stable
	set search_path = pg_catalog, pg_temp
	as $$ select case when until ~ '^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$'
		then outbox.now() + until::interval else until::timestamptz end $$;

-- drain_state(lanes, kinds, versions, ticks_until): of the kinds that its runners have, each
-- with its lane and version, and of the ticks of schedules until that instant.
--
--   is_due   something is due
--   is_busy  or is in flight, or a runner is yet to say hello
--   next_at  when the next job or tick is due; null: nothing is owed
create or replace function outbox.drain_state(
	lanes text[], kinds text[], versions integer[], ticks_until timestamptz,
	out is_due boolean, out is_busy boolean, out next_at timestamptz)
	language sql stable
	as $$
	select coalesce(n.next_at <= outbox.now(), false),
		coalesce(n.next_at <= outbox.now(), false) or exists (select from outbox.claim)
			or exists (select from unnest(lanes, kinds) k (lane, kind)
				where not exists (select from outbox.worker w
					where w.lane = k.lane and k.kind = any (w.kinds))),
		n.next_at
	from (select least(
		(select min(outbox.next_due(k.lane, array[k.kind], array[k.version]))
			from unnest(lanes, kinds, versions) k (lane, kind, version)),
		outbox.drain_tick(ticks_until)) as next_at) n
	$$;

-- drain_tick(ticks_until): the next tick of all schedules, if it is not later than that.
create or replace function outbox.drain_tick(ticks_until timestamptz) returns timestamptz
	language sql stable
	as $$ select min(s.next_at) from outbox.schedule s
	where not s.paused and s.next_at <= ticks_until $$;

-- drain_skip(kinds, next_at, ticks_until): moves the clock to next_at, or a little further:
-- retries that wait up to twice as long as the first are due with it, unless something that is
-- no retry comes between. So jobs that failed together, whose backoffs differ by chance, are
-- tried again together, and it takes no more rounds than one of them has attempts. The wait of
-- a retry counts from its failure: on a busy machine most of it may be over by now.
create or replace function outbox.drain_skip(
	kinds text[], next_at timestamptz, ticks_until timestamptz)
	returns timestamptz language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	now constant timestamptz := outbox.now();
	wait constant interval := greatest(next_at - now, (
		select r.due_at - min(a.finished_at) from outbox.ready r
		join outbox.attempt a on a.job_id = r.job_id and a.attempt = r.attempt
		where r.kind = any (kinds) and r.due_at = drain_skip.next_at group by r.due_at));
	latest constant timestamptz := least(now + 2 * wait, outbox.drain_tick(ticks_until));
	target timestamptz;
begin
	select max(s.due_at) into target from (
		select r.due_at, min(r.due_at) filter (where r.attempt = 0) over () as first_new
		from outbox.ready r
		where r.kind = any (kinds) and r.due_at > now and r.due_at <= latest) s
	where s.due_at <= coalesce(s.first_new, 'infinity');
	return outbox.clock_move(greatest(next_at, target) - now);
end $$;

-- drain_begin(): remembers, for this session, which attempts there are already.
create or replace function outbox.drain_begin() returns void
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
begin
	create temporary table if not exists outbox_drained (job_id bigint primary key, attempt smallint);
	truncate outbox_drained;
	insert into outbox_drained select a.job_id, max(a.attempt) from outbox.attempt a group by 1;
end $$;

-- drain_counts(): what became of the jobs that have had an attempt since drain_begin, and what
-- is owed now, by kind.
--
--   succeeded, dead, cancelled  how they ended
--   retrying, pending           owed, with and without an attempt
--   due                         of those, what is due and was not run: nobody can
--   attempts                    since drain_begin, but for those that were handed back
create or replace function outbox.drain_counts()
	returns table (kind text, succeeded bigint, dead bigint, cancelled bigint, retrying bigint,
		pending bigint, due bigint, attempts bigint)
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
	return query
	with tried as (
		select a.kind, a.outcome, a.attempt = max(a.attempt) over (partition by a.job_id) as is_last
		from outbox.attempt a left join outbox_drained d on d.job_id = a.job_id
		where a.attempt > coalesce(d.attempt, 0)
	), counted as (
		select t.kind, count(*) filter (where is_last and t.outcome = 'succeeded') as succeeded,
			count(*) filter (where is_last and t.outcome = 'dead') as dead,
			count(*) filter (where is_last and t.outcome = 'cancelled') as cancelled,
			count(*) filter (where t.outcome <> 'released') as attempts
		from tried t group by t.kind
	), owed as (
		select r.kind, count(*) filter (where r.attempt > 0) as retrying,
			count(*) filter (where r.attempt = 0) as pending,
			count(*) filter (where r.due_at <= outbox.now()) as due
		from outbox.ready r group by r.kind
	)
	select kind, coalesce(c.succeeded, 0), coalesce(c.dead, 0), coalesce(c.cancelled, 0),
		coalesce(o.retrying, 0), coalesce(o.pending, 0), coalesce(o.due, 0), coalesce(c.attempts, 0)
	from counted c full join owed o using (kind) order by kind;
end $$;

-- drain_most_tried(): the job that is owed and has had the most attempts, as a clause of a
-- message.
create or replace function outbox.drain_most_tried() returns text
	language sql stable
	as $$ select format('job %s of kind "%s" has been tried %s times', r.job_id, r.kind, r.attempt)
	from outbox.ready r order by r.attempt desc, r.job_id limit 1 $$;
