-- Looking at jobs. Nothing here writes, and nothing counts or sorts more than it was asked
-- for. tenant, no_tenant: see in_scope.

-- list_jobs(…): one page of jobs that match everything that is not null.
--
-- state: pending, retrying, running, succeeded, dead or cancelled. code: of the last attempt.
-- created, finished: ranges of instants, with inclusive and exclusive ends as
-- '[2026-11-01,2026-12-01)' says them; finished is the end of the last attempt.
-- after: the cursor of the last row of the page before, given the same filter.
--
-- The order is by the instant that belongs to the state, so that a page costs no more than
-- itself however many jobs there are in other states:
--   pending, retrying             due_at, the earliest first unless newest_first
--   running                       when it was claimed  \
--   dead, cancelled               finished_at           } the newest first unless
--   any, succeeded                id: when created      } newest_first is false
--   any, succeeded, and finished  finished_at          /
create or replace function outbox.list_jobs(
	state text default null, kind text default null, tenant text default null,
	no_tenant boolean default false, correlation_id text default null, code text default null,
	created tstzrange default null, finished tstzrange default null,
	newest_first boolean default null, max_rows integer default 100, after text default null)
	returns setof outbox.listed_job language plpgsql stable
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off
	set enable_hashjoin = off
	set enable_mergejoin = off
	set jit = off
as $$
declare
	order_by constant text := outbox.list_order(state, finished is not null);
	keys constant text := case order_by when 'created' then 's.job_id' else 's.at, s.job_id' end;
	descending constant boolean := coalesce(newest_first, order_by <> 'due');
	sorted constant text :=
		case when descending then replace(keys, ',', ' desc,') || ' desc' else keys end;
	passed text := 'true'; -- whether a row comes after the cursor
	place_at timestamptz;
	place_id bigint;
begin
	if max_rows is null or max_rows < 1 then
		raise exception 'max_rows % must be at least 1', coalesce(max_rows::text, 'null')
			using errcode = '22023';
	end if;
	if after is not null then
		select p.at, p.job_id into place_at, place_id from outbox.list_place(after, order_by) p;
		passed := format('(%s) %s (%s)', keys, case when descending then '<' else '>' end,
			case order_by when 'created' then '$11' else '$10, $11' end);
	end if;
	return query execute format(
		$q$
		select s.id, s.kind, s.state, s.tenant_key, s.subject_key, s.correlation_id, s.attempts,
			s.code, s.priority, s.due_at, s.created_at, s.finished_at,
			outbox.list_cursor(%L, s.at, s.job_id)
		from %s h cross join lateral (
			select s.at, s.job_id, v.*
			from (%s) s join outbox.jobs v on v.id = s.job_id
			where (s.attempt is null or s.attempt = v.attempts)
				and ($1 is null or v.state = $1) and ($2 is null or v.kind = $2)
				and outbox.in_scope(v.tenant_key, $3, $4)
				and ($5 is null or v.correlation_id = $5) and ($6 is null or v.code = $6)
				and ($7 is null or v.created_at <@ $7) and ($8 is null or v.finished_at <@ $8)
				and %s
			order by %s limit $9) s
		order by %s limit $9
		$q$, order_by, outbox.list_shards(order_by), outbox.list_source(order_by, state), passed,
		sorted, sorted)
	using state, kind, tenant, no_tenant, correlation_id, code, created, finished, max_rows,
		place_at, place_id;
end $$;

-- moment(text): an instant as people write it: what PostgreSQL reads as one, or how long ago it
-- was: 90s, 15m, 2h, 7d.
create or replace function outbox.moment(moment text)
	returns timestamptz language sql stable
	set search_path = pg_catalog, pg_temp
	as $$ select case when moment ~ '^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$'
		then outbox.now() - moment::interval else moment::timestamptz end $$;

