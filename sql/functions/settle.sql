-- Settling: an attempt ends once, by inserting its row into attempt. Whoever inserts first
-- wins; whatever is said of that attempt later changes nothing. That insert's commit is the
-- instant of success.

-- settle(…): one array an attribute of outbox.result; element i of each describes result i.
-- An array may be null when the attribute is null everywhere. In afters_ms, durations_ms and
-- exit_statuses -1 is null: an array without nulls is read in constant time an element.
-- done_claims: claims that have no unsettled job left as far as the caller knows; the ones
-- for which that is true are deleted.
--
-- A result that does not come back has been recorded as the success that it says. Of one
-- that comes back, the row tells what it has become, also when it had been recorded before and
-- only the answer was lost; with outcome null it was refused: the attempt was over already, or
-- was never handed out, and nothing has changed for it.
--
-- Results that are plainly "ok" go in with one statement; all others, and everything when
-- one of the plain ones is refused, go one by one through settle_one.
-- Errors of a handler's commit statements, follow-ups and hooks settle that attempt as
-- commit_failed or hook_failed; errors that may go away (40001, 40P01, 53*, 55P03, 57*,
-- 58*, 25006) are raised: settle again.
--
-- Locks: the claims in id order, which whoever ends attempts of a claim (recover,
-- worker_hello) takes first, so that they wait for each other and do not deadlock; then per
-- result in the order of (job_id, attempt) what settle_one locks.
create or replace function outbox.settle(
	claim_ids bigint[], claim_indexes integer[], job_ids bigint[], attempts smallint[],
	outcomes text[], codes text[], errors text[], responses text[],
	responses_are_json boolean[], afters_ms bigint[], reasons text[], started_us bigint[],
	durations_ms bigint[], exit_statuses integer[], signals integer[], commits text[],
	follow_ups text[], dropped_bytes bigint[], done_claims bigint[])
	returns setof outbox.settled language plpgsql
	set plan_cache_mode = force_generic_plan
	set enable_seqscan = off
	set enable_hashjoin = off
	set enable_mergejoin = off
	set jit = off
	set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
	-- jobs whose success is recorded with more: a cancel that came too late, or who asked for
	-- the first attempt
	not_plain bigint[] := '{}';
	plain integer := 0; -- results that settle_plain takes
	are_cancelled boolean;
	are_asked_for boolean;
	are_hooked boolean; -- a hook can concern every result: then none is plain
	item outbox.result;
	one outbox.settled;
begin
	perform from outbox.claim c where c.id = any (claim_ids || done_claims)
	order by c.id for update;
	select exists (select from outbox.cancel),
		exists (select from outbox.rearm m where m.from_attempt = 0),
		exists (select from outbox.hook h where h.transition = 'succeeded')
	into are_cancelled, are_asked_for, are_hooked;
	if are_cancelled then
		not_plain := array(select w.job_id from outbox.cancel w where w.job_id = any (job_ids));
	end if;
	if are_asked_for then
		not_plain := not_plain || array(select m.job_id from outbox.rearm m
			where m.from_attempt = 0 and m.job_id = any (job_ids));
	end if;
	if not are_hooked then
		-- usually all, which is seen without a query
		if commits is null and follow_ups is null and not_plain = '{}' and 'ok' = all (outcomes)
		then
			plain := cardinality(job_ids);
		else
			plain := (select count(*) from unnest(job_ids, outcomes, commits, follow_ups)
					r (job_id, outcome, commits, follow_ups)
				where r.outcome = 'ok' and r.commits is null and r.follow_ups is null
					and r.job_id <> all (not_plain));
		end if;
	end if;
	if plain > 0 then
		begin
			if outbox.settle_plain(claim_ids, claim_indexes, job_ids, attempts, outcomes,
				responses, responses_are_json, started_us, durations_ms, exit_statuses,
				commits, follow_ups, dropped_bytes, not_plain) < plain
			then
				raise unique_violation;
			end if;
		exception when unique_violation then
			plain := 0;
		end;
	end if;
	if plain < cardinality(job_ids) then
		for item in
			select c.id, r.claim_index, r.job_id, r.attempt, r.outcome, r.code, r.error,
				r.response, r.response_is_json, nullif(r.after_ms, -1), r.reason, r.started_us,
				nullif(r.duration_ms, -1), nullif(r.exit_status, -1), r.signal, r.commits,
				r.follow_ups, r.dropped_bytes, c.worker, c.found
			from unnest(claim_ids, claim_indexes, job_ids, attempts, outcomes, codes, errors,
				responses, responses_are_json, afters_ms, reasons, started_us, durations_ms,
				exit_statuses, signals, commits, follow_ups, dropped_bytes)
				r (claim_id, claim_index, job_id, attempt, outcome, code, error, response,
				response_is_json, after_ms, reason, started_us, duration_ms, exit_status, signal,
				commits, follow_ups, dropped_bytes)
			-- one look for each: else all claims may be read, when vacuum has found few
			left join lateral (
				select * from outbox.claim h where h.id = r.claim_id limit 1) c
				on c.ids[r.claim_index] = r.job_id and c.attempts[r.claim_index] = r.attempt
			where not (plain > 0 and r.outcome = 'ok' and r.commits is null
				and r.follow_ups is null and r.job_id <> all (not_plain))
			order by r.job_id, r.attempt
		loop
			one := null;
			if item.claim_id is not null then
				one := outbox.settle_one(item);
			end if;
			if one.job_id is null then
				one := outbox.settled_before(item);
			end if;
			one.job_id := item.job_id;
			one.attempt := item.attempt;
			return next one;
		end loop;
	end if;
	-- When all results were plain, a claim with all of its jobs among them is over.
	delete from outbox.claim c
	where c.id = any (done_claims) and case
		when plain = cardinality(job_ids) and cardinality(c.ids)
			= (select count(*) from unnest(claim_ids) u (id) where u.id = c.id) then true
		else outbox.claim_is_over(c.ids, c.attempts) end;
