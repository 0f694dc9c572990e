-- erase_tenant(tenant, batch, after, triggered_by): deletes the jobs of a tenant with their
-- history and keys. One step: of the next `batch` job ids of the table after `after`, so that
-- a transaction stays small however few of them are the tenant's. Jobs in flight are cancelled
-- and left for a later call. Returns
--   erased     jobs, also those of which only history was left
--   in_flight  jobs that were left
--   next       where the next step goes on; null: this was the last one
-- Commit after each step, and start again from 0 until a pass erases nothing and leaves
-- nothing: a transaction that was open meanwhile may have enqueued lower ids.
-- The steps of a pass after the greatest id delete keys that have outlived their jobs.
-- Locks: jobs in id order, then keys in their order.
create or replace function outbox.erase_tenant(
	tenant text, batch integer default 1000, after bigint default 0,
	triggered_by text default null,
	out erased integer, out in_flight integer, out next bigint)
	language plpgsql
	set enable_seqscan = off
	set enable_hashjoin = off
	set enable_mergejoin = off
	set jit = off
as $$
#variable_conflict use_variable
declare
	greatest_id constant bigint := 9223372036854775807;
	upto bigint;
	ids bigint[];
	owed bigint[];
	running bigint[];
begin
	if tenant is null then
		raise exception 'tenant must not be null' using errcode = '22023';
	end if;
	if batch is null or batch < 1 then
		raise exception 'batch % must be at least 1', coalesce(batch::text, 'null')
			using errcode = '22023';
	end if;
	perform outbox.require_read_committed();
	if after = greatest_id then
		erased := 0;
		in_flight := 0;
		next := case when outbox.erase_keys(tenant, batch) = batch then after end;
		return;
	end if;
	upto := coalesce(outbox.last_id_of_step(after, batch), greatest_id);
	ids := array(
		select j.id from outbox.job j
		where j.id > after and j.id <= upto and j.tenant_key = tenant
		order by j.id for update);
	with removed as (
		delete from outbox.ready r using outbox.job j
		where j.id = any (ids) and r.kind = j.kind and r.priority = j.priority
			and r.job_id = j.id and r.due_at = any (outbox.due_candidates(j.id, j.run_at))
		returning r.job_id)
	select coalesce(array_agg(d.job_id), '{}') into owed from removed d;
	running := array(
		select i.id from unnest(ids) i (id)
		where i.id <> all (owed) and not outbox.job_has_ended(i.id));
	perform outbox.act_on_ids('cancel', running, triggered_by, 'the tenant is erased');
	in_flight := cardinality(running);
	erased := outbox.erase_jobs(tenant, after, upto,
		array(select i.id from unnest(ids) i (id) where i.id <> all (running)));
	next := upto;
end $$;

-- last_id_of_step(after, batch): the id that ends a step: it has at most `batch` jobs and about
-- as many attempts, or null when what is left is less than that.
create or replace function outbox.last_id_of_step(after bigint, batch integer)
	returns bigint language sql stable
	set search_path = pg_catalog, pg_temp
	as $$ select least(
		(select j.id from outbox.job j where j.id > after
			order by j.id offset batch - 1 limit 1),
		(select a.job_id from outbox.attempt a where a.job_id > after
			order by a.job_id offset batch - 1 limit 1)) $$;

-- erase_jobs(tenant, after, upto, ids): deletes these jobs, which are locked and out of ready,
-- and in (after, upto] the history of the tenant whose job is gone. Returns of how many jobs.
create or replace function outbox.erase_jobs(
	tenant text, after bigint, upto bigint, ids bigint[])
	returns integer language sql
	set search_path = pg_catalog, pg_temp
	as $$
	with attempts as (
		delete from outbox.attempt a
		where a.job_id > after and a.job_id <= upto and a.tenant_key = tenant
			and (a.job_id = any (ids)
				or not exists (select from outbox.job j where j.id = a.job_id))
		returning a.job_id
	), jobs as (
		delete from outbox.job j where j.id = any (ids)
		returning j.id, j.dedupe_key
	), keys as materialized (
		select d.tenant_key, d.key from outbox.dedupe d join jobs j on j.id = d.job_id
		where d.tenant_key = tenant and d.key = j.dedupe_key
		order by d.key for update of d
	), freed as (
		delete from outbox.dedupe d using keys k
		where d.tenant_key = k.tenant_key and d.key = k.key
	), gone as materialized (
		select a.job_id as id from attempts a union select j.id from jobs j
	), rearms as (
		delete from outbox.rearm m using gone g where m.job_id = g.id
	), cancels as (
		delete from outbox.cancel c using gone g where c.job_id = g.id
	)
	select count(*)::integer from gone
	$$;

-- erase_keys(tenant, most): deletes keys of the tenant that have outlived their jobs; returns
-- how many.
create or replace function outbox.erase_keys(tenant text, most integer)
	returns integer language sql
	set search_path = pg_catalog, pg_temp
	as $$
	with keys as materialized (
		select d.tenant_key, d.key from outbox.dedupe d
		where d.tenant_key = tenant
			and not exists (select from outbox.job j where j.id = d.job_id)
		order by d.key limit most for update
	), freed as (
		delete from outbox.dedupe d using keys k
		where d.tenant_key = k.tenant_key and d.key = k.key
		returning 1
	)
	select count(*)::integer from freed
	$$;
