-- Retention: deleting what ended long ago, in small steps. Nothing that is owed or in flight
-- is ever deleted, nor the last attempt of a job that is kept, which says how it ended.
--
-- There is no index for this on the hot path. Ids are ordered by time, so jobs that succeeded
-- are found by walking the primary key up to the ids that are old enough; dead and cancelled
-- ones by the index attempt_ended_badly; attempts by their primary key. Each walk keeps its
-- place: of what stays for ever, nothing is looked at again before the next round.

-- retain(most): one step of every walk, each looking at no more than `most` rows. Returns, for
-- each walk that has seen any, how many it deleted (jobs, attempts or keys) and whether there
-- is more to do at once. Returns nothing while another session is at it.
-- Deletes jobs with their requests (rearm, cancel); attempts and keys outlive them.
-- Locks: jobs in id order, passing over those that somebody operates on.
create or replace function outbox.retain(most integer default 1000)
	returns table (what text, deleted bigint, more boolean) language plpgsql
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off
	set enable_hashjoin = off
	set enable_mergejoin = off
	set jit = off
	set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
	walk outbox.retention_walk;
	step record;
	seen bigint;
begin
	if most is null or most < 1 then
		raise exception 'most % must be at least 1', coalesce(most::text, 'null')
			using errcode = '22023';
	end if;
	perform outbox.require_read_committed();
	if not pg_try_advisory_xact_lock(7318349394477057) then
		return;
	end if;
	delete from outbox.retention_walk w
	where (w.what, w.keep_s) not in (select d.what, d.keep_s from outbox.retention_due() d);
	for walk in
		select d.what, d.keep_s, coalesce(w.started_at, outbox.now()),
			coalesce(w.finished_at, '-infinity'), coalesce(w.job_id, 0), coalesce(w.attempt, 0),
			coalesce(w.tenant_key, ''), coalesce(w.key, '')
		from outbox.retention_due() d left join outbox.retention_walk w using (what, keep_s)
	loop
		step := case walk.what
			when 'succeeded' then outbox.retain_succeeded(walk, most)
			when 'attempts' then outbox.retain_attempts(walk, most)
			when 'attempts_per_job' then outbox.retain_attempts_per_job(walk, most)
			when 'dedupe_keys' then outbox.retain_dedupe_keys(walk, most)
			else outbox.retain_ended_badly(walk, most) end;
		seen := coalesce(step.seen, 0);
		perform outbox.retain_place(walk, case when seen > 0 then step.place else walk end,
			seen < most);
		if seen > 0 then
			what := walk.what;
			deleted := step.deleted;
			more := seen = most;
			return next;
		end if;
	end loop;
end $$;

-- retention_due(): the walks that the settings ask for: one for each state and time that jobs
-- of some kind are kept.
create or replace function outbox.retention_due()
	returns table (what text, keep_s bigint) language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select s.state, outbox.kept_s(k.retention, s.state, r)
	from outbox.retention r
	cross join (values ('succeeded'), ('cancelled'), ('dead')) s (state)
	cross join (select '{}'::jsonb as retention union select o.retention from outbox.kind o) k
	where outbox.kept_s(k.retention, s.state, r) is not null
	union
	select 'attempts', extract(epoch from r.attempts)::bigint
	from outbox.retention r where r.attempts is not null
	union all
	select 'attempts_per_job', r.attempts_per_job
	from outbox.retention r where r.attempts_per_job is not null
	union all
	select 'dedupe_keys', extract(epoch from r.dedupe_keys)::bigint
	from outbox.retention r where r.dedupe_keys is not null
	$$;

-- kept_s(overrides, state, usual): for how many seconds jobs in this state are kept; null: for
-- ever. overrides: the retention of a kind, or null.
create or replace function outbox.kept_s(
	overrides jsonb, state text, usual outbox.retention)
	returns bigint language sql immutable parallel safe
	as $$ select case when overrides ? state then (overrides ->> state)::numeric::bigint
		else extract(epoch from case state when 'succeeded' then usual.succeeded
			when 'cancelled' then usual.cancelled when 'dead' then usual.dead end)::bigint end $$;

-- retain_place(walk, place, is_through): remembers how far a walk has come. A walk that is
-- through begins a new round after a day: what could not be judged when it was seen (an old job
-- that ended late, a row that was locked) is found then.
create or replace function outbox.retain_place(
	walk outbox.retention_walk, place outbox.retention_walk, is_through boolean)
	returns void language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