end $$;

-- settle_plain(…): records the results that are plainly "ok" (settle says which these are),
-- as long as their claims stand; not_plain: jobs whose results are not. Returns how many it
-- has recorded. Raises unique_violation if an attempt was over already.
--
-- The few claims are hashed: looking one up for each result would be a fifth of the work.
create or replace function outbox.settle_plain(
	claim_ids bigint[], claim_indexes integer[], job_ids bigint[], attempts smallint[],
	outcomes text[], responses text[], responses_are_json boolean[], started_us bigint[],
	durations_ms bigint[], exit_statuses integer[], commits text[], follow_ups text[],
	dropped_bytes bigint[], not_plain bigint[])
	returns integer language plpgsql
	set enable_hashjoin = on
	set enable_nestloop = off
as $$
#variable_conflict use_column
declare
	recorded integer;
begin
	with held as materialized (
		select c.id, c.worker, c.found, c.ids, c.attempts
		from outbox.claim c where c.id = any (claim_ids)
	)
	insert into outbox.attempt (job_id, started_at, finished_at, duration_ms, dropped_bytes,
		outcome, trigger, found, attempt, exit_status, kind, worker, tenant_key, subject_key,
		correlation_id, traceparent, triggered_by, reason, response)
	select r.job_id, outbox.time_at(r.started_us), outbox.now(),
		outbox.clamp_int4(r.duration_ms), outbox.clamp_int4(nullif(r.dropped_bytes, 0)),
		'succeeded',
		case when (r.asked).id is null then 'automatic' else 'manual' end::outbox.trigger,
		h.found, r.attempt, r.exit_status, j.kind, h.worker, j.tenant_key, j.subject_key,
		j.correlation_id, j.traceparent,
		(r.asked).triggered_by, (r.asked).reason,
		case when r.response_is_json then r.response::json else to_json(r.response) end
	-- two arrays of texts, and the others by subscript: a third of the cost
	from (
		select claim_ids[i] as claim_id, claim_indexes[i] as claim_index,
			job_ids[i] as job_id, attempts[i] as attempt, o.outcome, o.response,
			responses_are_json[i] as response_is_json, started_us[i] as started_us,
			nullif(durations_ms[i], -1) as duration_ms,
			nullif(exit_statuses[i], -1) as exit_status, commits[i] as commits,
			follow_ups[i] as follow_ups, dropped_bytes[i] as dropped_bytes,
			case when attempts[i] > 1
				then outbox.rearm_of(job_ids[i], attempts[i]) end as asked
		from unnest(outcomes, responses) with ordinality o (outcome, response, n)
		cross join lateral (select o.n::integer as i) t) r
	join held h on h.id = r.claim_id
	cross join lateral (
		select j.kind, j.tenant_key, j.subject_key, j.correlation_id, j.traceparent
		from outbox.job j where j.id = r.job_id limit 1) j
	where r.outcome = 'ok' and r.commits is null and r.follow_ups is null
		and r.job_id <> all (not_plain)
		and h.ids[r.claim_index] = r.job_id and h.attempts[r.claim_index] = r.attempt
	order by r.job_id, r.attempt;
	get diagnostics recorded = row_count;
	return recorded;