-- span(…): a range of such instants for list_jobs; null when no end is given.
create or replace function outbox.span(at_or_after text, after text, at_or_before text, before text)
	returns tstzrange language sql stable
	set search_path = pg_catalog, pg_temp
	as $$ select case when coalesce(at_or_after, after, at_or_before, before) is not null
		then tstzrange(outbox.moment(coalesce(at_or_after, after)),
			outbox.moment(coalesce(at_or_before, before)),
			case when after is null then '[' else '(' end
			|| case when before is null then ']' else ')' end) end $$;

-- list_order(state, by_finish): the order of a list, by name.
create or replace function outbox.list_order(state text, by_finish boolean)
	returns text language plpgsql immutable parallel safe
	set search_path = pg_catalog, pg_temp
as $$
begin
	case
		when state in ('pending', 'retrying') then return 'due';
		when state = 'running' then return 'claimed';
		when state in ('dead', 'cancelled') then return 'finished';
		when state is null or state = 'succeeded' then
			return case when by_finish then 'finished' else 'created' end;
		else
			raise exception 'state % must be pending, retrying, running, succeeded, dead or cancelled',
				quote_literal(left(state, 100)) using errcode = '22023';
	end case;
end $$;

-- list_source(order_by, state): the query that gives list_jobs its candidates in an order that
-- an index has (at, job_id, attempt: as many as the job must have recorded; null: any).
create or replace function outbox.list_source(order_by text, state text)
	returns text language sql immutable parallel safe
	set search_path = pg_catalog, pg_temp
	as $$
	select case order_by
		when 'due' then
			'select r.due_at as at, r.job_id, r.attempt from outbox.ready r
			where r.kind = h.kind and r.priority = h.priority and r.attempt '
			|| case state when 'pending' then '= 0' else '> 0' end
		when 'claimed' then 'select h.at, h.job_id, h.attempt'
		when 'finished' then format(
			'select a.finished_at as at, a.job_id, a.attempt from outbox.attempt a
			where (%L is null or a.outcome = %L) and ($8 is null
				or a.finished_at >= coalesce(lower($8), ''-infinity'')
				and a.finished_at <= coalesce(upper($8), ''infinity''))', state, state)
		when 'created' then
			'select null::timestamptz as at, j.id as job_id, null::smallint as attempt
			from outbox.job j
			where j.id >= coalesce(case when isfinite(lower($7)) then outbox.id_at(lower($7)) end, 0)'
	end
	$$;

-- list_shards(order_by): the query of the parts that list_jobs looks at one by one: the index
-- of ready has an order by time only within a kind and priority; of claims, all of which are
-- read, each job is a part.
create or replace function outbox.list_shards(order_by text)
	returns text language sql immutable parallel safe
	set search_path = pg_catalog, pg_temp
	as $$
	select case order_by
		when 'due' then
			'(select k.kind, p.priority::smallint as priority
			from outbox.kinds_owed() k (kind) cross join generate_series(1, 4) p (priority)
			where $2 is null or k.kind = $2)'
		when 'claimed' then
			'(select c.claimed_at as at, u.job_id, u.attempt - 1 as attempt
			from outbox.claim c cross join unnest(c.ids, c.attempts) u (job_id, attempt))'
		else '(select 1 as one)'
	end
	$$;

-- list_cursor(order_by, at, job_id) and its inverse: a place in a list as text.
create or replace function outbox.list_cursor(order_by text, at timestamptz, job_id bigint)
	returns text language sql stable parallel safe
	set search_path = pg_catalog, pg_temp
	as $$ select format('%s%s.%s', left(order_by, 1),
		(extract(epoch from at) * 1000000)::bigint, job_id) $$;

create or replace function outbox.list_place(
	cursor text, order_by text, out at timestamptz, out job_id bigint)
	language plpgsql stable
	set search_path = pg_catalog, pg_temp
as $$
declare
	part constant text[] := regexp_match(cursor, '^([a-z])(-?[0-9]{1,18})?\.([0-9]{1,19})$');
