-- Claiming: ready rows become one claim row a kind, handed to one worker.

-- claim(worker, lane, kinds, limits, max_jobs, found_by, versions, after): claims at most
-- max_jobs due jobs for `worker`, in order of priority, then due time, at most limits[i] of
-- kinds[i], and none whose version is above versions[i] (null: any).
-- after[4 * (i - 1) + priority]: where to start looking, exclusive (null: from the head).
-- found_by: how the claimer came to look: nudge, poll or sweep.
--
-- Nothing is claimed from a paused lane. Rows that another claimer has locked are passed
-- over. The transaction commits asynchronously: losing a claim in a server crash only means
-- that the attempt runs again, and a settle's flush carries the claim before it.
--
-- It first looks without locks for the best max_jobs and counts them by kind and priority,
-- then locks exactly so many of each.
create or replace function outbox.claim(
	worker text, lane text, kinds text[], limits integer[], max_jobs integer,
	found_by text default 'poll', versions integer[] default null,
	after timestamptz[] default null)
	returns table (
		claim_id bigint, claim_index integer, claim_size integer, claimed_at timestamptz,
		job_id bigint, attempt smallint, kind text, payload json, max_attempts integer,
		idempotency_key text, tenant_key text, subject_key text, correlation_id text,
		traceparent text, metadata json, created_at timestamptz, trigger text, reason text,
		version integer, priority smallint, due_at timestamptz)
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
	installation text;
begin
	if exists (select from outbox.lane l where l.name = claim.lane and l.paused) then
		return;
	end if;
	select m.installation into installation from outbox.meta m;
	perform set_config('synchronous_commit', 'off', true);
	return query
	with wanted as (
		select k.kind, least(k.room, max_jobs) as room, p.priority::smallint as priority,
			coalesce(k.version, 2147483647) as version,
			coalesce(claim.after[(4 * (k.n - 1) + p.priority)::integer], '-infinity') as after
		from unnest(kinds, limits, versions) with ordinality k (kind, room, version, n)
		cross join generate_series(1, 4) p (priority)
		where k.room > 0
	), best as (
		select h.kind, h.priority, h.due_at, h.job_id, w.room,
			row_number() over (partition by h.kind
				order by h.priority, h.due_at, h.job_id) as nth
		from wanted w cross join lateral (
			select r.kind, r.priority, r.due_at, r.job_id from outbox.ready r
			where r.kind = w.kind and r.priority = w.priority and r.due_at > w.after
				and r.due_at <= now and r.version <= w.version
			order by r.due_at, r.job_id limit w.room) h
	), quota as materialized (
		select b.kind, b.priority, count(*) as quota
		from (select * from best where nth <= room
			order by priority, due_at, job_id limit max_jobs) b
		group by b.kind, b.priority
	), locked as materialized (
		select h.tid
		from quota q join wanted w on w.kind = q.kind and w.priority = q.priority
		cross join lateral (
			select r.ctid as tid from outbox.ready r
			where r.kind = q.kind and r.priority = q.priority and r.due_at > w.after
				and r.due_at <= now and r.version <= w.version
			order by r.due_at, r.job_id limit q.quota for update skip locked) h
	), taken as (
		delete from outbox.ready r using locked where r.ctid = locked.tid
		returning r.kind, r.priority, r.due_at, r.job_id, r.version,
			(r.attempt + 1)::smallint as attempt
	), placed as materialized (
		select t.*, row_number() over (partition by t.kind
			order by t.priority, t.due_at, t.job_id)::integer as place
		from taken t
	), batch as materialized (
		select nextval('outbox.claim_seq') as id, p.kind,
			array_agg(p.job_id order by p.place) as ids,
			array_agg(p.attempt order by p.place) as attempts
		from placed p group by p.kind
	), made as (
		insert into outbox.claim (id, claimed_at, found, worker, kind, ids, attempts)
		select b.id, now, found_by::outbox.found, claim.worker, b.kind, b.ids, b.attempts
		from batch b
	)
	select b.id, p.place, cardinality(b.ids), now, p.job_id, p.attempt, p.kind, j.payload,
		coalesce(j.max_attempts, (select k.max_attempts from outbox.kind k
			where k.name = p.kind), 8)::integer,
		installation || '-' || p.job_id, j.tenant_key, j.subject_key, j.correlation_id,
		j.traceparent, j.metadata, j.created_at,
		case when m.from_attempt = p.attempt - 1 then 'manual' else 'automatic' end,
		m.reason, p.version, p.priority, p.due_at
	from placed p
	join batch b on b.kind = p.kind
	join outbox.job j on j.id = p.job_id
	left join lateral (
		select r.from_attempt, r.reason from outbox.rearm r
		where p.attempt > 1 and r.job_id = p.job_id order by r.id desc limit 1) m on true
	order by p.priority, p.due_at, p.job_id;
end $$;

-- next_due(lane, kinds, versions): when the next job of these kinds is due, or null when
-- none is owed. In the past: now. Reads only the first index entry of each priority.
create or replace function outbox.next_due(
	lane text, kinds text[], versions integer[] default null)
	returns timestamptz language sql stable
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off
	as $$
	select min(h.due_at)
	from unnest(kinds, versions) k (kind, version)
	cross join generate_series(1, 4) p (priority)
	cross join lateral (
		select r.due_at from outbox.ready r
		where r.kind = k.kind and r.priority = p.priority::smallint
			and r.version <= coalesce(k.version, 2147483647)
		order by r.due_at limit 1) h
	where not exists (select from outbox.lane l where l.name = next_due.lane and l.paused)
	$$;

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

-- release_claims(claim_ids): hands back the unsettled jobs of claims whose frames could not
-- be sent, charged to nothing, due now.
create or replace function outbox.release_claims(claim_ids bigint[])
	returns void language plpgsql
as $$
begin
	perform outbox.settle_claimed('release', 'claim_lost', null, array(
		select row(c.id, c.worker, c.found, u.job_id, u.attempt)::outbox.claimed
		from outbox.claim c cross join unnest(c.ids, c.attempts) u (job_id, attempt)
		where c.id = any (claim_ids)));
	delete from outbox.claim c where c.id = any (claim_ids);
end $$;
