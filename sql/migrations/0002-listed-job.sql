-- A row of list_jobs: a type of its own, because columns of the result have the names of
-- parameters.
create type outbox.listed_job as (
	id bigint, kind text, state text, tenant_key text, subject_key text,
	correlation_id text, attempts integer, code text, priority smallint,
	due_at timestamptz, created_at timestamptz, finished_at timestamptz,
	cursor text); -- where the next page goes on
