-- Tenants. Whoever looks at a job or acts on it may name a scope: tenant => 'x' (jobs of this
-- tenant), no_tenant => true (jobs without one), neither (any). A job outside the scope is
-- not found.

create or replace function outbox.in_scope(tenant_key text, tenant text, no_tenant boolean)
	returns boolean language sql immutable parallel safe
	as $$ select (tenant is null or tenant_key is not distinct from tenant)
		and (tenant_key is null or no_tenant is not true) $$;

-- require_read_committed(): operating on a job means to lock it and then to look: only in READ
-- COMMITTED do the statements that follow see what the lock waited for.
create or replace function outbox.require_read_committed() returns void
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
begin
	if current_setting('transaction_isolation') <> 'read committed' then
		raise exception 'operating on jobs needs the isolation level read committed, not %',
			current_setting('transaction_isolation') using errcode = '25001';
	end if;
end $$;

-- lock_job(job_id, tenant, no_tenant): locks a job's row, which keeps away other operators and
-- the settling of failures, and returns it; null in id when it is not found.
create or replace function outbox.lock_job(job_id bigint, tenant text, no_tenant boolean)
	returns outbox.job language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	job outbox.job;
begin
	perform outbox.require_read_committed();
	select j.* into job from outbox.job j
	where j.id = lock_job.job_id
		and outbox.in_scope(j.tenant_key, lock_job.tenant, lock_job.no_tenant)
	for update;
	return job;
end $$;