begin
	if part is null or part[1] <> left(order_by, 1) then
		raise exception 'cursor % is not one of this list', quote_literal(left(cursor, 100))
			using errcode = '22023';
	end if;
	at := outbox.time_at(part[2]::bigint);
	job_id := part[3]::bigint;
end $$;

-- count_jobs(…): how many jobs match, as list_jobs takes it, but at most at_most of them are
-- looked at; complete: whether that were all.
create or replace function outbox.count_jobs(
	state text default null, kind text default null, tenant text default null,
	no_tenant boolean default false, correlation_id text default null, code text default null,
	created tstzrange default null, finished tstzrange default null,
	at_most integer default 10000, out count bigint, out complete boolean)
	language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select least(count(*), at_most), count(*) <= at_most
	from outbox.list_jobs(state, kind, tenant, no_tenant, correlation_id, code, created,
		finished, max_rows => at_most + 1)
	$$;

-- job_details(job_id, tenant, no_tenant): everything about one job, in one row; none when it
-- is not found. max_attempts: of the job, else of its kind. worker, claimed_at: of the attempt
-- in flight. code, error, finished_at: of the last attempt that has ended.
create or replace function outbox.job_details(
	job_id bigint, tenant text default null, no_tenant boolean default false)
	returns table (
		id bigint, kind text, state text, tenant_key text, subject_key text,
		correlation_id text, traceparent text, dedupe_key text, idempotency_key text,
		priority smallint, version integer, attempts integer, max_attempts integer,
		created_at timestamptz, run_at timestamptz, due_at timestamptz, worker text,
		claimed_at timestamptz, code text, error text, finished_at timestamptz,
		cancel_requested_at timestamptz, cancel_requested_by text, payload json, metadata json)
	language sql stable
	set search_path = pg_catalog, pg_temp
	set enable_hashjoin = off
	set enable_mergejoin = off
	set jit = off
	as $$
	select j.id, j.kind, v.state, j.tenant_key, j.subject_key, j.correlation_id, j.traceparent,
		j.dedupe_key, m.installation || '-' || j.id, j.priority, j.version, v.attempts,
		coalesce(j.max_attempts, k.max_attempts, 8)::integer, j.created_at, j.run_at, v.due_at,
		c.worker, c.claimed_at, v.code, a.error, v.finished_at, x.requested_at, x.cancelled_by,
		j.payload, j.metadata
	from outbox.job j
	join outbox.jobs v on v.id = j.id
	cross join outbox.meta m
	left join outbox.kind k on k.name = j.kind
	left join outbox.attempt a on a.job_id = j.id and a.attempt = v.attempts
	left join outbox.cancel x on x.job_id = j.id
	left join lateral outbox.claim_of(j.id, v.attempts + 1) c on v.state = 'running'
	where j.id = job_details.job_id
		and outbox.in_scope(j.tenant_key, job_details.tenant, job_details.no_tenant)
	$$;

-- claim_of(job_id, attempt): the claim that this attempt is in flight in. Reads all claims:
-- there are as many as runners can hold.
create or replace function outbox.claim_of(job_id bigint, attempt integer)
	returns setof outbox.claim language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select c.* from outbox.claim c
	where c.ids @> array[claim_of.job_id]
		and exists (select from unnest(c.ids, c.attempts) u (job_id, attempt)
			where u.job_id = claim_of.job_id and u.attempt = claim_of.attempt)
	$$;

