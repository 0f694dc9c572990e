-- explain(job_id, tenant, no_tenant): why a job is not running now, or that it is. One row for
-- each thing that stands in its way, the one to look at first in front; none when it is not
-- found. at is the instant it is about, detail says it for people. The answers:
--
--   succeeded, dead, cancelled  it has ended; at: when
--   history_only     it has ended, and retention has deleted the job; at: the last attempt
--   in_flight        a worker has it; at: when it was claimed. With it may come:
--     cancel_requested  the worker was asked to stop it; at: when
--     overdue           for longer than timeout and lease; at: when it should have ended
--     worker_silent     the worker's beats have stopped, a sweeper will take the job back; at:
--                       the last beat
--     worker_gone       the worker is not registered, likewise
--   not_due          at: when it is
--   lane_paused      nothing is claimed in the lane of its kind; at: since when
--   unknown_kind     no runner has ever announced its kind
--   no_worker        no worker of the lane has its kind
--   claimer_silent   workers of the lane have it, but no claimer keeps them alive; at: the last
--                    beat of any
--   no_version       the workers that have it are all older than the version it asks for
--   waiting          nothing is wrong: it waits for a worker's room; at: when it was due
create or replace function outbox.explain(
	job_id bigint, tenant text default null, no_tenant boolean default false)
	returns table (answer text, detail text, at timestamptz) language plpgsql stable
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
	job record;
begin
	select j.id, v.state into job from outbox.job j join outbox.jobs v on v.id = j.id
	where j.id = job_id and outbox.in_scope(j.tenant_key, tenant, no_tenant);
	if job.state in ('pending', 'retrying') then
		return query select * from outbox.explain_owed(job_id);
	elsif job.state = 'running' then
		return query select * from outbox.explain_in_flight(job_id);
	else
		return query select e.answer, e.detail, e.at
		from outbox.explain_ended(job_id, job.id is null) e
		where outbox.in_scope(e.tenant_key, tenant, no_tenant);
	end if;
end $$;

-- explain_ended(job_id, history_only): how it ended, by its last attempt.
create or replace function outbox.explain_ended(job_id bigint, history_only boolean)
	returns table (answer text, detail text, at timestamptz, tenant_key text)
	language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select case when history_only then 'history_only' else a.outcome::text end,
		concat_ws(': ',
			concat_ws(' ', 'attempt', a.attempt, 'ended as', a.outcome, 'with code ' || a.code,
				'by ' || a.triggered_by),
			a.reason, a.error),
		a.finished_at, a.tenant_key
	from outbox.attempt a where a.job_id = explain_ended.job_id
	order by a.attempt desc limit 1
	$$;

-- explain_in_flight(job_id): who has it, and what is wrong with that.
create or replace function outbox.explain_in_flight(job_id bigint)
	returns table (answer text, detail text, at timestamptz)
	language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	with flight as (
		select v.attempts + 1 as attempt, c.worker, c.claimed_at, w.id is not null as registered,
			w.host, w.pid, w.seen_at, coalesce(w.lease_ms, 0) * interval '1 millisecond' as lease,
			coalesce(k.timeout_ms, 30000) * interval '1 millisecond' as timeout
		from outbox.jobs v
		cross join lateral outbox.claim_of(v.id, v.attempts + 1) c
		left join outbox.worker w on w.id = c.worker
		left join outbox.kind k on k.name = v.kind
		where v.id = explain_in_flight.job_id
	)
	select e.answer, e.detail, e.at from (
		select 1, 'in_flight', concat_ws(' ', 'attempt', f.attempt, 'is with worker', f.worker,
			case when f.registered then format('(host %s, process %s, last beat %s s ago)', f.host,
				f.pid, extract(epoch from outbox.now() - f.seen_at)::integer) end), f.claimed_at
		from flight f
		union all
		select 2, 'cancel_requested', concat_ws(': ', 'by ' || c.cancelled_by, c.reason),
			c.requested_at
		from outbox.cancel c where c.job_id = explain_in_flight.job_id
		union all
		select 3, 'overdue', format('it has had the timeout of its kind (%s s) and the lease of'
			' its worker (%s s)', extract(epoch from f.timeout)::double precision,
			extract(epoch from f.lease)::double precision), f.claimed_at + f.timeout + f.lease
		from flight f where f.claimed_at + f.timeout + f.lease < outbox.now()
		union all
		select 4, 'worker_silent', format('worker %s has missed its lease of %s s', f.worker,
			extract(epoch from f.lease)::double precision), f.seen_at
		from flight f where f.seen_at + f.lease < outbox.now()
		union all
		select 5, 'worker_gone', format('worker %s is not registered', f.worker), null
		from flight f where not f.registered
	) e (nth, answer, detail, at) order by e.nth
	$$;

