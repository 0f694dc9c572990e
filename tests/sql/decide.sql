-- decide: what the end of an attempt means, by the ledger and the kind's policy.
begin;
\ir helpers.psql
select * from no_plan();

-- Decides the end of the attempt after a ledger, given as "outcome code, …", for a job of a
-- kind with this retry policy; the job may have a max_attempts of its own. Rearms: "action
-- from_attempt budget_from budget". Returns "outcome code warning" and the delay.
create function test.decide(retry text, ledger text, result text, code text default null,
	after_ms bigint default null, job_max integer default null, rearms text default null,
	out verdict text, out delay_ms bigint)
	language plpgsql as $$
#variable_conflict use_variable
declare
	id bigint;
	job outbox.job;
	d record;
begin
	perform test.announce('tried', coalesce(retry, '{}')::json);
	id := outbox.enqueue_strict('tried', '{}', max_attempts => job_max);
	insert into outbox.attempt (job_id, attempt, outcome, code, kind, finished_at)
	select id, e.n, split_part(e.entry, ' ', 1)::outbox.outcome, nullif(split_part(e.entry, ' ', 2), ''), 'tried', now()
	from regexp_split_to_table(nullif(ledger, ''), ', *') with ordinality e (entry, n);
	insert into outbox.rearm (job_id, created_at, due_at, action, from_attempt, budget_from, budget, triggered_by)
	select id, now(), now(), e.f[1], e.f[2]::smallint, e.f[3]::smallint, nullif(e.f[4], '-')::smallint, 'alice'
	from (select string_to_array(entry, ' ') as f
		from regexp_split_to_table(rearms, ', *') entry) e;
	select j.* into job from outbox.job j where j.id = id;
	select * into d from outbox.decide(job, (select count(*) + 1 from outbox.attempt a where a.job_id = id)::smallint, result, code, after_ms);
	verdict := concat_ws(' ', d.outcome, d.code, 'warning ' || d.warning);
	delay_ms := round(extract(epoch from d.next_at - outbox.now()) * 1000);
end $$;

-- ---- verdicts: policy, ledger, result, code → verdict; the job is owed again after some of them

