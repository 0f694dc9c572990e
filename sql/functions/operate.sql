-- Sending jobs out again, and acting on many jobs.
--
-- replay     an ended job: anew, with a whole fresh budget
-- resend     a job that is not in flight: now, for the granted number of attempts
-- retry_now  a job that is owed later: now, its budget goes on
--
-- Each returns a status and, when the status is occupied_key, the job in the way:
--
--   rearmed       it is due now, and `rearm` says who asked for it and why
--   already_due   (retry_now) there is nothing to hasten
--   in_flight     an attempt is running
--   not_ended     (replay) it is owed already
--   ended         (retry_now) it is not owed any more
--   occupied_key  meanwhile another job with its dedupe key is open
--   attempt_limit (replay, resend) it has had 32767 attempts: there is no number for another
--   not_found     also: outside the tenant, see in_scope
--
-- tenant, no_tenant: see in_scope. triggered_by: null is the session's user.
-- Locks: the job row, then the row of its dedupe key.

create or replace function outbox.replay(
	job_id bigint, triggered_by text default null, reason text default null,
	tenant text default null, no_tenant boolean default false,
	out status text, out blocking_id bigint)
	language sql
	as $$ select * from outbox.rearm_job('replay', job_id, null, triggered_by, reason, tenant,
		no_tenant) $$;

create or replace function outbox.resend(
	job_id bigint, attempts integer default 1, triggered_by text default null,
	reason text default null, tenant text default null, no_tenant boolean default false,
	out status text, out blocking_id bigint)
	language sql
	as $$ select * from outbox.rearm_job('resend', job_id, coalesce(attempts, 1), triggered_by,
		reason, tenant, no_tenant) $$;

create or replace function outbox.retry_now(
	job_id bigint, triggered_by text default null, reason text default null,
	tenant text default null, no_tenant boolean default false,
	out status text, out blocking_id bigint)
	language sql
	as $$ select * from outbox.rearm_job('retry_now', job_id, null, triggered_by, reason, tenant,
		no_tenant) $$;

-- rearm_job(action, job_id, budget, …): what the three have in common. Decides with the job
-- row locked, and takes an owed job's row out of ready to be sure that nobody claims it.
create or replace function outbox.rearm_job(
	action text, job_id bigint, budget integer, triggered_by text, reason text,
	tenant text, no_tenant boolean, out status text, out blocking_id bigint)
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
	job constant outbox.job := outbox.lock_job(job_id, tenant, no_tenant);
	state text;
	recorded smallint; -- attempts in the ledger
begin
	if job.id is null then
		status := 'not_found';
		return;
	end if;
	if budget not between 1 and 10000 then
		raise exception 'attempts % must be between 1 and 10000', budget using errcode = '22023';
	end if;
	state := outbox.job_state(job.id);
	status := outbox.refuse_rearm(action, job, state);
	if status is not null then
		return;
	end if;
	if state in ('pending', 'retrying') then
		delete from outbox.ready r
		where r.kind = job.kind and r.priority = job.priority and r.job_id = job.id
			and r.due_at = any (outbox.due_candidates(job.id, job.run_at))
		returning r.attempt into recorded;
		if not found then
			status := 'in_flight'; -- claimed since its state was read
			return;
		end if;
	else
		blocking_id := outbox.retake_dedupe_key(job);
		if blocking_id is not null then
			status := 'occupied_key';
			return;
		end if;
		select max(a.attempt) into recorded from outbox.attempt a where a.job_id = job.id;
	end if;
	perform outbox.make_due(job, action, recorded, budget::smallint,
		coalesce(triggered_by, session_user), reason);
	status := 'rearmed';
end $$;

-- refuse_rearm(action, job, state): the status when the state forbids the action, else null.
create or replace function outbox.refuse_rearm(action text, job outbox.job, state text)
	returns text language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select case
		when state = 'running' then 'in_flight'
		when action = 'replay' and state in ('pending', 'retrying') then 'not_ended'
		when action = 'retry_now' and state not in ('pending', 'retrying') then 'ended'
		when action = 'retry_now' and exists (
			select from outbox.ready r
			where r.kind = job.kind and r.priority = job.priority and r.job_id = job.id
				and r.due_at = any (outbox.due_candidates(job.id, job.run_at))
				and r.due_at <= outbox.now())
			then 'already_due'
		when exists (select from outbox.attempt a where a.job_id = job.id and a.attempt = 32767)
			then 'attempt_limit'
	end
	$$;

-- retake_dedupe_key(job): makes the key of an ended job its own again and returns null, or
-- returns the open job that has the key. A key that was deleted, or whose job has ended or is
-- gone, is free.
create or replace function outbox.retake_dedupe_key(job outbox.job)
	returns bigint language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	held outbox.dedupe;