-- explain_owed(job_id): what keeps it from being claimed, or its place in the queue.
create or replace function outbox.explain_owed(job_id bigint)
	returns table (answer text, detail text, at timestamptz)
	language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	with job as (
		select j.id, j.kind, j.priority, coalesce(j.version, 0) as version, v.due_at,
			v.attempts, k.name is not null as known, coalesce(k.lane, 'default') as lane
		from outbox.job j
		join outbox.jobs v on v.id = j.id
		left join outbox.kind k on k.name = j.kind
		where j.id = explain_owed.job_id
	), able as ( -- workers that have the kind
		select w.id, w.seen_at, w.versions[array_position(w.kinds, j.kind)] as version,
			w.seen_at > outbox.now() - w.lease_ms * interval '1 millisecond' as alive
		from job j join outbox.worker w on w.lane = j.lane and j.kind = any (w.kinds)
	), obstacles (nth, answer, detail, at) as (
		select 1, 'not_due', outbox.explain_delay(j.id, j.attempts), j.due_at
		from job j where j.due_at > outbox.now()
		union all
		select 2, 'lane_paused', concat_ws(' ', 'lane', l.name, 'was paused', 'by ' || l.changed_by),
			l.changed_at
		from job j join outbox.lane l on l.name = j.lane where l.paused
		union all
		select 3, 'unknown_kind', format('no runner has ever announced kind %s', j.kind), null
		from job j where not j.known and not exists (select from able)
		union all
		select 4, 'no_worker', format('no worker of lane %s has a handler for kind %s', j.lane,
			j.kind), null
		from job j where j.known and not exists (select from able)
		union all
		select 5, 'claimer_silent', format('none of the %s workers that have kind %s is alive: is'
			' a claimer running for lane %s?', count(*), j.kind, j.lane), max(a.seen_at)
		from job j cross join able a group by j.kind, j.lane having not bool_or(a.alive)
		union all
		select 6, 'no_version', format('it asks for version %s of its handler, the newest worker'
			' has %s', j.version, max(a.version)), null
		from job j join able a on a.alive group by j.version having max(a.version) < j.version
	)
	select e.answer, e.detail, e.at from (
		select * from obstacles
		union all
		select 7, 'waiting', format('%s%s due jobs of kind %s come before it',
			case when b.jobs = 1000 then 'at least ' end, b.jobs, j.kind), j.due_at
		from job j
		cross join outbox.jobs_before(j.kind, j.priority, j.due_at, j.id, 1000) b (jobs)
		where not exists (select from obstacles)
	) e order by e.nth
	$$;

-- explain_delay(job_id, attempts): why a job is due later.
create or replace function outbox.explain_delay(job_id bigint, attempts integer)
	returns text language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select coalesce((
		select concat_ws(' ', 'attempt', a.attempt, 'ended as', a.outcome, 'with code ' || a.code,
			'and the next one has to wait')
		from outbox.attempt a
		where a.job_id = explain_delay.job_id and a.attempt = explain_delay.attempts),
		'it was enqueued for later')
	$$;

-- jobs_before(kind, priority, due_at, job_id, most): how many due jobs of the kind a claim takes
-- before this one, counted up to `most`.
create or replace function outbox.jobs_before(
	kind text, priority smallint, due_at timestamptz, job_id bigint, most integer)
	returns bigint language sql stable
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off
	set jit = off
	as $$
	select count(*) from (
		select from generate_series(1, jobs_before.priority::integer) p (priority)
		cross join lateral (
			select from outbox.ready r
			where r.kind = jobs_before.kind and r.priority = p.priority::smallint
				and r.due_at <= case when p.priority < jobs_before.priority then outbox.now()
					else jobs_before.due_at end
				and (p.priority < jobs_before.priority or r.due_at < jobs_before.due_at
					or r.job_id < jobs_before.job_id)
			limit most) b
		limit most) b
	$$;
