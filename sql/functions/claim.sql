-- Claiming: ready rows become one claim row a kind, handed to one worker.

-- claim(worker, lane, kinds, limits, max_jobs, found_by, versions, after): claims at most
-- max_jobs due jobs for `worker`, in order of priority, then due time, at most limits[i] of
-- kinds[i], and none whose version is above versions[i] (null: any).
-- after[4 * (i - 1) + priority]: where to start looking, exclusive (null: from the head).
-- issues: what the kind's schema of today, not that of the enqueue, says against a payload.
-- found_by: how the claimer came to look: nudge, poll or sweep.
--
-- Nothing is claimed from a paused lane, and nothing of a kind that is in another lane by now:
-- its manifest may have moved it while a runner of its old lane is still there. Rows that
-- another claimer has locked are passed over. The transaction commits asynchronously: losing
-- a claim in a server crash only means that the attempt runs again, and a settle's flush
-- carries the claim before it.
--
-- It first looks without locks at what is due, then takes it part by part, a part being a
-- kind and a priority: each part becomes one claim row.
create or replace function outbox.claim(
	worker text, lane text, kinds text[], limits integer[], max_jobs integer,
	found_by text default 'poll', versions integer[] default null,
	after timestamptz[] default null)
	returns table (
		claim_id bigint, claim_index integer, claim_size integer, claimed_at timestamptz,
		job_id bigint, attempt smallint, kind text, payload json, max_attempts integer,
		idempotency_key text, tenant_key text, subject_key text, correlation_id text,
		traceparent text, metadata json, created_at timestamptz, trigger text, reason text,
		version integer, priority smallint, due_at timestamptz, issues json)
	language plpgsql
	set search_path = pg_catalog, pg_temp
	set plan_cache_mode = force_generic_plan
	set enable_seqscan = off
	set enable_hashjoin = off
	set enable_mergejoin = off
	set jit = off
as $$
#variable_conflict use_column
declare
	now constant timestamptz := outbox.now();
	prefix text; -- of idempotency keys
	usual_attempts integer;
	has_schema boolean;
	room integer := case when cardinality(kinds) = 1 then least(limits[1], max_jobs)
		else max_jobs end;
	taken_now integer;
	part record;
begin
	select m.installation || '-' into prefix from outbox.meta m
	where not exists (select from outbox.lane l where l.name = claim.lane and l.paused);
	if prefix is null then
		return;
	end if;
	perform set_config('synchronous_commit', 'off', true);
	for part in
		select d.kind, d.priority, d.quota, d.version, d.starting
		from outbox.due_parts(lane, kinds, limits, max_jobs, versions, after) d
	loop
		select coalesce(min(k.max_attempts), 8), count(k.payload_schema) > 0
		into usual_attempts, has_schema
		from outbox.kind k where k.name = part.kind;
		return query
		with locked as materialized (
			select r.ctid as tid, r.job_id, (r.attempt + 1)::smallint as attempt, r.version,
				r.due_at
			from outbox.ready r
			where r.kind = part.kind and r.priority = part.priority
				and r.due_at > part.starting and r.due_at <= now and r.version <= part.version
			order by r.due_at, r.job_id limit least(part.quota, room) for update skip locked
		), taken as (
			delete from outbox.ready r using locked where r.ctid = locked.tid
		), made as materialized (
			insert into outbox.claim as c (id, claimed_at, found, worker, kind, ids, attempts)
			select outbox.new_id(), now, found_by::outbox.found, claim.worker,
				part.kind, array_agg(l.job_id), array_agg(l.attempt)
			from locked l having count(*) > 0
			returning c.id, cardinality(c.ids) as size
		)
		select m.id, (row_number() over ())::integer, m.size, now, l.job_id, l.attempt,
			part.kind, j.payload, coalesce(j.max_attempts, usual_attempts)::integer,
			prefix || l.job_id, j.tenant_key, j.subject_key, j.correlation_id, j.traceparent,
			j.metadata, j.created_at,
			-- a first attempt that nobody has asked for is due when the enqueue said
			case when (l.attempt > 1 or l.due_at <> j.run_at) and exists (
				select from outbox.rearm_of_attempt(l.job_id, l.attempt))
				then 'manual' else 'automatic' end,
			case when l.attempt > 1 or l.due_at <> j.run_at then (
				select a.reason from outbox.rearm_of_attempt(l.job_id, l.attempt) a) end,
			l.version, part.priority, l.due_at,
			case when has_schema then outbox.payload_issues(part.kind, j.payload) end
		from made m
		cross join locked l
		join outbox.job j on j.id = l.job_id;
		get diagnostics taken_now = row_count;
		room := room - taken_now;
		exit when room = 0;
	end loop;
end $$;

-- due_parts(lane, kinds, limits, max_jobs, versions, after): how many jobs of each kind and
-- priority make up the best max_jobs due ones, in the order in which they are to be taken.
-- Of one kind alone the order of priorities says enough, and quota is the limit. Reads at
-- most limits[i] index entries a kind and priority, and locks nothing.
create or replace function outbox.due_parts(
	lane text, kinds text[], limits integer[], max_jobs integer, versions integer[],
	after timestamptz[])
	returns table (kind text, priority smallint, quota integer, version integer, starting timestamptz)
	language plpgsql stable
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
	now constant timestamptz := outbox.now();