create table test.cases (n serial, policy text, ledger text, result text, code text, verdict text, label text);
insert into test.cases (policy, ledger, result, code, verdict, label) values
	-- plain ends
	(null, '', 'ok', null, 'succeeded', 'ok'),
	(null, '', 'ok', 'odd', 'succeeded', 'ok has no code'),
	(null, '', 'fail', null, 'dead', 'fail'),
	(null, '', 'fail', 'bounced', 'dead bounced', 'fail with a code'),
	(null, '', 'cancel', 'gone', 'cancelled gone', 'cancel'),
	(null, '', 'retry', null, 'failed', 'retry'),
	(null, '', 'retry', 'exit_1', 'failed exit_1', 'retry with a code'),
	(null, '', 'release', 'drained', 'released drained', 'release'),
	(null, '', 'lost', 'worker_lost', 'lost worker_lost', 'lost'),
	-- max_attempts
	('{"max_attempts":1}', '', 'retry', 'x', 'dead x', 'one attempt is all'),
	('{"max_attempts":3}', 'failed a, failed b', 'retry', 'c', 'dead c', 'the third of three'),
	('{"max_attempts":3}', 'failed a', 'retry', 'a', 'failed a', 'the second of three'),
	(null, 'failed, failed, failed, failed, failed, failed', 'retry', null, 'failed', 'the default is 8: the seventh'),
	(null, 'failed, failed, failed, failed, failed, failed, failed', 'retry', null, 'dead', 'the eighth'),
	-- released and lost are not charged
	('{"max_attempts":2}', 'released drained, released claim_late, released no_handler', 'retry', 'a', 'failed a', 'released is charged to nothing'),
	('{"max_attempts":2}', 'lost, lost', 'retry', 'a', 'failed a', 'lost is not charged to max_attempts'),
	('{"max_attempts":2}', 'failed a, released, lost', 'retry', 'a', 'dead a', 'what lies between does not matter'),
	('{"max_attempts":1}', 'failed a', 'release', 'drained', 'released drained', 'a release is never the end'),
	-- crashes: consecutive
	(null, 'lost', 'lost', 'worker_lost', 'lost worker_lost', 'the second crash'),
	(null, 'lost, lost', 'lost', 'worker_lost', 'dead crash_loop', 'the third in a row'),
	(null, 'lost, released, lost', 'lost', 'w', 'dead crash_loop', 'released does not interrupt them'),
	(null, 'lost, lost, failed a', 'lost', 'w', 'lost w', 'a failure does'),
	(null, 'lost, failed a, lost', 'lost', 'w', 'lost w', 'so these are two'),
	('{"max_crashes":1}', '', 'lost', 'w', 'dead crash_loop', 'max_crashes 1'),
	('{"max_crashes":5}', 'lost, lost, lost', 'lost', 'w', 'lost w', 'max_crashes 5'),
	('{"max_attempts":1}', 'failed a', 'lost', 'w', 'lost w', 'crashes do not look at max_attempts'),
	-- budgets of codes
	('{"max_attempts":2,"codes":{"busy":{"max_attempts":4}}}', 'failed busy, failed busy', 'retry', 'busy', 'failed busy', 'the third of four with this code'),
	('{"max_attempts":2,"codes":{"busy":{"max_attempts":4}}}', 'failed busy, failed busy, failed busy', 'retry', 'busy', 'dead busy', 'the fourth'),
	('{"max_attempts":2,"codes":{"busy":{"max_attempts":4}}}', 'failed busy, failed busy', 'retry', 'a', 'failed a', 'failures with a budget of their own are not charged to the others'),
	('{"max_attempts":2,"codes":{"busy":{"max_attempts":4}}}', 'failed busy, failed a', 'retry', 'a', 'dead a', 'the second of the others'),
	('{"max_attempts":2,"codes":{"busy":{"max_attempts":4}}}', 'failed a, failed busy', 'retry', 'busy', 'failed busy', 'and not the other way round'),
	('{"max_attempts":9,"codes":{"busy":{"max_attempts":1}}}', '', 'retry', 'busy', 'dead busy', 'a budget smaller than the kind''s'),
	('{"max_attempts":2,"codes":{"busy":{"max_delay_ms":5}}}', 'failed busy', 'retry', 'busy', 'dead busy', 'a code without a budget is charged to the kind''s'),
	('{"max_attempts":2,"codes":{"busy":{"max_attempts":null}}}', 'failed busy', 'retry', 'busy', 'dead busy', 'null is without'),
	-- streaks
	('{"codes":{"bounced":{"streak":2}}}', 'failed bounced', 'retry', 'bounced', 'dead bounced', 'two in a row'),
	('{"codes":{"bounced":{"streak":2}}}', 'failed bounced, failed a', 'retry', 'bounced', 'failed bounced', 'interrupted by another code'),
	('{"codes":{"bounced":{"streak":2}}}', 'failed bounced, failed', 'retry', 'bounced', 'failed bounced', 'or by a failure without one'),
	('{"codes":{"bounced":{"streak":2}}}', 'failed bounced, lost', 'retry', 'bounced', 'failed bounced', 'or by a crash'),
	('{"codes":{"bounced":{"streak":2}}}', 'failed bounced, lost bounced', 'retry', 'bounced', 'failed bounced', 'whatever its code'),
	('{"codes":{"bounced":{"streak":2}}}', 'failed bounced, released', 'retry', 'bounced', 'dead bounced', 'not by a release'),
	('{"codes":{"bounced":{"streak":2,"on_exhaustion":"cancel"}}}', 'failed bounced', 'retry', 'bounced', 'cancelled bounced', 'on_exhaustion cancel'),
	('{"codes":{"bounced":{"streak":2,"on_exhaustion":"dead"}}}', 'failed bounced', 'retry', 'bounced', 'dead bounced', 'on_exhaustion dead'),
	('{"max_attempts":1,"codes":{"bounced":{"on_exhaustion":"cancel"}}}', '', 'retry', 'bounced', 'cancelled bounced', 'on_exhaustion of any budget'),
	('{"max_attempts":9,"codes":{"bounced":{"max_attempts":5,"streak":3}}}', 'failed bounced, failed bounced', 'retry', 'bounced', 'dead bounced', 'whichever comes first'),
	(null, 'failed timeout, failed timeout, failed timeout', 'retry', 'timeout', 'failed timeout', 'built in: four timeouts in a row'),
	(null, 'failed timeout, failed timeout, failed timeout, failed timeout', 'retry', 'timeout', 'dead timeout', 'are the most'),
	(null, 'failed invalid_payload, failed invalid_payload', 'retry', 'invalid_payload', 'dead invalid_payload', 'built in: three invalid payloads'),
	('{"codes":{"timeout":{"streak":2}}}', 'failed timeout', 'retry', 'timeout', 'dead timeout', 'the kind''s own rule wins'),
	('{"codes":{"timeout":{"streak":null}}}', 'failed timeout, failed timeout, failed timeout, failed timeout', 'retry', 'timeout', 'failed timeout', 'also to have none'),
	('{"codes":{"timeout":{"max_delay_ms":9}}}', 'failed timeout, failed timeout, failed timeout, failed timeout', 'retry', 'timeout', 'dead timeout', 'another rule of that code leaves it'),
	-- warnings
	('{"warn_at_streak":2}', '', 'retry', 'a', 'failed a', 'no warning yet'),
	('{"warn_at_streak":2}', 'failed a', 'retry', 'a', 'failed a warning a', 'a warning'),
	('{"warn_at_streak":2}', 'failed', 'retry', null, 'failed warning failed', 'without a code'),
	('{"warn_at_streak":2}', 'failed a, failed b', 'retry', 'a', 'failed a', 'not of different codes'),
	('{"warn_at_streak":2,"max_attempts":2}', 'failed a', 'retry', 'a', 'dead a warning a', 'also with the end');

