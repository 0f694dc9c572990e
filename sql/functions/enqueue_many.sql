-- enqueue_many(kinds, payloads, …): many jobs in few statements; one result a job, in order.
--
--   select * from outbox.enqueue_many(array['email.welcome'],
--     array['{"user_id":"u1"}', '{"user_id":"u2"}'], dedupe_keys => array['u1', 'u2']);
--   -> ordinality, status, id, kind, existing_kind, issues
--
-- Every array has as many elements as payloads, or one element that holds for all of them,
-- or is null. A value past a limit raises 22023, and text that is not JSON 22P02, naming the
-- element, and nothing is enqueued. Of two elements with the same dedupe key the first is
-- created and the second exists (or is a dedupe_conflict), in mode until_done as well.
-- Locks: dedupe keys in the order of (tenant, key), so that two callers never deadlock.
create or replace function outbox.enqueue_many(
	kinds text[], payloads text[], dedupe_keys text[] default null,
	dedupe text default 'forever', tenant_keys text[] default null,
	subject_keys text[] default null, correlation_ids text[] default null,
	traceparents text[] default null, delays interval[] default null,
	run_ats timestamptz[] default null, priorities integer[] default array[2],
	max_attempts integer[] default null, metadatas text[] default null,
	versions integer[] default null)
	returns table (ordinality integer, status text, id bigint, kind text,
		existing_kind text, issues json)
	language plpgsql security definer
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
	total constant integer := coalesce(cardinality(payloads), 0);
	n integer;
	item record;
	rules record;
	held outbox.dedupe;
	key_before text; -- of the loop over dedupe keys
	tenant_before text;
	documents json[] := array_fill(null::json, array[total]); -- the payloads
	new_ids bigint[] := array_fill(null::bigint, array[total]);
	due_ats timestamptz[] := array_fill(null::timestamptz, array[total]);
	statuses text[] := array_fill('created'::text, array[total]);
	found_ids bigint[] := array_fill(null::bigint, array[total]);
	found_kinds text[] := array_fill(null::text, array[total]);
	found_issues json[] := array_fill(null::json, array[total]);
begin
	if dedupe is null or dedupe not in ('forever', 'until_done') then
		raise exception 'dedupe % must be "forever" or "until_done"', quote_nullable(dedupe)
			using errcode = '22023';
	end if;
	payloads := payloads[:]; -- counted from 1
	kinds := outbox.spread(kinds, total, 'kinds');
	dedupe_keys := outbox.spread(dedupe_keys, total, 'dedupe_keys');
	tenant_keys := outbox.spread(tenant_keys, total, 'tenant_keys');
	subject_keys := outbox.spread(subject_keys, total, 'subject_keys');
	correlation_ids := outbox.spread(correlation_ids, total, 'correlation_ids');
	traceparents := outbox.spread(traceparents, total, 'traceparents');
	delays := outbox.spread(delays, total, 'delays');
	run_ats := outbox.spread(run_ats, total, 'run_ats');
	priorities := outbox.spread(priorities, total, 'priorities');
	max_attempts := outbox.spread(max_attempts, total, 'max_attempts');
	metadatas := outbox.spread(metadatas, total, 'metadatas');
	versions := outbox.spread(versions, total, 'versions');

	begin
		for i in 1 .. total loop
			n := i;
			if i = 1 or kinds[i] is distinct from kinds[i - 1] then
				rules := outbox.kind_rules(kinds[i]);
			end if;
			due_ats[i] := outbox.check_job(kinds[i], payloads[i], rules.is_known,
				rules.max_bytes, rules.max_depth, dedupe_keys[i], tenant_keys[i], subject_keys[i],
				correlation_ids[i], traceparents[i], delays[i], run_ats[i], priorities[i],
				max_attempts[i], metadatas[i]::json, versions[i]);
			documents[i] := payloads[i]::json;
			if rules.has_schema then
				found_issues[i] := outbox.payload_issues(kinds[i], documents[i]);
				if found_issues[i] is not null then
					statuses[i] := 'invalid_payload';
					continue;
				end if;
			end if;
			new_ids[i] := outbox.new_id();
		end loop;
	exception when invalid_parameter_value or invalid_text_representation then
		raise exception 'element %: %', n, sqlerrm using errcode = sqlstate;
	end;

	for item in
		select k.n::integer as n, coalesce(k.tenant, '') as tenant, k.key
		from unnest(tenant_keys, dedupe_keys) with ordinality k (tenant, key, n)
		where k.key is not null and statuses[k.n::integer] = 'created'
		order by coalesce(k.tenant, ''), k.key, k.n
	loop
		-- of the same key again the holder is known, though its job may not be in job yet
		if item.key is distinct from key_before or item.tenant <> tenant_before then
			key_before := item.key;
			tenant_before := item.tenant;
			held := outbox.take_dedupe_key(item.tenant, item.key, dedupe, new_ids[item.n],
				kinds[item.n]);
			if held.job_id is null then
				held.job_id := new_ids[item.n];
				held.kind := kinds[item.n];
			end if;
		end if;
		if held.job_id <> new_ids[item.n] then
			new_ids[item.n] := null;
			found_ids[item.n] := held.job_id;
			if held.kind <> kinds[item.n] then
				statuses[item.n] := 'dedupe_conflict';
				found_kinds[item.n] := held.kind;
			else
				statuses[item.n] := 'exists';
			end if;
		end if;
	end loop;

	insert into outbox.job (id, created_at, run_at, priority, max_attempts, version, kind,
		tenant_key, subject_key, correlation_id, traceparent, dedupe_key, payload, metadata)
	select e.id, outbox.now(), e.due, e.priority, e.attempts, e.version, e.kind, e.tenant,
		e.subject, e.correlation, e.trace, e.key, e.payload, e.metadata::json
	from unnest(new_ids, due_ats, priorities, max_attempts, versions, kinds, tenant_keys,
		subject_keys, correlation_ids, traceparents, dedupe_keys, documents, metadatas)
		e (id, due, priority, attempts, version, kind, tenant, subject, correlation, trace,
		key, payload, metadata)
	where e.id is not null;
	insert into outbox.ready (kind, priority, due_at, job_id, version, attempt)
	select e.kind, e.priority, e.due, e.id, coalesce(e.version, 0), 0
	from unnest(new_ids, due_ats, priorities, versions, kinds) e (id, due, priority, version, kind)
	where e.id is not null;

	for item in
		select distinct e.kind from unnest(kinds, new_ids) e (kind, id) where e.id is not null
	loop
		perform outbox.nudge(item.kind);
	end loop;
	return query
		select e.n::integer, e.status, coalesce(e.id, e.found_id), e.kind, e.found_kind, e.issues
		from unnest(statuses, new_ids, found_ids, kinds, found_kinds, found_issues)
			with ordinality e (status, id, found_id, kind, found_kind, issues, n)
		order by e.n;
end $$;

-- spread(array, total, name): an array of `total` elements, counted from 1, from one of one
-- element or of none; raises 22023 for any other length.
create or replace function outbox.spread(items anyarray, total integer, name text)
	returns anyarray language plpgsql immutable parallel safe
	set search_path = pg_catalog, pg_temp
as $$
begin
	if cardinality(items) = total then
		return items[:];
	elsif cardinality(items) > 1 then
		raise exception '% has % elements, not 1 or % as payloads', name,
			cardinality(items), total using errcode = '22023';
	end if;
	return array_fill(items[array_lower(items, 1)], array[total]);
end $$;