-- job_history(job_id, tenant, no_tenant): what happened to a job, in order; nothing when it is
-- not found. Entries: enqueued (by: who asked), each attempt that ended, each replay, resend
-- and retry_now (by, reason), cancel (asked for, and not yet taken effect). History outlives
-- the job's row.
create or replace function outbox.job_history(
	job_id bigint, tenant text default null, no_tenant boolean default false)
	returns table (
		entry text, at timestamptz, attempt smallint, outcome text, code text, trigger text,
		triggered_by text, reason text, started_at timestamptz, duration_ms integer,
		next_at timestamptz, worker text, found text, exit_status smallint, signal smallint,
		dropped_bytes integer, error text, response json)
	language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	with job as (
		select j.* from outbox.job j where j.id = job_history.job_id
			and outbox.in_scope(j.tenant_key, job_history.tenant, job_history.no_tenant)
	), entries as (
		select 'enqueued' as entry, j.created_at as at, 0::smallint as attempt, 0 as place,
			null::outbox.attempt as a, j.subject_key as triggered_by, null::text as reason
		from job j
		union all
		select 'attempt', a.finished_at, a.attempt, 0, a, a.triggered_by, a.reason
		from outbox.attempt a where a.job_id = job_history.job_id
			and outbox.in_scope(a.tenant_key, job_history.tenant, job_history.no_tenant)
		union all
		select m.action, m.created_at, m.from_attempt, 1 + row_number() over (order by m.id),
			null, m.triggered_by, m.reason
		from job j join outbox.rearm m on m.job_id = j.id
		union all
		select 'cancel', c.requested_at, 32767, 0, null, c.cancelled_by, c.reason
		from job j join outbox.cancel c on c.job_id = j.id
	)
	select e.entry, e.at, (e.a).attempt, (e.a).outcome::text, (e.a).code, (e.a).trigger::text,
		e.triggered_by, e.reason, (e.a).started_at, (e.a).duration_ms, (e.a).next_at,
		(e.a).worker, (e.a).found::text, (e.a).exit_status, (e.a).signal, (e.a).dropped_bytes,
		(e.a).error, (e.a).response
	from entries e order by e.attempt, e.place
	$$;

-- backlog(aged_after, critical_after, at_most): what is owed and in flight, by kind, for every
-- kind that has work or was announced by a runner.
--
--   pending, retrying  owed, without and with an attempt; the same jobs are due or scheduled
--   due, scheduled     due_at is past, or still to come
--   aged               due for longer than aged_after
--   stuck              in flight for longer than the kind's timeout and the worker's lease
--   oldest_due_s       seconds since the earliest due_at, if anything is due
--   workers            with this kind, whose beat is not older than their lease
--   complete           false when at_most jobs of a priority, or more, are due or scheduled:
--                      counting stopped there
--   grade              critical: stuck jobs, or the oldest is due for longer than
--                      critical_after; warning: aged jobs, or due ones and no worker; else ok
create or replace function outbox.backlog(
	aged_after interval default '5 minutes', critical_after interval default '1 hour',
	at_most integer default 100000)
	returns table (
		kind text, lane text, pending bigint, retrying bigint, due bigint, aged bigint,
		scheduled bigint, running bigint, stuck bigint, oldest_due_s bigint, workers bigint,
		complete boolean, grade text)
	language sql stable
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off
	set jit = off
	as $$
	with in_flight as materialized (
		select c.kind, count(*) as running,
			count(*) filter (where outbox.now() > c.claimed_at + interval '1 millisecond'
				* (coalesce(k.timeout_ms, 30000) + coalesce(w.lease_ms, 0))) as stuck
		from outbox.claim c
		cross join unnest(c.ids, c.attempts) u (job_id, attempt)
		left join outbox.kind k on k.name = c.kind
		left join outbox.worker w on w.id = c.worker
		where not exists (select from outbox.attempt a
			where a.job_id = u.job_id and a.attempt = u.attempt)
		group by c.kind
	), kinds as (
		select o.kind from outbox.kinds_owed() o (kind)
		union select f.kind from in_flight f
		union select k.name from outbox.kind k
	), owed as (
		select k.kind, sum(o.pending)::bigint as pending, sum(o.retrying)::bigint as retrying,
			sum(o.due)::bigint as due, sum(o.aged)::bigint as aged,
			sum(o.scheduled)::bigint as scheduled,
			extract(epoch from outbox.now() - min(o.oldest))::bigint as oldest_s,
			max(o.due) < at_most and max(o.scheduled) < at_most as complete
		from kinds k cross join generate_series(1, 4) p (priority)
		cross join lateral outbox.owed_of(k.kind, p.priority, aged_after, at_most) o
		group by k.kind
	), graded as (
		select o.*, coalesce(r.lane, 'default') as lane, coalesce(f.running, 0) as running,
			coalesce(f.stuck, 0) as stuck,
			(select count(*) from outbox.live_workers() w where o.kind = any (w.kinds)) as workers
		from owed o
		left join in_flight f on f.kind = o.kind
		left join outbox.kind r on r.name = o.kind
	)
	select g.kind, g.lane, g.pending, g.retrying, g.due, g.aged, g.scheduled, g.running,
		g.stuck, g.oldest_s, g.workers, g.complete,
		case
			when g.stuck > 0 or g.oldest_s > extract(epoch from critical_after) then 'critical'
			when g.aged > 0 or g.due > 0 and g.workers = 0 then 'warning'
			else 'ok'
		end
	from graded g order by g.kind
	$$;