begin
	if cardinality(kinds) > 1 then
		-- only the merged order of all heads tells how many of each come first
		return query
		with best as (
			select h.kind, h.priority, h.due_at, h.job_id, w.room, w.version, w.starting,
				row_number() over (partition by h.kind
					order by h.priority, h.due_at, h.job_id) as nth
			from outbox.probes(lane, kinds, limits, max_jobs, versions, due_parts.after) w
			cross join lateral (
				select r.kind, r.priority, r.due_at, r.job_id from outbox.ready r
				where r.kind = w.kind and r.priority = w.priority and r.due_at > w.starting
					and r.due_at <= now and r.version <= w.version
				order by r.due_at, r.job_id limit w.room) h
		)
		select b.kind, b.priority, count(*)::integer, b.version, b.starting
		from (select * from best where nth <= room
			order by priority, due_at, job_id limit max_jobs) b
		group by b.kind, b.priority, b.version, b.starting
		order by b.priority, min(b.due_at), (array_agg(b.job_id order by b.due_at, b.job_id))[1];
		return;
	end if;
	-- not with exists, of which a join would be made: vacuum finds ready empty as often as not,
	-- and a plan for an empty table reads all of it
	return query
		select w.kind, w.priority, w.room, w.version, w.starting
		from outbox.probes(lane, kinds, limits, max_jobs, versions, due_parts.after) w
		cross join lateral (select from outbox.ready r
			where r.kind = w.kind and r.priority = w.priority and r.due_at > w.starting
				and r.due_at <= now and r.version <= w.version limit 1) h
		order by w.priority;
end $$;

-- probes(…): one row a kind of the lane and priority, with the defaults filled in.
create or replace function outbox.probes(
	lane text, kinds text[], limits integer[], max_jobs integer, versions integer[],
	after timestamptz[])
	returns table (kind text, priority smallint, room integer, version integer, starting timestamptz)
	language sql stable
	as $$
	select k.kind, p.priority::smallint, least(k.room, max_jobs),
		coalesce(k.version, 2147483647),
		coalesce(probes.after[(4 * (k.n - 1) + p.priority)::integer], '-infinity')
	from unnest(kinds, limits, versions) with ordinality k (kind, room, version, n)
	cross join generate_series(1, 4) p (priority)
	where k.room > 0
		and not exists (select from outbox.kind e where e.name = k.kind and e.lane <> probes.lane)
	$$;

-- next_due(lane, kinds, versions, after): when the next job of these kinds is due, or null
-- when none is owed in the lane (null: in any, paused or not). In the past: now. Reads the
-- first index entry of each priority, or with `after` (as in claim) the first one behind it.
create or replace function outbox.next_due(
	lane text, kinds text[], versions integer[] default null,
	after timestamptz[] default null)
	returns timestamptz language plpgsql stable
	set search_path = pg_catalog, pg_temp
	set plan_cache_mode = force_generic_plan
	set enable_seqscan = off
as $$
#variable_conflict use_column
begin
	return (select min(h.due_at)
	from unnest(kinds, versions) with ordinality k (kind, version, n)
	cross join generate_series(1, 4) p (priority)
	cross join lateral (
		select r.due_at from outbox.ready r
		where r.kind = k.kind and r.priority = p.priority::smallint
			and r.due_at > coalesce(next_due.after[(4 * (k.n - 1) + p.priority)::integer], '-infinity')
			and r.version <= coalesce(k.version, 2147483647)
		order by r.due_at limit 1) h
	where not exists (select from outbox.kind e where e.name = k.kind and e.lane <> next_due.lane)
		and not exists (select from outbox.lane l where l.name = next_due.lane and l.paused));
end $$;

-- kinds_owed(): every kind that has a row in ready, due or not, by skipping through the
-- index: two probes a kind, however many rows there are.
create or replace function outbox.kinds_owed()
	returns setof text language sql stable
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off
	as $$
	with recursive skip as (
		(select r.kind from outbox.ready r order by r.kind limit 1)
		union all
		select (select r.kind from outbox.ready r where r.kind > s.kind
			order by r.kind limit 1)
		from skip s where s.kind is not null)
	select kind from skip where kind is not null
	$$;

-- kinds_owed(lane): those of one lane. A kind that nobody has announced is in lane default.
create or replace function outbox.kinds_owed(lane text)
	returns setof text language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select o.kind from outbox.kinds_owed() o (kind)
	where coalesce((select k.lane from outbox.kind k where k.name = o.kind), 'default')
		= kinds_owed.lane
	$$;

-- kinds_without_runner(lane): the owed kinds of a lane that none of its workers has.
create or replace function outbox.kinds_without_runner(lane text)
	returns setof text language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select o.kind from outbox.kinds_owed(lane) o (kind)
	where not exists (select from outbox.worker w
		where w.lane = kinds_without_runner.lane and o.kind = any (w.kinds))
	$$;

-- release_claims(claim_ids): hands back the unsettled jobs of claims whose frames could not
-- be sent, charged to nothing, due now. Locks: the claims, then jobs, both in id order.
create or replace function outbox.release_claims(claim_ids bigint[])
	returns void language plpgsql
as $$
begin
	perform from outbox.claim c where c.id = any (claim_ids) order by c.id for update;
	perform outbox.settle_claimed('release', 'claim_lost', null, array(
		select row(c.id, c.worker, c.found, u.job_id, u.attempt)::outbox.claimed
		from outbox.claim c cross join unnest(c.ids, c.attempts) u (job_id, attempt)
		where c.id = any (claim_ids)));
	delete from outbox.claim c where c.id = any (claim_ids);
end $$;