begin
	if is_through and place.started_at <= outbox.now() - interval '1 day' then
		delete from outbox.retention_walk w
		where (w.what, w.keep_s) = (walk.what, walk.keep_s);
	elsif place is distinct from walk then
		insert into outbox.retention_walk select place.*
		on conflict (what, keep_s) do update set finished_at = excluded.finished_at,
			job_id = excluded.job_id, attempt = excluded.attempt,
			tenant_key = excluded.tenant_key, key = excluded.key;
	end if;
end $$;

-- ---- the walks. Each looks at the next `most` rows after `walk` that are old enough, deletes
-- what may go, and returns the place of the last one. That means nothing where it has seen
-- none (0 or null).

-- Jobs that succeeded, by id: those that were made long enough ago.
create or replace function outbox.retain_succeeded(
	walk outbox.retention_walk, most integer,
	out place outbox.retention_walk, out seen bigint, out deleted bigint)
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	ids bigint[];
begin
	place := walk;
	ids := array(
		select j.id from outbox.job j
		where j.id > walk.job_id and j.id < outbox.id_at(outbox.now() - outbox.seconds(walk.keep_s))
		order by j.id limit most);
	seen := cardinality(ids);
	place.job_id := ids[seen];
	deleted := outbox.retain_delete_jobs(ids, walk.what, walk.keep_s);
end $$;

-- next_ended_badly(walk, before, most): the next attempts by whose end a job was dead or
-- cancelled, in order, of those that ended before that instant.
create or replace function outbox.next_ended_badly(
	walk outbox.retention_walk, before timestamptz, most integer)
	returns table (finished_at timestamptz, job_id bigint, attempt smallint) language sql stable
	as $$
	select a.finished_at, a.job_id, a.attempt from outbox.attempt a
	where a.outcome in ('dead', 'cancelled')
		and (a.finished_at, a.job_id) > (walk.finished_at, walk.job_id) and a.finished_at < before
	order by a.finished_at, a.job_id limit most
	$$;

-- Jobs that are dead or cancelled, by the end of their last attempt.
create or replace function outbox.retain_ended_badly(
	walk outbox.retention_walk, most integer,
	out place outbox.retention_walk, out seen bigint, out deleted bigint)
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	ids bigint[];
begin
	place := walk;
	select array_agg(n.job_id order by n.finished_at, n.job_id), max(n.finished_at), count(*)
	into ids, place.finished_at, seen
	from outbox.next_ended_badly(walk, outbox.now() - outbox.seconds(walk.keep_s), most) n;
	place.job_id := ids[seen];
	deleted := outbox.retain_delete_jobs(ids, walk.what, walk.keep_s);
end $$;

-- retain_delete_jobs(ids, state, keep_s): deletes those of these jobs that are in the state,
-- are of a kind whose jobs are kept for keep_s, and ended before that; with them their
-- requests, and those attempts that are not kept any longer either. Returns how many jobs.
-- What an operator has sent out again stays: the rows are locked before the last look.
create or replace function outbox.retain_delete_jobs(ids bigint[], state text, keep_s bigint)
	returns bigint language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
	settings outbox.retention;
	ended bigint[];
	last smallint[]; -- their last attempts
	deleted bigint;
begin
	select * into settings from outbox.retention;
	select array_agg(e.id), array_agg(e.attempt) into ended, last
	from (
		select j.id, a.attempt from outbox.job j
		cross join lateral outbox.last_attempt(j.id) a
		left join outbox.kind k on k.name = j.kind
		where j.id = any (ids) and a.outcome::text = state
			and a.finished_at < outbox.now() - outbox.seconds(keep_s)
			and outbox.kept_s(k.retention, state, settings) = keep_s
		order by j.id for update of j skip locked) e;
	with gone as materialized (
		select e.id, e.attempt from unnest(ended, last) e (id, attempt)
		where not exists (select from outbox.rearm m
			where m.job_id = e.id and m.from_attempt >= e.attempt)
	), jobs as (
		delete from outbox.job j using gone g where j.id = g.id
	), rearms as (
		delete from outbox.rearm m using gone g where m.job_id = g.id
	), cancels as (
		delete from outbox.cancel c using gone g where c.job_id = g.id
	), attempts as (
		delete from outbox.attempt a using gone g
		where a.job_id = g.id and (a.finished_at < outbox.now() - settings.attempts
			or a.attempt <= g.attempt - settings.attempts_per_job)
	)
	select count(*) into deleted from gone;
	return deleted;
