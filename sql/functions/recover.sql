-- recover(worker): gives back what a dead worker held: each attempt that has not ended is
-- recorded as lost (charged to max_crashes only) and owed again, or dead by the policy; then
-- the worker is forgotten. Returns the attempts that were recorded. Does nothing while
-- another session recovers the same worker.
-- Locks: the worker row, the claims, then jobs in id order.
create or replace function outbox.recover(worker text)
	returns setof outbox.settled language plpgsql
	set enable_seqscan = off
	set enable_hashjoin = off
	set enable_mergejoin = off
	set jit = off
as $$
#variable_conflict use_column
declare
	held outbox.claimed[];
	is_registered boolean;
begin
	perform from outbox.worker w where w.id = recover.worker for update skip locked;
	is_registered := found;
	if not is_registered and exists (select from outbox.worker w where w.id = recover.worker) then
		return;
	end if;
	with mine as materialized (
		select c.* from outbox.claim c where c.worker = recover.worker
		order by c.id for update skip locked)
	select array_agg(row(m.id, m.worker, m.found, u.job_id, u.attempt)::outbox.claimed)
	into held
	from mine m cross join unnest(m.ids, m.attempts) u (job_id, attempt)
	where not exists (select from outbox.attempt a
		where a.job_id = u.job_id and a.attempt = u.attempt);
	if held is not null then
		return query select * from outbox.settle_claimed('lost', 'worker_lost',
			'the runner ' || recover.worker || ' went away', held);
	end if;
	delete from outbox.claim c where c.worker = recover.worker
		and outbox.claim_is_over(c.ids, c.attempts);
	-- A row that has come since is of one that lives, and its lock is worker_hello's, which may be
	-- waiting for these claims.
	if is_registered then
		delete from outbox.worker w where w.id = recover.worker;
	end if;
end $$;

-- workers_to_watch(): what a sweeper watches: every worker with its beat and lease, and
-- every worker that is named by a claim and not registered (beat null): it is dead already.
create or replace function outbox.workers_to_watch()
	returns table (worker text, beat bigint, lease_ms bigint)
	language sql stable
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off
	set jit = off
	as $$
	with recursive gap as (
		select s.id as low, lead(s.id) over (order by s.id) as high
		from (select '' union select w.id from outbox.worker w) s (id)
	), skip as (
		select g.high, outbox.next_claimant(g.low, g.high) as worker from gap g
		union all
		select s.high, outbox.next_claimant(s.worker, s.high) from skip s
		where s.worker is not null
	)
	select w.id, w.beat, w.lease_ms from outbox.worker w
	union all
	select s.worker, null, 0 from skip s where s.worker is not null
	$$;

-- next_claimant(low, high): the first worker after low, and before high (null: any), that a claim
-- names. What is looked for is between the registered workers: the claims of these, and what is
-- left of those in the index behind an old snapshot, are not read.
create or replace function outbox.next_claimant(low text, high text)
	returns text language sql stable
	as $$ select case when high is null then (
			select c.worker from outbox.claim c where c.worker > low order by c.worker limit 1)
		else (
			select c.worker from outbox.claim c where c.worker > low and c.worker < high
			order by c.worker limit 1) end $$;

-- collect_claims_after(id, most): deletes claims behind this one all of whose attempts have
-- ended and that no settler has deleted, and cancels of jobs that have ended. collected: how
-- many claims; next_id: where the next look may start, because nothing is left before it,
-- except a claim that took a minute to commit. (A look from 0 walks over what the index keeps
-- behind an old snapshot.)
create or replace function outbox.collect_claims_after(
	id bigint, most integer default 1000, out collected integer, out next_id bigint)
	language plpgsql
	set search_path = pg_catalog, pg_temp
	set enable_seqscan = off
	set enable_hashjoin = off
	set enable_mergejoin = off
	set jit = off
as $$
#variable_conflict use_column
begin
	-- not with "in", of which a join of all claims with all claims may be made
	delete from outbox.claim c
	where c.id = any (array(
		select o.id from outbox.claim o
		where o.id > collect_claims_after.id
			and o.claimed_at < outbox.now() - interval '10 seconds'
			and outbox.claim_is_over(o.ids, o.attempts)
		order by o.id limit most for update skip locked));
	get diagnostics collected = row_count;
	delete from outbox.cancel c
	where outbox.job_has_ended(c.job_id) and c.requested_at < outbox.now() - interval '10 seconds';
	next_id := least(outbox.id_at(now() - interval '1 minute'),
		(select c.id - 1 from outbox.claim c where c.id > collect_claims_after.id
			order by c.id limit 1));
end $$;

-- collect_claims(most): the same among all claims; returns how many.
create or replace function outbox.collect_claims(most integer default 1000)
	returns integer language sql
	as 'select collected from outbox.collect_claims_after(0, most)';
