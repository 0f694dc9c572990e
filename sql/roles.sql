-- Roles: who may do what with the schema outbox. `outbox migrate --roles` applies this file,
-- and every later `outbox migrate` does so again; by hand: psql --single-transaction -f roles.sql.
-- It may be repeated. The caller owns the schema, and may create roles if they are missing.
--
-- The roles are groups that nobody logs in to. Give them to roles that log in, and give those
-- their guardrails, which members do not inherit from a group:
--
--   create role shop login; grant outbox_producer to shop; select outbox.guardrails('shop');
--
--   outbox_producer  enqueues, and fences its handlers' transactions; reads nothing else
--   outbox_worker    outbox-claim, outbox-settle, outbox-sweep and outbox-listen
--   outbox_operator  cancels, replays, resends, pauses, schedules, erases; reads everything
--   outbox_viewer    reads everything, payloads included, and changes nothing
--
-- What a handler commits with its result, and hooks, run with the rights of outbox-settle's
-- login: grant them to it, one by one. A statement without its grant ends that attempt with
-- the code commit_failed.
--
-- Nothing here is for PUBLIC. Producers can do what they can because their functions, and
-- only those, run with the rights of the schema's owner. All others run with the caller's:
-- there the rights on tables decide, and whoever may execute more than that gains nothing.

do $$
declare
	role name;
begin
	foreach role in array
		array['outbox_producer', 'outbox_worker', 'outbox_operator', 'outbox_viewer']
	loop
		if not exists (select from pg_catalog.pg_roles r where r.rolname = role) then
			begin
				execute format('create role %I nologin', role);
				perform outbox.guardrails(role); -- should it ever become a login
			exception when duplicate_object or unique_violation then
				null; -- another database of the cluster was faster
			end;
		end if;
	end loop;
	if not pg_catalog.pg_has_role('outbox_worker', 'outbox_producer', 'member') then
		grant outbox_producer to outbox_worker; -- a handler's follow-ups
	end if;
	if not pg_catalog.pg_has_role('outbox_operator', 'outbox_producer', 'member') then
		grant outbox_producer to outbox_operator;
	end if;
	if not pg_catalog.pg_has_role('outbox_operator', 'outbox_viewer', 'member') then
		grant outbox_viewer to outbox_operator;
	end if;
end $$;

revoke all on schema outbox
	from public, outbox_producer, outbox_worker, outbox_operator, outbox_viewer;
revoke all on all tables in schema outbox
	from public, outbox_producer, outbox_worker, outbox_operator, outbox_viewer;
revoke all on all sequences in schema outbox
	from public, outbox_producer, outbox_worker, outbox_operator, outbox_viewer;
revoke all on all routines in schema outbox
	from public, outbox_producer, outbox_worker, outbox_operator, outbox_viewer;

grant usage on schema outbox
	to outbox_producer, outbox_worker, outbox_operator, outbox_viewer;

-- To lock a row takes a right to update it: that of a column that means nothing to a job.
grant select, delete, update (traceparent) on outbox.job to outbox_worker, outbox_operator;

grant select, insert, update, delete on outbox.ready, outbox.claim, outbox.worker,
	outbox.retention_walk to outbox_worker;
grant select, insert, delete on outbox.attempt to outbox_worker;
grant select, delete on outbox.cancel, outbox.rearm, outbox.dedupe to outbox_worker;
grant select, insert, update on outbox.kind, outbox.lane to outbox_worker;
grant select, update on outbox.schedule to outbox_worker;
grant select on outbox.meta, outbox.hook, outbox.retention, outbox.jobs to outbox_worker;
grant usage on sequence outbox.job_seq to outbox_worker;

grant select (schema_version) on outbox.meta to outbox_producer; -- `outbox enqueue` asks first

grant select on all tables in schema outbox to outbox_viewer;

grant insert, update, delete on outbox.ready, outbox.cancel, outbox.dedupe, outbox.lane,
	outbox.schedule, outbox.hook to outbox_operator;
grant insert, delete on outbox.attempt, outbox.rearm to outbox_operator;
grant update on outbox.retention to outbox_operator;

grant execute on all routines in schema outbox to outbox_worker, outbox_operator;
revoke execute on function outbox.clock_move(interval) from outbox_worker, outbox_operator;

do $$
declare
	routine regprocedure;
begin
	for routine in
		select p.oid from pg_catalog.pg_proc p
		where p.pronamespace = 'outbox'::regnamespace
			and p.proname in ('enqueue', 'enqueue_many', 'enqueue_strict', 'fence', 'schema_version')
	loop
		execute format('grant execute on function %s to outbox_producer', routine);
	end loop;
	for routine in
		select p.oid from pg_catalog.pg_proc p
		where p.pronamespace = 'outbox'::regnamespace and p.provolatile <> 'v'
	loop
		execute format('grant execute on function %s to outbox_viewer', routine);
	end loop;
end $$;