begin
	if job.dedupe_key is not null then
		held := outbox.take_dedupe_key(job.tenant_key, job.dedupe_key, 'until_done', job.id,
			job.kind);
	end if;
	return held.job_id;
end $$;

-- make_due(job, …): the writes of a rearm. A retry_now goes on with the budget of the rearm
-- before it. A cancel that came too late for the last attempt must not meet the next one.
create or replace function outbox.make_due(
	job outbox.job, action text, recorded smallint, budget smallint, triggered_by text,
	reason text)
	returns void language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
	before outbox.rearm;
	budget_from smallint := recorded;
begin
	if action = 'retry_now' then
		select m.* into before from outbox.rearm m where m.job_id = job.id
		order by m.id desc limit 1;
		budget_from := coalesce(before.budget_from, 0);
		budget := before.budget;
	end if;
	delete from outbox.cancel c where c.job_id = job.id;
	insert into outbox.rearm (job_id, created_at, due_at, action, from_attempt, budget_from,
		budget, triggered_by, reason)
	values (job.id, outbox.now(), outbox.now(), action, recorded, budget_from, budget,
		triggered_by, reason);
	insert into outbox.ready (kind, priority, due_at, job_id, version, attempt)
	values (job.kind, job.priority, outbox.now(), job.id, coalesce(job.version, 0), recorded);
	perform outbox.nudge(job.kind);
end $$;

-- act_on_ids(action, ids, …): cancel, replay, resend or retry_now of each job. attempts: of
-- resend. The locks are taken in one order whatever order the ids come in, first all jobs by
-- id, then their keys by tenant and key, as enqueue_many does: so callers wait for each other
-- and do not deadlock.
create or replace function outbox.act_on_ids(
	action text, ids bigint[], triggered_by text default null, reason text default null,
	attempts integer default 1, tenant text default null, no_tenant boolean default false)
	returns table (job_id bigint, status text, blocking_id bigint) language plpgsql
as $$
begin
	if action is null or action not in ('cancel', 'replay', 'resend', 'retry_now') then
		raise exception 'action % must be cancel, replay, resend or retry_now',
			quote_nullable(action) using errcode = '22023';
	end if;
	perform from outbox.job j
	where j.id = any (ids) and outbox.in_scope(j.tenant_key, tenant, no_tenant)
	order by j.id for update;
	for job_id in
		select i.id from (select distinct unnest(ids)) i (id)
		left join outbox.job j on j.id = i.id
		where i.id is not null
		order by coalesce(j.tenant_key, ''), j.dedupe_key nulls first, i.id
	loop
		blocking_id := null;
		if action = 'cancel' then
			status := outbox.cancel(job_id, triggered_by, reason, tenant, no_tenant);
		else
			select r.status, r.blocking_id into status, blocking_id
			from outbox.rearm_job(action, job_id,
				case action when 'resend' then coalesce(attempts, 1) end, triggered_by, reason,
				tenant, no_tenant) r;
		end if;
		return next;
	end loop;
end $$;

-- act_on_matching(action, state, …): the same for the jobs that list_jobs would list, at most
-- max_jobs of them, the newest first: so what an action brings about (another death, another
-- retry) never matches again on the way. The state must be named. retry_now leaves out what is
-- due. Go on with after => the cursor of the last row; fewer rows than max_jobs are the end.
-- dry_run: does nothing, and each job's status is "matched".
create or replace function outbox.act_on_matching(
	action text, state text, kind text default null, tenant text default null,
	no_tenant boolean default false, correlation_id text default null, code text default null,
	created tstzrange default null, finished tstzrange default null,
	triggered_by text default null, reason text default null, attempts integer default 1,
	max_jobs integer default 100, after text default null, dry_run boolean default false)
	returns table (job_id bigint, status text, blocking_id bigint, cursor text)
	language plpgsql
as $$
#variable_conflict use_variable
begin
	if state is null then
		raise exception 'state must be named' using errcode = '22023';
	end if;
	return query
	with listed as materialized (
		select l.id, l.cursor, l.ordinality
		from outbox.list_jobs(state, kind, tenant, no_tenant, correlation_id, code, created,
			finished, true, max_jobs, after) with ordinality l
		where action <> 'retry_now' or l.due_at > outbox.now())
	select l.id, coalesce(a.status, 'matched'), a.blocking_id, l.cursor
	from listed l left join outbox.act_on_ids(action,
		case when not dry_run then (select array_agg(i.id) from listed i) end,
		triggered_by, reason, attempts, tenant, no_tenant) a on a.job_id = l.id
	order by l.ordinality;
end $$;
