-- Claiming: ready rows become one claim row a kind, handed to one worker.

-- claim(worker, lane, kinds, limits, max_jobs, found_by, versions, after): claims at most
-- max_jobs due jobs for `worker`, in order of priority, then due time, at most limits[i] of
-- kinds[i], and none whose version is above versions[i] (null: any). Each kind becomes one
-- claim row.
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
-- Of several kinds it first looks without locks at how many of each are the best ones.
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
	the_kind constant text := kinds[1];
	room constant integer := least(limits[1], max_jobs);
	newest constant integer := coalesce(versions[1], 2147483647);
	prefix text; -- of idempotency keys
	usual_attempts integer;
	has_schema boolean;
	commit_mode text; -- an assignment costs less than perform
begin
	if cardinality(kinds) > 1 then
		return query
		select c.* from outbox.due_shares(lane, kinds, limits, max_jobs, versions, after) d
		cross join lateral outbox.claim(worker, lane, array[d.kind], array[d.share],
			d.share, found_by, array[d.version], d.after) c
		order by c.priority, c.due_at, c.job_id;
		return;
	end if;
	if limits[1] is null or room <= 0 then
		return;
	end if;
	select m.installation || '-', coalesce(k.max_attempts, 8), k.payload_schema is not null
	into prefix, usual_attempts, has_schema
	from outbox.meta m left join outbox.kind k on k.name = the_kind
	where coalesce(k.lane = claim.lane, true)
		and not exists (select from outbox.lane l where l.name = claim.lane and l.paused);
	if prefix is null then
		return;
	end if;
	commit_mode := set_config('synchronous_commit', 'off', true);
	return query
	with locked as materialized (
		-- priority by priority, and not a row further than the limit: lateral makes this a nested
		-- loop, and nothing above it sorts
		select r.*, p.priority
		from (values (smallint '1'), ('2'), ('3'), ('4')) p (priority)
		cross join lateral (
			select r.ctid as tid, r.job_id, (r.attempt + 1)::smallint as attempt, r.version,
				r.due_at
			from outbox.ready r
			where r.kind = the_kind and r.priority = p.priority
				and r.due_at > coalesce(claim.after[p.priority], '-infinity')
				and r.due_at <= now and r.version <= newest
			order by r.due_at, r.job_id limit room for update skip locked) r
		limit room
	), taken as (
		delete from outbox.ready r using locked where r.ctid = locked.tid
	), made as materialized (
		insert into outbox.claim as c (id, claimed_at, found, worker, kind, ids, attempts)
		select outbox.new_id(), now, found_by::outbox.found, claim.worker, the_kind,
			array(select l.job_id from locked l), array(select l.attempt from locked l)
		where exists (select from locked)
		returning c.id, cardinality(c.ids) as size
	)
	select m.id, (row_number() over ())::integer, m.size, now, l.job_id, l.attempt,
		the_kind, j.payload, coalesce(j.max_attempts, usual_attempts)::integer,
		prefix || l.job_id, j.tenant_key, j.subject_key, j.correlation_id, j.traceparent,
		j.metadata, j.created_at,
		-- a first attempt that nobody has asked for is due when the enqueue said
		case when (l.attempt > 1 or l.due_at <> j.run_at)
			and (outbox.rearm_of(l.job_id, l.attempt)).id is not null
			then 'manual' else 'automatic' end,
		case when l.attempt > 1 or l.due_at <> j.run_at
			then (outbox.rearm_of(l.job_id, l.attempt)).reason end,
		l.version, l.priority, l.due_at,
		case when has_schema then outbox.payload_issues(the_kind, j.payload) end
	from made m
	cross join locked l
	join outbox.job j on j.id = l.job_id;
end $$;

-- due_shares(lane, kinds, limits, max_jobs, versions, after): how many of the best max_jobs
-- due jobs are of each kind; version and after are those of the kind. Reads at most limits[i]
-- index entries a kind and priority, and locks nothing.
create or replace function outbox.due_shares(
	lane text, kinds text[], limits integer[], max_jobs integer, versions integer[],
	after timestamptz[])
	returns table (kind text, share integer, version integer, after timestamptz[])
	language sql stable
	as $$
	with best as (
		select k.n, h.priority, h.due_at, h.job_id, k.room,
			row_number() over (partition by k.n order by h.priority, h.due_at, h.job_id) as nth
		from unnest(kinds, limits, versions) with ordinality k (kind, room, version, n)
		cross join generate_series(1, 4) p (priority)
		cross join lateral (
			select r.priority, r.due_at, r.job_id from outbox.ready r
			where r.kind = k.kind and r.priority = p.priority::smallint
				and r.due_at > coalesce(due_shares.after[4 * (k.n - 1) + p.priority], '-infinity')
				and r.due_at <= outbox.now() and r.version <= coalesce(k.version, 2147483647)
			order by r.due_at, r.job_id limit greatest(least(k.room, max_jobs), 0)) h
		where k.room > 0
			and not exists (select from outbox.kind e
				where e.name = k.kind and e.lane <> due_shares.lane)
	)
	select kinds[b.n], count(*)::integer, versions[b.n],
		due_shares.after[4 * b.n - 3 : 4 * b.n]
	from (select * from best where nth <= room
		order by priority, due_at, job_id limit max_jobs) b
	group by b.n
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
	set jit = off
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
	set jit = off
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

-- kinds_without_runner(lane): the owed kinds of a lane that none of its workers has. As
-- kinds_owed, and only between the kinds that workers have or that are in other lanes: behind
-- an old snapshot the index has many dead entries of these.
create or replace function outbox.kinds_without_runner(lane text)
	returns setof text language sql stable
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off
	set jit = off
	as $$
	with recursive gap as (
		-- no kind sorts behind 101 times z
		select s.kind as low, lead(s.kind, 1, repeat('z', 101)) over (order by s.kind) as high
		from (select '' union
			select unnest(w.kinds) from outbox.worker w
			where w.lane = kinds_without_runner.lane union
			select k.name from outbox.kind k where k.lane <> kinds_without_runner.lane) s (kind)
	), skip as (
		select g.high, (select r.kind from outbox.ready r
			where r.kind > g.low and r.kind < g.high order by r.kind limit 1) as kind
		from gap g
		union all
		select s.high, (select r.kind from outbox.ready r
			where r.kind > s.kind and r.kind < s.high order by r.kind limit 1)
		from skip s where s.kind is not null
	)
	select s.kind from skip s
	where s.kind is not null and coalesce((select k.lane from outbox.kind k
		where k.name = s.kind), 'default') = kinds_without_runner.lane
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
