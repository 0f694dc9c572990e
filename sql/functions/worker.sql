-- Workers: one row an incarnation of a runner, kept alive by its claimer.

-- worker_hello(…): registers a worker (or finds it again), records what its manifests say of
-- each kind, and hands back the jobs of its claims that it never received: of claim
-- held_claims[i] it has the first held_received[i] jobs, of any other claim none. Claims that
-- another session makes for it meanwhile are left alone.
-- kinds: a JSON array of {kind, version, lane, timeout_ms, manifest}; manifest: see
-- kind_announce. Returns the jobs that were handed back.
-- Locks: the worker row, kinds in the order of their names, its claims, then jobs in id order.
create or replace function outbox.worker_hello(
	worker text, host text, pid integer, program_version text, lane text, lease_ms bigint,
	kinds json, held_claims bigint[], held_received integer[])
	returns table (job_id bigint) language plpgsql
	set enable_seqscan = off
	set enable_hashjoin = off
	set enable_mergejoin = off
	set jit = off
as $$
#variable_conflict use_column
declare
	mine bigint[];
begin
	insert into outbox.worker as w (id, host, pid, program_version, lane, lease_ms, kinds,
		versions, started_at, seen_at)
	select worker_hello.worker, worker_hello.host, worker_hello.pid,
		worker_hello.program_version, worker_hello.lane, worker_hello.lease_ms,
		coalesce(array_agg(k ->> 'kind'), '{}'),
		coalesce(array_agg(coalesce((k ->> 'version')::integer, 0)), '{}'),
		outbox.now(), outbox.now()
	from json_array_elements(coalesce(worker_hello.kinds, '[]')) k
	on conflict (id) do update set beat = w.beat + 1, seen_at = excluded.seen_at,
		lane = excluded.lane, lease_ms = excluded.lease_ms, kinds = excluded.kinds,
		versions = excluded.versions;
	perform outbox.refuse_schema(k) from json_array_elements(coalesce(worker_hello.kinds, '[]')) k;
	perform outbox.kind_announce(k, worker_hello.worker)
	from json_array_elements(coalesce(worker_hello.kinds, '[]')) k order by k ->> 'kind';
	mine := array(select c.id from outbox.claim c where c.worker = worker_hello.worker
		order by c.id for update);
	return query
	select s.job_id from outbox.settle_claimed('release', 'claim_lost', null, array(
		select row(c.id, c.worker, c.found, u.job_id, u.attempt)::outbox.claimed
		from outbox.claim c
		left join unnest(held_claims, held_received) h (id, received) on h.id = c.id
		cross join unnest(c.ids, c.attempts) with ordinality u (job_id, attempt, place)
		where c.id = any (mine) and u.place > coalesce(h.received, 0))) s;
	delete from outbox.claim c
	where c.id = any (mine)
		and not exists (select from unnest(held_claims, held_received) h (id, received)
			where h.id = c.id and h.received > 0);
end $$;

-- refuse_schema(kind): raises when a kind's payload schema, as announced, is malformed or has
-- what payload_issues does not support, instead of letting payloads pass unchecked.
create or replace function outbox.refuse_schema(kind json)
	returns void language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	schema constant json := (kind ->> 'manifest')::json -> 'payload' -> 'schema';
	issues json;
begin
	if schema is null or json_typeof(schema) = 'null' then
		return;
	end if;
	issues := outbox.schema_issues(schema);
	if issues is not null then
		raise exception 'payload schema of kind "%" cannot be used: % %', kind ->> 'kind',
			issues -> 0 ->> 'path', issues -> 0 ->> 'message'
			using errcode = '22023', detail = issues::text;
	end if;
end $$;