end $$;

-- settled_before(r): what the attempt has become, if it is this run of it that was recorded:
-- no other began at the same instant. Else null.
create or replace function outbox.settled_before(r outbox.result)
	returns outbox.settled language sql stable
	as $$ select (a.job_id, a.attempt, a.kind, a.outcome, a.code, a.next_at, a.duration_ms,
			a.worker, null)::outbox.settled
		from outbox.attempt a
		where a.job_id = r.job_id and a.attempt = r.attempt
			and a.started_at = outbox.time_at(r.started_us) $$;

-- claim_is_over(ids, attempts): whether each of a claim's attempts has ended, or its job is
-- gone.
create or replace function outbox.claim_is_over(ids bigint[], attempts smallint[])
	returns boolean language sql stable
	as $$ select not exists (
		select from unnest(ids, attempts) u (job_id, attempt)
		where not exists (select from outbox.attempt a
			where a.job_id = u.job_id and a.attempt = u.attempt)
		and exists (select from outbox.job j where j.id = u.job_id)) $$;

-- clamp_int4(value): as an integer, the largest one when it does not fit. (Not with least(),
-- which passes over null; not strict, which would keep it from being inlined.)
create or replace function outbox.clamp_int4(value bigint) returns integer
	language sql immutable parallel safe
	as 'select case when value > 2147483647 then 2147483647 else value end::integer';

-- rearm_of_attempt(job_id, attempt): the replay, resend or retry-now that this attempt is
-- the first one after, if it is one.
create or replace function outbox.rearm_of_attempt(job_id bigint, attempt smallint)
	returns setof outbox.rearm language sql stable
	as $$ select m.* from (
		select * from outbox.rearm r
		where r.job_id = rearm_of_attempt.job_id
		order by r.id desc limit 1) m
	where m.from_attempt = rearm_of_attempt.attempt - 1 $$;

-- rearm_of(job_id, attempt): the same as a value, or null. Never inlined: that few attempts have
-- one makes it cheaper to call than to prepare. Volatile, so that nothing calls it twice.
create or replace function outbox.rearm_of(job_id bigint, attempt smallint)
	returns outbox.rearm language sql volatile
	as $$ select m from outbox.rearm_of_attempt(job_id, attempt) m $$;

-- settle_one(r): ends one attempt that a standing claim has handed out (the caller checked).
-- Returns null in job_id when it was over already or its job is gone.
-- Locks: the job row, which keeps operators out, then the attempt's key.
create or replace function outbox.settle_one(r outbox.result)
	returns outbox.settled language plpgsql
as $$
declare
	job outbox.job;
	cancel outbox.cancel;
	stage text;
	with_hooks boolean := true;
	one outbox.settled;
begin
	select j.* into job from outbox.job j where j.id = r.job_id for no key update;
	if not found then
		return null;
	end if;
	select c.* into cancel from outbox.cancel c where c.job_id = r.job_id;
	if r.commits is null and r.follow_ups is null and not exists (select from outbox.hook) then
		return outbox.attempt_end(job, r, cancel);
	end if;
	for try in 1 .. 3 loop
		begin
			stage := 'commit_failed';
			one := outbox.attempt_end(job, r, cancel);
			if one.outcome = 'succeeded' then
				perform outbox.commit_statements(job, r.commits);
				perform outbox.enqueue_follow_ups(job, r.follow_ups);
			end if;
			stage := 'hook_failed';
			if with_hooks and one.job_id is not null then
				perform outbox.call_hooks(job, one.outcome);
			end if;
			return one;
		exception
			when serialization_failure or deadlock_detected or lock_not_available
				or insufficient_resources or operator_intervention or system_error
				or read_only_sql_transaction then
				raise;
			when others then
				if try = 3 then
					raise;
				end if;
				r.error := concat_ws(E'\n', r.error,
					format('%s: %s (%s)', stage, left(sqlerrm, 2000), sqlstate));
				-- A success is withdrawn and charged as a failure. Any other end stands,
				-- without hooks: one that fails must not bring a dead job back.
				if r.outcome = 'ok' then
					r.outcome := 'retry';
					r.code := stage;
				else
					with_hooks := false;
				end if;
		end;
	end loop;