select is((d).verdict, c.verdict, c.label)
from test.cases c, lateral (select test.decide(c.policy, c.ledger, c.result, c.code) d offset 0) x order by n;
select is((d).delay_ms is not null, c.verdict ~ '^(failed|lost|released)', 'owed again or not: ' || c.label)
from test.cases c, lateral (select test.decide(c.policy, c.ledger, c.result, c.code) d offset 0) x order by n;

-- ---- max_attempts of the job; rearms

select is((test.decide(c.policy, c.ledger, c.result, c.code, null, c.job_max, c.rearms)).verdict, c.verdict, c.label)
from (values
	('{"max_attempts":9}', 'failed a', 'retry', 'a', 2, null, 'dead a', 'the job''s max_attempts is less'),
	('{"max_attempts":1}', 'failed a', 'retry', 'a', 3, null, 'failed a', 'the job''s max_attempts is more'),
	('{"codes":{"busy":{"max_attempts":2}}}', 'failed busy', 'retry', 'busy', 9, null, 'dead busy', 'a code''s budget is not the job''s'),
	('{"max_attempts":2}', 'failed a, dead a', 'retry', 'a', null, 'replay 2 2 -', 'failed a', 'a replay has the whole budget'),
	('{"max_attempts":2}', 'failed a, dead a, failed a', 'retry', 'a', null, 'replay 2 2 -', 'dead a', 'and no more'),
	('{"max_attempts":2}', 'dead a', 'retry', 'a', null, 'resend 1 1 1', 'dead a', 'a resend has one attempt'),
	('{"max_attempts":2}', 'dead a', 'retry', 'a', null, 'resend 1 1 3', 'failed a', 'or what was granted: the first'),
	('{"max_attempts":2}', 'dead a, failed a, failed b', 'retry', 'a', null, 'resend 1 1 3', 'dead a', 'the third of any code'),
	('{"codes":{"busy":{"max_attempts":9}}}', 'dead a, failed busy', 'retry', 'busy', null, 'resend 1 1 2', 'dead busy', 'also of one with a budget'),
	('{"max_attempts":2}', 'dead a', 'lost', 'w', null, 'resend 1 1 1', 'lost w', 'a crash does not use it up'),
	('{"max_attempts":3}', 'failed a', 'retry', 'a', null, 'retry_now 1 0 -', 'failed a', 'retry_now goes on with the budget'),
	('{"max_attempts":3}', 'failed a, failed a', 'retry', 'a', null, 'retry_now 1 0 -', 'dead a', 'to its end'),
	('{"max_attempts":2}', 'dead a, failed a', 'retry', 'a', null, 'replay 1 1 -, retry_now 2 1 -', 'dead a', 'the last rearm counts'),
	(null, 'lost, lost, dead crash_loop', 'lost', 'w', null, 'replay 3 3 -', 'lost w', 'crashes count from the rearm'),
	(null, 'lost, lost', 'lost', 'w', null, 'retry_now 2 0 -', 'dead crash_loop', 'unless it goes on'),
	('{"codes":{"x":{"streak":2}}}', 'failed x, dead x', 'retry', 'x', null, 'replay 2 2 -', 'failed x', 'streaks count from the rearm'),
	(null, 'succeeded', 'retry', 'a', null, 'resend 1 1 1', 'dead a', 'resending a success may kill the job')
) c (policy, ledger, result, code, job_max, rearms, verdict, label);