-- owed_of(kind, priority, …): the part of backlog that is in one range of the index of ready.
create or replace function outbox.owed_of(
	kind text, priority integer, aged_after interval, at_most integer,
	out pending bigint, out retrying bigint, out due bigint, out aged bigint,
	out scheduled bigint, out oldest timestamptz)
	language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select count(*) filter (where o.attempt = 0), count(*) filter (where o.attempt > 0),
		count(*) filter (where o.due_at <= outbox.now()),
		count(*) filter (where o.due_at <= outbox.now() - aged_after),
		count(*) filter (where o.due_at > outbox.now()),
		min(o.due_at) filter (where o.due_at <= outbox.now())
	from (
		(select r.due_at, r.attempt from outbox.ready r
		where r.kind = owed_of.kind and r.priority = owed_of.priority::smallint
			and r.due_at <= outbox.now() order by r.due_at limit at_most)
		union all
		(select r.due_at, r.attempt from outbox.ready r
		where r.kind = owed_of.kind and r.priority = owed_of.priority::smallint
			and r.due_at > outbox.now() order by r.due_at limit at_most)) o
	$$;

-- live_workers(): the workers whose last beat is not older than their lease.
create or replace function outbox.live_workers()
	returns setof outbox.worker language sql stable
	as $$ select w.* from outbox.worker w
	where w.seen_at > outbox.now() - w.lease_ms * interval '1 millisecond' $$;

-- stats(since, until, kinds, tenant, no_tenant): the attempts that ended in [since, until), by
-- kind, outcome and code; until null: to now. Durations are those of attempts that were started.
create or replace function outbox.stats(
	since timestamptz default outbox.now() - interval '1 hour', until timestamptz default null,
	kinds text[] default null, tenant text default null, no_tenant boolean default false)
	returns table (
		kind text, outcome text, code text, attempts bigint, manual bigint, jobs bigint,
		p50_ms integer, p95_ms integer, max_ms integer)
	language sql stable
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off
	set jit = off
	as $$
	select a.kind, a.outcome::text, a.code, count(*), count(*) filter (where a.trigger = 'manual'),
		count(distinct a.job_id),
		percentile_disc(0.5) within group (order by a.duration_ms),
		percentile_disc(0.95) within group (order by a.duration_ms), max(a.duration_ms)
	from outbox.attempt a
	where a.finished_at >= since and a.finished_at < coalesce(until, 'infinity')
		and (kinds is null or a.kind = any (kinds))
		and outbox.in_scope(a.tenant_key, stats.tenant, stats.no_tenant)
	group by a.kind, a.outcome, a.code
	order by a.kind, a.outcome, count(*) desc, a.code
	$$;
