-- The state of a job is derived, never stored: in ready -> pending (no attempt yet) or
-- retrying; last attempt final and not rearmed since -> that outcome; else running.

-- due_candidates(job_id, run_at): the instants at which an owed job can stand in ready,
-- whose index starts with kind and priority and has no job id of its own.
create or replace function outbox.due_candidates(job_id bigint, run_at timestamptz)
	returns timestamptz[] language sql stable
	as $$
	select array[
		due_candidates.run_at,
		(select a.next_at from outbox.attempt a where a.job_id = due_candidates.job_id
			order by a.attempt desc limit 1),
		(select m.due_at from outbox.rearm m where m.job_id = due_candidates.job_id
			order by m.id desc limit 1)]
	$$;

create or replace view outbox.jobs as
select
	j.id, j.kind,
	case
		when r.job_id is not null and r.attempt = 0 then 'pending'
		when r.job_id is not null then 'retrying'
		when a.outcome in ('succeeded', 'dead', 'cancelled')
			and not coalesce(m.from_attempt >= a.attempt, false) then a.outcome::text
		else 'running'
	end as state,
	j.tenant_key, j.subject_key, j.correlation_id,
	coalesce(a.attempt, 0)::integer as attempts, -- recorded ones
	r.due_at,                                     -- null unless owed
	a.code, j.priority, j.created_at, a.finished_at
from outbox.job j
left join lateral (
	select t.attempt, t.outcome, t.code, t.next_at, t.finished_at from outbox.attempt t
	where t.job_id = j.id order by t.attempt desc limit 1) a on true
left join lateral (
	select t.from_attempt, t.due_at from outbox.rearm t
	where t.job_id = j.id order by t.id desc limit 1) m on true
left join lateral (
	select t.job_id, t.attempt, t.due_at from outbox.ready t
	where t.kind = j.kind and t.priority = j.priority and t.job_id = j.id
		and t.due_at = any (array[j.run_at, a.next_at, m.due_at]) limit 1) r on true;

comment on view outbox.jobs is 'every job with its derived state';

-- job_state(job_id): the state of one job, or null when there is no such job.
create or replace function outbox.job_state(job_id bigint) returns text
	language sql stable
	as 'select s.state from outbox.jobs s where s.id = job_state.job_id';
