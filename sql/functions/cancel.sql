-- cancel(job_id, cancelled_by, reason, tenant, no_tenant): makes sure that the job is not
-- started any more. Returns cancelled (it was owed and is over now), requested (it is in
-- flight: its runner is told, and it is not retried; an "ok" that wins the race stands), ended
-- (nothing to do), or not_found (also outside the tenant: see in_scope).
-- Locks: the job row, which settling a failure takes too, so that neither misses the other.
create or replace function outbox.cancel(
	job_id bigint, cancelled_by text default session_user, reason text default null,
	tenant text default null, no_tenant boolean default false)
	returns text language plpgsql
as $$
#variable_conflict use_variable
declare
	job constant outbox.job := outbox.lock_job(job_id, tenant, no_tenant);
	recorded smallint;
begin
	if job.id is null then
		return 'not_found';
	end if;
	delete from outbox.ready r
	where r.kind = job.kind and r.priority = job.priority and r.job_id = job.id
		and r.due_at = any (outbox.due_candidates(job.id, job.run_at))
	returning r.attempt into recorded;
	if found then
		insert into outbox.attempt (job_id, attempt, outcome, trigger, finished_at, kind,
			tenant_key, subject_key, correlation_id, traceparent, triggered_by, reason)
		values (job.id, recorded + 1, 'cancelled', 'manual', outbox.now(), job.kind,
			job.tenant_key, job.subject_key, job.correlation_id, job.traceparent,
			coalesce(cancelled_by, session_user), reason);
		perform outbox.call_hooks(job, 'cancelled');
		return 'cancelled';
	end if;
	if outbox.job_has_ended(job.id) then
		return 'ended';
	end if;
	insert into outbox.cancel (job_id, requested_at, cancelled_by, reason)
	values (job.id, outbox.now(), coalesce(cancelled_by, session_user), reason)
	on conflict do nothing;
	perform pg_notify('outbox_cancel', job.id::text);
	return 'requested';
end $$;

-- cancels(workers): the attempts in flight at these workers that somebody wants stopped.
create or replace function outbox.cancels(workers text[])
	returns table (worker text, job_id bigint, attempt smallint, cancelled_by text, reason text)
	language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select c.worker, u.job_id, u.attempt, w.cancelled_by, w.reason
	from outbox.cancel w
	join outbox.claim c on c.worker = any (workers) and c.ids @> array[w.job_id]
	cross join lateral unnest(c.ids, c.attempts) u (job_id, attempt)
	where u.job_id = w.job_id
		and not exists (select from outbox.attempt a
			where a.job_id = u.job_id and a.attempt = u.attempt)
	$$;