-- ---- delays

select is((test.decide(c.policy, c.ledger, c.result, c.code, c.after_ms)).delay_ms between c.least and c.most, true,
	format('%s: between %s and %s ms', c.label, c.least, c.most))
from (values
	('{"backoff_ms":1000}', '', 'retry', 'a', null::bigint, 500, 1000, 'the first retry'),
	('{"backoff_ms":1000}', 'failed a, failed a', 'retry', 'a', null, 2000, 4000, 'the third'),
	('{"backoff_ms":1000,"backoff_max_ms":3000}', 'failed a, failed a', 'retry', 'a', null, 1500, 3000, 'backoff_max'),
	('{"backoff_ms":1000,"max_attempts":200}', (select string_agg('failed a', ', ') from generate_series(1, 100)), 'retry', 'a', null, 150000, 300000, 'after a hundred'),
	('{"backoff_ms":1000}', 'released, lost', 'retry', 'a', null, 500, 1000, 'what is not charged does not count'),
	('{"backoff_ms":1000}', '', 'retry', 'a', 60000, 60000, 60000, 'after, when it is more'),
	('{"backoff_ms":1000}', '', 'retry', 'a', 1, 500, 1000, 'the backoff, when after is less'),
	('{"backoff_ms":0}', '', 'retry', 'a', 0, 0, 0, 'no backoff'),
	('{"backoff_ms":0}', '', 'retry', 'a', -5000, 0, 0, 'never in the past'),
	('{}', '', 'retry', 'a', 9223372036854775807, 315360000000, 315360000000, 'at most ten years'),
	('{"codes":{"a":{"max_delay_ms":7000}}}', '', 'retry', 'a', 60000, 7000, 7000, 'max_delay of the code cuts after'),
	('{"backoff_ms":9000,"codes":{"a":{"max_delay_ms":7}}}', '', 'retry', 'a', null, 7, 7, 'and the backoff'),
	('{"codes":{"a":{"max_delay_ms":7000}}}', '', 'retry', 'b', 60000, 60000, 60000, 'but not of other codes'),
	('{"backoff_ms":1000}', '', 'lost', 'w', null, 500, 1000, 'after a crash'),
	('{"backoff_ms":1000}', 'lost', 'lost', 'w', null, 1000, 2000, 'after the second'),
	('{}', '', 'release', 'drained', null, 0, 0, 'a release is due at once'),
	('{}', 'failed a, failed a', 'release', 'claim_late', 5000, 5000, 5000, 'or as asked'),
	('{}', '', 'release', 'claim_late', -1, 0, 0, 'not before'),
	('{}', '', 'release', 'claim_late', 9223372036854775807, 315360000000, 315360000000, 'at most ten years')
) c (policy, ledger, result, code, after_ms, least, most, label);
select is_empty($$select from generate_series(1, 1000) n, lateral outbox.backoff_ms(n, 1000, 300000) b (ms)
	where ms not between least(1000 * 2.0 ^ least(n - 1, 9), 300000) / 2 and 300000$$, 'backoff_ms stays in its half');
select ok(stddev(outbox.backoff_ms(5, 1000, 300000)) > 1000, 'and is spread') from generate_series(1, 100);

-- ---- the last number there is for an attempt

select is((select concat_ws(' ', d.outcome, d.code, d.next_at) from outbox.job j,
		lateral outbox.decide(j, 32767::smallint, r, 'x', null) d where j.kind = 'tried' limit 1),
	case r when 'ok' then 'succeeded' else 'dead attempt_limit' end, r || ' of attempt 32767')
from unnest(array['retry', 'lost', 'release', 'ok']) r;

-- ---- a kind that nobody announced; a result that is none

select test.enqueue('unknown') as id \gset
select results_eq(format('select d.outcome::text, d.next_at - now() between interval ''0.5 s'' and interval ''1 s''
	from outbox.job j, outbox.decide(j, 1::smallint, ''retry'', ''x'', null) d where j.id = %s', :id),
	$$values ('failed', true)$$, 'the default policy');
select throws_ok(format('select outbox.decide(j, 1::smallint, %L, null, null) from outbox.job j limit 1', r), '22023',
	format('outcome %s is not known', quote_nullable(r)), 'result ' || coalesce(r, 'null'))
from unnest(array['succeeded', '', null]) r;

select * from finish();
rollback;
