-- What a handler's "ok" may do in the settle transaction, and hooks. All of it runs with
-- the privileges and the search path of the role that settles: for that reason none of the
-- functions that lead here (settle, recover, cancel, …) is a security definer or fixes the
-- path. The planner's settings, which settle pins for itself, are back to normal here.

-- commit_statements(job, commits): runs the named statements of the kind's manifest.
-- commits: [{"name": "mark_welcomed", "args": ["u1"]}, …]; args are the statement's $1, $2, …
-- as text, cast by the server to what the statement needs. Only what PREPARE takes can be a
-- statement: one select, insert, update, delete, values or merge, without a semicolon in it.
create or replace function outbox.commit_statements(job outbox.job, commits text)
	returns void language plpgsql
	set plan_cache_mode = auto
	set enable_seqscan = on
	set enable_hashjoin = on
	set enable_mergejoin = on
as $$
declare
	item record;
	statement text;
	arguments text;
begin
	if commits is null then
		return;
	end if;
	for item in
		select c.value ->> 'name' as name, coalesce(c.value -> 'args', '[]') as args
		from pg_catalog.json_array_elements(commits::json) with ordinality c (value, n) order by c.n
	loop
		select k.commits ->> item.name into statement from outbox.kind k where k.name = job.kind;
		if statement is null then
			raise exception 'commit statement "%" is not declared for kind "%"', item.name, job.kind
				using errcode = '42704';
		end if;
		if position(';' in rtrim(statement, E'; \t\r\n')) > 0 then
			raise exception 'commit statement "%" contains a semicolon', item.name
				using errcode = '42601';
		end if;
		select coalesce('(' || string_agg(quote_nullable(a.value), ', ' order by a.n) || ')', '')
		into arguments
		from pg_catalog.json_array_elements_text(item.args) with ordinality a (value, n);
		if exists (select from pg_catalog.pg_prepared_statements p where p.name = 'outbox_commit') then
			deallocate outbox_commit; -- left by a call that failed
		end if;
		execute 'prepare outbox_commit as ' || statement;
		execute 'execute outbox_commit ' || arguments;
		deallocate outbox_commit;
	end loop;
end $$;

-- enqueue_follow_ups(job, follow_ups): enqueues the documents of a handler: [{"kind",
-- "payload", "dedupe_key", "dedupe", "tenant_key", "delay", "run_at", "priority",
-- "max_attempts", "metadata", "version", "subject_key", "correlation_id", "traceparent"}].
-- Tenant, subject, correlation id and trace are those of the job unless given. Payload and
-- metadata are stored byte for byte, whatever text they contain.
create or replace function outbox.enqueue_follow_ups(job outbox.job, follow_ups text)
	returns void language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	mark constant text := gen_random_uuid();
	marked json;
	item jsonb; -- but for payload and metadata
begin
	if follow_ups is null then
		return;
	end if;
	for marked in
		select f.value
		from json_array_elements(outbox.mark_escapes(follow_ups, mark)::json) with ordinality f (value, n)
		order by f.n
	loop
		item := replace((marked::jsonb - 'payload' - 'metadata')::text, mark || '.', '');
		if position(mark in item::text) > 0 then
			raise exception 'a follow-up contains \u0000 or half of a surrogate pair outside its payload'
				using errcode = '22P05';
		end if;
		perform outbox.enqueue_strict(
			item ->> 'kind', outbox.unmark_escapes((marked -> 'payload')::text, mark),
			dedupe_key => item ->> 'dedupe_key',
			dedupe => coalesce(item ->> 'dedupe', 'forever'),
			tenant_key => coalesce(item ->> 'tenant_key', job.tenant_key),
			subject_key => coalesce(item ->> 'subject_key', job.subject_key),
			correlation_id => coalesce(item ->> 'correlation_id', job.correlation_id),
			traceparent => coalesce(item ->> 'traceparent', job.traceparent),
			delay => (item ->> 'delay')::interval,
			run_at => (item ->> 'run_at')::timestamptz,
			priority => coalesce((item ->> 'priority')::integer, 2),
			max_attempts => (item ->> 'max_attempts')::integer,
			metadata => outbox.unmark_escapes((marked -> 'metadata')::text, mark)::json,
			version => (item ->> 'version')::integer);
	end loop;
end $$;

-- call_hooks(job, outcome): calls every function registered for the transition, in the
-- order of registration, as f(job outbox.job, transition text).
create or replace function outbox.call_hooks(job outbox.job, outcome outbox.outcome)
	returns void language plpgsql
	set plan_cache_mode = auto
	set enable_seqscan = on
	set enable_hashjoin = on
	set enable_mergejoin = on
as $$
declare
	moved constant text := case outcome
		when 'succeeded' then 'succeeded' when 'dead' then 'dead'
		when 'cancelled' then 'cancelled' when 'released' then null else 'retrying' end;
	hook outbox.hook;
begin
	for hook in
		select h.* from outbox.hook h
		where h.transition = moved and (h.kind is null or h.kind = job.kind)
		order by h.id
	loop
		execute format('select %s($1, $2)', hook.function::regproc) using job, moved;
	end loop;
end $$;