-- kind_announce(kind, worker): what a runner says of a kind. The highest version is kept, so
-- that an older runner never overwrites a newer manifest; of equal versions, the last word.
-- manifest: {"retry": {max_attempts, backoff_ms, backoff_max_ms, max_crashes,
-- warn_at_streak, codes: {CODE: {max_attempts, max_delay_ms, streak, on_exhaustion}}},
-- "commit": {NAME: STATEMENT}, "payload": {schema, max_bytes, max_depth}, "retention": {STATE: SECONDS}}
create or replace function outbox.kind_announce(kind json, worker text)
	returns void language sql
	set search_path = pg_catalog, pg_temp
	as $$
	insert into outbox.kind as o (name, lane, version, timeout_ms, max_attempts, backoff_ms,
		backoff_max_ms, max_crashes, warn_at_streak, codes, commits, payload_schema,
		max_payload_bytes, max_payload_depth, retention, updated_at, updated_by)
	select n.name, n.lane, n.version, n.timeout_ms,
		coalesce((n.retry ->> 'max_attempts')::smallint, 8),
		coalesce((n.retry ->> 'backoff_ms')::bigint, 1000),
		coalesce((n.retry ->> 'backoff_max_ms')::bigint, 300000),
		coalesce((n.retry ->> 'max_crashes')::smallint, 3),
		(n.retry ->> 'warn_at_streak')::smallint,
		coalesce(n.retry -> 'codes', '{}'), coalesce(n.manifest -> 'commit', '{}'),
		nullif(n.manifest -> 'payload' -> 'schema', 'null'),
		coalesce((n.manifest -> 'payload' ->> 'max_bytes')::integer, 262144),
		coalesce((n.manifest -> 'payload' ->> 'max_depth')::integer, 500),
		coalesce(n.manifest -> 'retention', '{}'), outbox.now(), worker
	from (
		select kind ->> 'kind' as name, coalesce(kind ->> 'lane', 'default') as lane,
			coalesce((kind ->> 'version')::integer, 0) as version,
			coalesce((kind ->> 'timeout_ms')::bigint, 30000) as timeout_ms,
			coalesce((kind ->> 'manifest')::jsonb, '{}') as manifest,
			coalesce((kind ->> 'manifest')::jsonb -> 'retry', '{}') as retry) n
	on conflict (name) do update set lane = excluded.lane, version = excluded.version,
		timeout_ms = excluded.timeout_ms, max_attempts = excluded.max_attempts,
		backoff_ms = excluded.backoff_ms, backoff_max_ms = excluded.backoff_max_ms,
		max_crashes = excluded.max_crashes, warn_at_streak = excluded.warn_at_streak,
		codes = excluded.codes, commits = excluded.commits,
		payload_schema = excluded.payload_schema,
		max_payload_bytes = excluded.max_payload_bytes,
		max_payload_depth = excluded.max_payload_depth, retention = excluded.retention,
		updated_at = excluded.updated_at, updated_by = excluded.updated_by
	where excluded.version >= o.version
		and (o.lane, o.version, o.timeout_ms, o.max_attempts, o.backoff_ms, o.backoff_max_ms,
			o.max_crashes, o.warn_at_streak, o.codes, o.commits, o.payload_schema,
			o.max_payload_bytes, o.max_payload_depth, o.retention)
		is distinct from (excluded.lane, excluded.version, excluded.timeout_ms,
			excluded.max_attempts, excluded.backoff_ms, excluded.backoff_max_ms,
			excluded.max_crashes, excluded.warn_at_streak, excluded.codes, excluded.commits,
			excluded.payload_schema, excluded.max_payload_bytes, excluded.max_payload_depth,
			excluded.retention)
	$$;

-- worker_beat(workers): one beat for each; returns those that are registered.
create or replace function outbox.worker_beat(workers text[])
	returns table (worker text, beat bigint) language sql
	set search_path = pg_catalog, pg_temp
	as $$
	update outbox.worker w set beat = w.beat + 1, seen_at = outbox.now()
	where w.id in (select o.id from outbox.worker o where o.id = any (workers)
		order by o.id for update)
	returning w.id, w.beat
	$$;

-- worker_bye(worker): an orderly end; what it still held (nothing, if it was orderly) is
-- handed back uncharged.
create or replace function outbox.worker_bye(worker text)
	returns void language plpgsql
as $$
begin
	perform outbox.release_claims(array(
		select c.id from outbox.claim c where c.worker = worker_bye.worker));
	delete from outbox.worker w where w.id = worker_bye.worker;
end $$;
