-- Enqueueing, inside the caller's transaction.
--
--   select * from outbox.enqueue('email.welcome', '{"user_id":"u1"}', dedupe_key => 'u1');
--   -> status, id, kind, existing_kind, issues
--
-- status: created; exists (id is the existing job's); dedupe_conflict (the key belongs to a
-- job of existing_kind; id is that job's); invalid_payload (issues: [{path, message}]).
-- A value past a limit raises 22023, naming the parameter and the limit.
--
-- Locks: the row of the dedupe key, if one is given: a producer that finds the key in an
-- uncommitted transaction waits for it. REPEATABLE READ callers may get 40001 there.
--
-- Only the entry points fix the search path; the functions below them run with it. A setting
-- in each would cost a third of the time of an enqueue.

-- json_is_deeper(document, levels): whether brackets nest deeper than `levels`, without a
-- parser's stack. Strings go first, then every round removes the innermost pair, so the
-- number of rounds is the depth. A document with few brackets is not looked at twice.
create or replace function outbox.json_is_deeper(document text, levels integer)
	returns boolean language plpgsql immutable parallel safe
as $$
declare
	brackets text;
begin
	if length(document) - length(translate(document, '[{', '')) <= levels then
		return false;
	end if;
	brackets := regexp_replace(document, E'"(?:\\\\.|[^"\\\\])*"', '', 'g');
	brackets := translate(regexp_replace(brackets, '[^][{}]', '', 'g'), '{}', '[]');
	for i in 1 .. levels loop
		brackets := replace(brackets, '[]', '');
		exit when brackets = '';
	end loop;
	-- what is left of a cut document is not nesting, unless it is too much for a parser
	return position('[]' in brackets) > 0 or length(brackets) > levels;
end $$;

-- refuse_key(name, value): raises when a short text is empty or longer than 512 bytes.
create or replace function outbox.refuse_key(name text, value text)
	returns void language plpgsql immutable parallel safe
as $$
begin
	if value = '' then
		raise exception '% must not be empty', name using errcode = '22023';
	end if;
	if octet_length(value) > 512 then
		raise exception '% is % bytes long, the limit is 512', name, octet_length(value)
			using errcode = '22023';
	end if;
end $$;

-- check_job(…): refuses what no job may be, and returns when the job is due. is_known: the
-- kind has been announced, and its name was checked then; max_bytes and max_depth are its
-- limits for a payload. (A level takes two bytes at least: most payloads are too short to be
-- too deep. To match the kind and to count brackets would be a sixth of an enqueue; a counted
-- repetition in the pattern makes a machine of a hundred states at each match.)
create or replace function outbox.check_job(
	kind text, payload text, is_known boolean, max_bytes integer, max_depth integer,
	dedupe_key text,
	tenant_key text, subject_key text, correlation_id text, traceparent text,
	delay interval, run_at timestamptz, priority integer, max_attempts integer,
	metadata json, version integer)
	returns timestamptz language plpgsql stable
as $$
declare
	now timestamptz := outbox.now();
begin
	if not is_known and (kind is null or kind !~ '^[a-z0-9][a-z0-9._-]*$' or length(kind) > 100)
	then
		raise exception 'kind % must match ^[a-z0-9][a-z0-9._-]{0,99}$', quote_nullable(left(kind, 120))
			using errcode = '22023';
	end if;
	if payload is null then
		raise exception 'payload must not be null' using errcode = '22023';
	end if;
	if octet_length(payload) > max_bytes then
		raise exception 'payload is % bytes long, the limit is % for kind "%"',
			octet_length(payload), max_bytes, kind using errcode = '22023';
	end if;
	if octet_length(payload) > 2 * max_depth and outbox.json_is_deeper(payload, max_depth) then
		raise exception 'payload nesting is deeper than the limit of % levels for kind "%"',
			max_depth, kind using errcode = '22023';
	end if;
	if metadata is not null then
		if octet_length(metadata::text) > 16384 then
			raise exception 'metadata is % bytes long, the limit is 16384',
				octet_length(metadata::text) using errcode = '22023';
		end if;
		if outbox.json_is_deeper(metadata::text, 100) then
			raise exception 'metadata nesting is deeper than the limit of 100 levels'
				using errcode = '22023';
		end if;
	end if;
	if dedupe_key is not null then perform outbox.refuse_key('dedupe_key', dedupe_key); end if;
	if tenant_key is not null then perform outbox.refuse_key('tenant_key', tenant_key); end if;
	if subject_key is not null then perform outbox.refuse_key('subject_key', subject_key); end if;
	if correlation_id is not null then
		perform outbox.refuse_key('correlation_id', correlation_id);
	end if;
	if traceparent is not null then perform outbox.refuse_key('traceparent', traceparent); end if;
	if priority is null or priority not between 1 and 4 then
		raise exception 'priority % must be between 1 (first) and 4 (last)',
			coalesce(priority::text, 'null') using errcode = '22023';
	end if;
	if max_attempts not between 1 and 10000 then
		raise exception 'max_attempts % must be between 1 and 10000', max_attempts
			using errcode = '22023';
	end if;
	if version < 1 then
		raise exception 'version % must be at least 1', version using errcode = '22023';
	end if;
	if delay is null and run_at is null then
		return now;
	end if;
	if delay is not null and run_at is not null then
		raise exception 'delay and run_at must not be given together' using errcode = '22023';
	end if;
	if delay < interval '0' or delay > interval '10 years' then
		raise exception 'delay % must be between 0 and 10 years', delay using errcode = '22023';
	end if;
	if not isfinite(run_at) or run_at > now + interval '10 years' then
		raise exception 'run_at % must be finite and within 10 years', run_at
			using errcode = '22023';
	end if;
	return greatest(now, coalesce(run_at, now + delay));
end $$;

-- job_has_ended(job_id): whether nothing is owed and nothing runs; a job that retention has
-- deleted has ended.
create or replace function outbox.job_has_ended(job_id bigint)
	returns boolean language sql stable
	set search_path = pg_catalog, pg_temp
	as $$ select coalesce(outbox.job_state(job_has_ended.job_id)
		in ('succeeded', 'dead', 'cancelled'), true) $$;

-- take_dedupe_key(…): makes the key point to job `new_id` and returns null, or returns the
-- row that holds it. mode forever: a key is never free again; until_done: it is free when
-- its job has ended.
create or replace function outbox.take_dedupe_key(
	tenant_key text, key text, mode text, new_id bigint, kind text)
	returns outbox.dedupe language plpgsql
as $$
#variable_conflict use_column
declare
	tenant constant text := coalesce(take_dedupe_key.tenant_key, '');
	held outbox.dedupe;
begin
	loop
		insert into outbox.dedupe as d (tenant_key, key, job_id, kind)
		values (tenant, take_dedupe_key.key, new_id, take_dedupe_key.kind)
		on conflict do nothing;
		if found then
			return null;
		end if;
		if mode = 'until_done' then
			select d.* into held from outbox.dedupe d
			where d.tenant_key = tenant and d.key = take_dedupe_key.key for update;
			if found and outbox.job_has_ended(held.job_id) then
				update outbox.dedupe d set job_id = new_id, kind = take_dedupe_key.kind
				where d.tenant_key = tenant and d.key = take_dedupe_key.key;
				return null;
			end if;
		else
			select d.* into held from outbox.dedupe d
			where d.tenant_key = tenant and d.key = take_dedupe_key.key;
		end if;
		-- not found: the holder went away between the two statements; try again
		if held.job_id is not null then
			return held;
		end if;
	end loop;
end $$;

-- kind_rules(kind): lane and limits of a kind; a kind that no runner has announced yet has
-- the defaults, in lane default.
create or replace function outbox.kind_rules(
	kind text, out is_known boolean, out lane text, out notify boolean, out pooled boolean,
	out max_bytes integer, out max_depth integer, out has_schema boolean)
	language plpgsql stable
as $$
begin
	select k.lane, k.max_payload_bytes, k.max_payload_depth, k.payload_schema is not null
	into lane, max_bytes, max_depth, has_schema
	from outbox.kind k where k.name = kind_rules.kind;
	is_known := found;
	if not is_known then
		lane := 'default';
		max_bytes := 262144;
		max_depth := 500;
		has_schema := false;
	end if;
	select l.notify, l.pooled into notify, pooled from outbox.lane l where l.name = lane;
	if not found then
		notify := true;
		pooled := false;
	end if;
end $$;

create or replace function outbox.enqueue(
	kind text,
	payload text,
	dedupe_key text default null,         -- at most 512 bytes, as every key
	dedupe text default 'forever',        -- or 'until_done'
	tenant_key text default null,
	subject_key text default null,        -- who asked
	correlation_id text default null,
	traceparent text default null,
	delay interval default null,          -- from now; or:
	run_at timestamptz default null,
	priority integer default 2,           -- 1 (first) to 4 (last)
	max_attempts integer default null,    -- null: the kind's
	metadata json default null,           -- at most 16 KiB
	version integer default null)         -- least handler version that may run it
	returns outbox.enqueue_result language plpgsql security definer
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
	rules record;
	due_at timestamptz;
	issues json;
	new_id bigint;
	held outbox.dedupe;
	has_notified boolean; -- an assignment costs less than perform
begin
	rules := outbox.kind_rules(kind);
	-- What needs no more looking at, in one expression: each statement of check_job costs as
	-- much as this. Null where something is null that must not be.
	if rules.is_known and dedupe in ('forever', 'until_done') and priority between 1 and 4
		and octet_length(payload) <= least(rules.max_bytes, 2 * rules.max_depth)
		and coalesce(octet_length(dedupe_key), 1) between 1 and 512
		and num_nonnulls(tenant_key, subject_key, correlation_id, traceparent, delay, run_at,
			max_attempts, metadata, version) = 0
	then
		due_at := outbox.now();
	else
		if dedupe is null or dedupe not in ('forever', 'until_done') then
			raise exception 'dedupe % must be "forever" or "until_done"', quote_nullable(dedupe)
				using errcode = '22023';
		end if;
		due_at := outbox.check_job(kind, payload, rules.is_known, rules.max_bytes,
			rules.max_depth, dedupe_key, tenant_key, subject_key, correlation_id, traceparent,
			delay, run_at, priority, max_attempts, metadata, version);
	end if;
	if rules.has_schema then
		issues := outbox.payload_issues(kind, payload::json);
		if issues is not null then
			return ('invalid_payload', null, kind, null, issues)::outbox.enqueue_result;
		end if;
	end if;
	new_id := outbox.new_id();
	if dedupe_key is not null then
		held := outbox.take_dedupe_key(tenant_key, dedupe_key, dedupe, new_id, kind);
		if held.job_id is not null then
			if held.kind <> kind then
				return ('dedupe_conflict', held.job_id, kind, held.kind, null)::outbox.enqueue_result;
			end if;
			return ('exists', held.job_id, kind, null, null)::outbox.enqueue_result;
		end if;
	end if;
	insert into outbox.job (id, created_at, run_at, priority, max_attempts, version, kind,
		tenant_key, subject_key, correlation_id, traceparent, dedupe_key, payload, metadata)
	values (new_id, outbox.now(), due_at, priority, max_attempts, version, kind,
		tenant_key, subject_key, correlation_id, traceparent, dedupe_key, payload::json, metadata);
	insert into outbox.ready (kind, priority, due_at, job_id, version, attempt)
	values (kind, priority, due_at, new_id, coalesce(version, 0), 0);
	has_notified := outbox.nudge(kind, rules.lane, rules.notify, rules.pooled);
	return ('created', new_id, kind, null, null)::outbox.enqueue_result;
end $$;

-- The same for callers that bind json or jsonb. (jsonb reorders and trims: what it made of
-- the document is what is stored.)
create or replace function outbox.enqueue(
	kind text, payload json, dedupe_key text default null, dedupe text default 'forever',
	tenant_key text default null, subject_key text default null,
	correlation_id text default null, traceparent text default null,
	delay interval default null, run_at timestamptz default null, priority integer default 2,
	max_attempts integer default null, metadata json default null, version integer default null)
	returns outbox.enqueue_result language sql
	as $$ select outbox.enqueue(kind, payload::text, dedupe_key, dedupe, tenant_key,
		subject_key, correlation_id, traceparent, delay, run_at, priority, max_attempts,
		metadata, version) $$;

create or replace function outbox.enqueue(
	kind text, payload jsonb, dedupe_key text default null, dedupe text default 'forever',
	tenant_key text default null, subject_key text default null,
	correlation_id text default null, traceparent text default null,
	delay interval default null, run_at timestamptz default null, priority integer default 2,
	max_attempts integer default null, metadata jsonb default null, version integer default null)
	returns outbox.enqueue_result language sql
	as $$ select outbox.enqueue(kind, payload::text, dedupe_key, dedupe, tenant_key,
		subject_key, correlation_id, traceparent, delay, run_at, priority, max_attempts,
		metadata::json, version) $$;

-- enqueue_strict(…): as enqueue, and returns the id, of the new job or of the existing one
-- with the same key; raises 23505 on dedupe_conflict and 22023 on invalid_payload, so that
-- the business write rolls back.
create or replace function outbox.enqueue_strict(
	kind text, payload text, dedupe_key text default null, dedupe text default 'forever',
	tenant_key text default null, subject_key text default null,
	correlation_id text default null, traceparent text default null,
	delay interval default null, run_at timestamptz default null, priority integer default 2,
	max_attempts integer default null, metadata json default null, version integer default null)
	returns bigint language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	result outbox.enqueue_result := outbox.enqueue(kind, payload, dedupe_key, dedupe,
		tenant_key, subject_key, correlation_id, traceparent, delay, run_at, priority,
		max_attempts, metadata, version);
begin
	if result.status = 'dedupe_conflict' then
		raise exception 'dedupe_key "%" belongs to job % of kind "%"', dedupe_key, result.id,
			result.existing_kind using errcode = '23505';
	elsif result.status = 'invalid_payload' then
		raise exception 'payload of kind "%" is invalid: % %', kind,
			coalesce(nullif(result.issues -> 0 ->> 'path', ''), 'it'), result.issues -> 0 ->> 'message'
			using errcode = '22023', detail = result.issues::text;
	end if;
	return result.id;
end $$;

create or replace function outbox.enqueue_strict(
	kind text, payload json, dedupe_key text default null, dedupe text default 'forever',
	tenant_key text default null, subject_key text default null,
	correlation_id text default null, traceparent text default null,
	delay interval default null, run_at timestamptz default null, priority integer default 2,
	max_attempts integer default null, metadata json default null, version integer default null)
	returns bigint language sql
	as $$ select outbox.enqueue_strict(kind, payload::text, dedupe_key, dedupe, tenant_key,
		subject_key, correlation_id, traceparent, delay, run_at, priority, max_attempts,
		metadata, version) $$;

create or replace function outbox.enqueue_strict(
	kind text, payload jsonb, dedupe_key text default null, dedupe text default 'forever',
	tenant_key text default null, subject_key text default null,
	correlation_id text default null, traceparent text default null,
	delay interval default null, run_at timestamptz default null, priority integer default 2,
	max_attempts integer default null, metadata jsonb default null, version integer default null)
	returns bigint language sql
	as $$ select outbox.enqueue_strict(kind, payload::text, dedupe_key, dedupe, tenant_key,
		subject_key, correlation_id, traceparent, delay, run_at, priority, max_attempts,
		metadata::json, version) $$;