end $$;

-- attempt_end(job, r, cancel): records the end of the attempt and, if the job is owed again,
-- its row in ready. A cancel that was asked for meanwhile wins over being owed again; beside
-- a success it is only noted.
create or replace function outbox.attempt_end(
	job outbox.job, r outbox.result, cancel outbox.cancel)
	returns outbox.settled language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	verdict record;
	rearmed outbox.rearm;
	reason text := r.reason;
	triggered_by text;
	duration_ms constant integer := outbox.clamp_int4(r.duration_ms);
begin
	verdict := outbox.decide(job, r.attempt, r.outcome, r.code, r.after_ms);
	select m.* into rearmed from outbox.rearm_of_attempt(job.id, r.attempt) m;
	triggered_by := rearmed.triggered_by;
	reason := coalesce(reason, rearmed.reason);
	if cancel.job_id is not null then
		if verdict.next_at is not null or verdict.outcome = 'cancelled' then
			verdict.outcome := 'cancelled';
			verdict.next_at := null;
			triggered_by := cancel.cancelled_by;
			reason := cancel.reason;
		else
			reason := concat_ws(': ', 'cancel requested by ' || cancel.cancelled_by, cancel.reason);
		end if;
	end if;
	insert into outbox.attempt (job_id, started_at, finished_at, next_at, duration_ms,
		dropped_bytes, outcome, trigger, found, attempt, exit_status, signal, kind, code, worker,
		tenant_key, subject_key, correlation_id, traceparent, triggered_by, reason, error, response)
	values (job.id, outbox.time_at(r.started_us), outbox.now(), verdict.next_at, duration_ms,
		outbox.clamp_int4(nullif(r.dropped_bytes, 0)), verdict.outcome,
		case when rearmed.job_id is null then 'automatic' else 'manual' end::outbox.trigger,
		r.found, r.attempt, r.exit_status, nullif(r.signal, 0), job.kind, verdict.code, r.worker,
		job.tenant_key, job.subject_key, job.correlation_id, job.traceparent, triggered_by,
		reason, r.error,
		case when r.response_is_json then r.response::json else to_json(r.response) end)
	on conflict do nothing;
	if not found then
		return null;
	end if;
	if cancel.job_id is not null then
		delete from outbox.cancel c where c.job_id = job.id;
	end if;
	if verdict.next_at is not null then
		insert into outbox.ready (kind, priority, due_at, job_id, version, attempt)
		values (job.kind, job.priority, verdict.next_at, job.id, coalesce(job.version, 0), r.attempt);
		perform outbox.nudge(job.kind);
	end if;
	return (job.id, r.attempt, job.kind, verdict.outcome, verdict.code, verdict.next_at,
		duration_ms, r.worker, verdict.warning)::outbox.settled;
end $$;

-- settle_claimed(outcome, code, error, items): ends attempts whose runner cannot speak for
-- them, in id order. Returns the accepted ones.
create or replace function outbox.settle_claimed(
	outcome text, code text, error text, items outbox.claimed[])
	returns setof outbox.settled language plpgsql
	set lock_timeout = '2s'
as $$
declare
	item outbox.claimed;
	r outbox.result;
	one outbox.settled;
begin
	for item in
		select * from unnest(items) u order by u.job_id, u.attempt
	loop
		r.claim_id := item.claim_id;
		r.job_id := item.job_id;
		r.attempt := item.attempt;
		r.outcome := outcome;
		r.code := code;
		r.error := error;
		r.worker := item.worker;
		r.found := item.found;
		one := outbox.settle_one(r);
		if one.job_id is not null then
			return next one;
		end if;
	end loop;
end $$;
