-- guardrails(login, …): limits for a role that logs in, so that no session of it can hold up
-- the others for long: one that sleeps in a transaction, which keeps vacuum from its work and
-- locks from everybody, is ended; one that waits for a lock gives up.
--
-- Settings of a group are not inherited by its members: it has to be done for each login role.
-- They hold for new sessions in this database. The caller needs the rights of ALTER ROLE.
create or replace function outbox.guardrails(
	login name, idle_in_transaction interval default '1 minute', lock_wait interval default '5 seconds')
	returns void language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
begin
	execute format('alter role %I in database %I set idle_in_transaction_session_timeout = %s',
		login, current_database(), (extract(epoch from idle_in_transaction) * 1000)::integer);
	execute format('alter role %I in database %I set lock_timeout = %s',
		login, current_database(), (extract(epoch from lock_wait) * 1000)::integer);
end $$;
