-- fence(job_id, attempt): for a handler's own transaction: returns while the attempt is in
-- flight, and from then on the attempt cannot be ended by anybody (settle, recover) until
-- the transaction ends; raises OB001 when the attempt is over, so that the handler's writes
-- roll back.
--
-- It holds the attempt's key by inserting and deleting it: whoever wants to insert the key
-- waits for this transaction and then finds it free.
create or replace function outbox.fence(job_id bigint, attempt integer)
	returns void language plpgsql security definer
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
begin
	begin
		insert into outbox.attempt (job_id, attempt, outcome, kind, finished_at)
		values (job_id, attempt, 'released', '', outbox.now());
	exception when unique_violation then
		raise exception 'attempt % of job % is over', attempt, job_id using errcode = 'OB001';
	end;
	delete from outbox.attempt a where a.job_id = fence.job_id and a.attempt = fence.attempt;
	if not exists (
		select from outbox.claim c cross join unnest(c.ids, c.attempts) u (job_id, attempt)
		where c.ids @> array[fence.job_id] and u.job_id = fence.job_id and u.attempt = fence.attempt)
	then
		raise exception 'attempt % of job % is not in flight', attempt, job_id
			using errcode = 'OB001';
	end if;
end $$;
