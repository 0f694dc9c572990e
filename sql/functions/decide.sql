-- decide(…): what the end of an attempt means, by the ledger and the kind's policy.
--
-- result: ok, retry, fail, cancel, lost, release (as runners report it).
-- after_ms: the handler's wish for the next attempt, or null.
-- Returns the outcome to record, the code, when the job is owed again (null: never), and a
-- warning (the code of a streak that reached the kind's warn_at_streak, or null).
--
-- Budgets count attempts in the ledger since the last replay or resend:
--   charged    failed attempts whose code has no max_attempts of its own
--   of a code  failed attempts with that code, against the code's max_attempts
--   streak     the last failed attempts in a row with this code
--   crashes    the last attempts in a row that were lost
-- released attempts count for nothing and interrupt nothing. After attempt 32767 there is
-- no other, whatever the budgets say: code attempt_limit.
create or replace function outbox.decide(
	job outbox.job, attempt smallint, result text, result_code text, after_ms bigint,
	out outcome outbox.outcome, out code text, out next_at timestamptz, out warning text)
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
	now constant timestamptz := outbox.now();
	policy outbox.kind;
	rearmed outbox.rearm;
	rule jsonb;
	ledger record;
	failures integer; -- that count against the limit below, with this one
	most integer;
	streak integer;
	delay_ms double precision;
	wish_ms constant bigint := least(greatest(coalesce(after_ms, 0), 0), 315360000000); -- 10 years
begin
	code := result_code;
	if attempt = 32767 and result in ('retry', 'lost', 'release') then
		outcome := 'dead'; -- there is no number for another attempt
		code := 'attempt_limit';
		return;
	end if;
	case result
		when 'ok' then outcome := 'succeeded'; code := null; return;
		when 'fail' then outcome := 'dead'; return;
		when 'cancel' then outcome := 'cancelled'; return;
		when 'release' then
			outcome := 'released';
			next_at := now + wish_ms * interval '1 millisecond';
			return;
		when 'retry', 'lost' then null;
		else raise exception 'outcome % is not known', quote_nullable(result)
			using errcode = '22023';
	end case;

	select k.* into policy from outbox.kind k where k.name = job.kind;
	if not found then
		policy := outbox.default_policy(job.kind);
	end if;
	select m.* into rearmed from outbox.rearm m where m.job_id = job.id order by m.id desc limit 1;
	rule := coalesce(outbox.built_in_rules() -> code, '{}') || coalesce(policy.codes -> code, '{}');

	select count(*) filter (where a.outcome = 'failed'
			and policy.codes -> a.code ->> 'max_attempts' is null) as charged,
		count(*) filter (where a.outcome = 'failed' and a.code is not distinct from decide.code) as of_code,
		count(*) filter (where a.outcome = 'failed') as failed,
		coalesce(max(a.attempt) filter (where a.outcome in ('failed', 'lost')
			and (a.outcome = 'lost' or a.code is distinct from decide.code)), 0) as other,
		coalesce(max(a.attempt) filter (where a.outcome not in ('lost', 'released')), 0) as alive
	into ledger
	from outbox.attempt a
	where a.job_id = job.id and a.attempt < decide.attempt
		and a.attempt > coalesce(rearmed.budget_from, 0);

	if result = 'lost' then
		select count(*) + 1 into failures from outbox.attempt a
		where a.job_id = job.id and a.attempt > greatest(ledger.alive, coalesce(rearmed.budget_from, 0))
			and a.attempt < decide.attempt and a.outcome = 'lost';
		if failures >= policy.max_crashes then
			outcome := 'dead';
			code := 'crash_loop';
			return;
		end if;
		outcome := 'lost';
		delay_ms := outbox.backoff_ms(failures, policy.backoff_ms, policy.backoff_max_ms);
		next_at := now + delay_ms * interval '1 millisecond';
		return;
	end if;

	select count(*) + 1 into streak from outbox.attempt a
	where a.job_id = job.id and a.attempt > greatest(ledger.other, coalesce(rearmed.budget_from, 0))
		and a.attempt < decide.attempt and a.outcome = 'failed';
	if rearmed.budget is not null then
		failures := ledger.failed + 1;
		most := rearmed.budget;
	elsif rule ->> 'max_attempts' is not null then
		failures := ledger.of_code + 1;
		most := (rule ->> 'max_attempts')::integer;
	else
		failures := ledger.charged + 1;
		most := coalesce(job.max_attempts, policy.max_attempts);
	end if;
	if streak >= policy.warn_at_streak then
		warning := coalesce(code, 'failed');
	end if;
	if failures >= most or streak >= (rule ->> 'streak')::integer then
		outcome := case rule ->> 'on_exhaustion' when 'cancel' then 'cancelled' else 'dead' end;
		return;
	end if;
	outcome := 'failed';
	delay_ms := greatest(wish_ms,
		outbox.backoff_ms(failures, policy.backoff_ms, policy.backoff_max_ms));
	next_at := now + least(delay_ms, (rule ->> 'max_delay_ms')::bigint) * interval '1 millisecond';
end $$;

-- built_in_rules(): rules of codes that hold unless the kind has its own.
create or replace function outbox.built_in_rules() returns jsonb
	language sql immutable parallel safe
	as $$ select '{"timeout": {"streak": 5}, "invalid_payload": {"streak": 3}}'::jsonb $$;

-- default_policy(kind): a kind row with the defaults, for a kind nobody announced.
create or replace function outbox.default_policy(kind text) returns outbox.kind
	language plpgsql stable
	set search_path = pg_catalog, pg_temp
as $$
declare
	policy outbox.kind;
begin
	policy.name := kind;
	policy.lane := 'default';
	policy.version := 0;
	policy.timeout_ms := 30000;
	policy.max_attempts := 8;
	policy.backoff_ms := 1000;
	policy.backoff_max_ms := 300000;
	policy.max_crashes := 3;
	policy.codes := '{}';
	policy.commits := '{}';
	return policy;
end $$;

-- backoff_ms(failures, base_ms, most_ms): base doubled per failure after the first, at most
-- most_ms, then a random point in its upper half. The exponent is clamped before it is used.
create or replace function outbox.backoff_ms(failures integer, base_ms bigint, most_ms bigint)
	returns double precision language sql volatile
	as $$ select least(most_ms, base_ms * 2.0 ^ least(greatest(failures - 1, 0), 40))
		* (0.5 + random() / 2) $$;