end $$;

create or replace function outbox.last_attempt(job_id bigint)
	returns setof outbox.attempt language sql stable
	as $$ select * from outbox.attempt a where a.job_id = last_attempt.job_id
	order by a.attempt desc limit 1 $$;

-- Attempts past their time, by job: all of a job that is gone; of a job that is kept, those
-- that a later end has made history. Budgets never count what is before an end.
create or replace function outbox.retain_attempts(
	walk outbox.retention_walk, most integer,
	out place outbox.retention_walk, out seen bigint, out deleted bigint)
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	past constant timestamptz := outbox.now() - outbox.seconds(walk.keep_s);
	unclaimed constant timestamptz := outbox.claims_begin();
begin
	place := walk;
	with next as materialized (
		select a.job_id, a.attempt, a.finished_at from outbox.attempt a
		where (a.job_id, a.attempt) > (walk.job_id, walk.attempt) and a.job_id < outbox.id_at(past)
		order by a.job_id, a.attempt limit most
	), gone as (
		delete from outbox.attempt a using next n
		where a.job_id = n.job_id and a.attempt = n.attempt
			and n.finished_at < past and n.finished_at < unclaimed
			and (not exists (select from outbox.job j where j.id = n.job_id)
				or exists (select from outbox.attempt b
					where b.job_id = n.job_id and b.attempt > n.attempt
						and b.outcome in ('succeeded', 'dead', 'cancelled')))
		returning 1
	)
	select l.job_id, l.attempt, (select count(*) from next), (select count(*) from gone)
	into place.job_id, place.attempt, seen, deleted
	from next l order by l.job_id desc, l.attempt desc limit 1;
end $$;

-- Attempts past their number, of jobs that have ended badly, soon after that; of those that
-- succeeded, when the job goes.
create or replace function outbox.retain_attempts_per_job(
	walk outbox.retention_walk, most integer,
	out place outbox.retention_walk, out seen bigint, out deleted bigint)
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	unclaimed constant timestamptz := outbox.claims_begin();
begin
	place := walk;
	with next as materialized (
		select n.* from outbox.next_ended_badly(
			walk, least(unclaimed, outbox.now() - interval '10 seconds'), most) n
	), gone as (
		delete from outbox.attempt a using next n
		where a.job_id = n.job_id and a.attempt <= n.attempt - walk.keep_s
		returning 1
	)
	select l.finished_at, l.job_id, (select count(*) from next), (select count(*) from gone)
	into place.finished_at, place.job_id, seen, deleted
	from next l order by l.finished_at desc, l.job_id desc limit 1;
end $$;

-- claims_begin(): attempts that ended before this instant are in no claim any more. Without
-- their rows, a claim that still names them would pass for being in flight.
create or replace function outbox.claims_begin() returns timestamptz
	language sql stable
	set search_path = pg_catalog, pg_temp
	as $$ select coalesce(min(c.claimed_at), 'infinity') from outbox.claim c $$;

-- Dedupe keys of jobs that have ended or are gone, by key, in rounds.
create or replace function outbox.retain_dedupe_keys(
	walk outbox.retention_walk, most integer,
	out place outbox.retention_walk, out seen bigint, out deleted bigint)
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
begin
	place := walk;
	with next as materialized (
		select d.tenant_key, d.key, d.job_id from outbox.dedupe d
		where (d.tenant_key, d.key) > (walk.tenant_key, walk.key)
		order by d.tenant_key, d.key limit most
	), gone as (
		delete from outbox.dedupe d using next n
		where d.tenant_key = n.tenant_key and d.key = n.key and d.job_id = n.job_id
			and d.job_id < outbox.id_at(outbox.now() - outbox.seconds(walk.keep_s))
			and outbox.job_has_ended(n.job_id)
		returning 1
	)
	select l.tenant_key, l.key, (select count(*) from next), (select count(*) from gone)
	into place.tenant_key, place.key, seen, deleted
	from next l order by l.tenant_key desc, l.key desc limit 1;
end $$;

-- seconds(count) as an interval.
create or replace function outbox.seconds(count bigint) returns interval
	language sql immutable parallel safe
	as $$ select count * interval '1 second' $$;
