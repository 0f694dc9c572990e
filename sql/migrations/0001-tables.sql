-- The tables of the outbox. A job row never changes: what happens to a job is added beside
-- it. "Owed" means a row in ready; "in flight" means an element of a claim; an attempt ends
-- once, by its primary key. The manual page outbox(7) lists every state and move.
--
-- There are no foreign keys between the hot tables and no status column: both would be
-- written several times a job.

-- 43 bits of milliseconds and 20 bits of this sequence make the id of a job or a claim. (A claim
-- commits asynchronously: a crash may take a sequence back, and time does not.)
create sequence outbox.job_seq as bigint maxvalue 1048575 minvalue 0 cycle;

create type outbox.outcome as enum (
	'succeeded', -- done, final
	'failed',    -- charged to the budget, owed again
	'dead',      -- final: no budget left, or the handler said so
	'cancelled', -- final
	'lost',      -- its process or runner went away; charged to max_crashes only
	'released'   -- handed back; charged to nothing
);
create type outbox.trigger as enum ('automatic', 'manual');
create type outbox.found as enum ('nudge', 'poll', 'sweep');

create table outbox.meta (
	one boolean primary key default true check (one),
	schema_version integer not null,
	installation text not null -- first part of every idempotency key
);

-- enqueue refuses what is past a limit, naming it. Beside that the table refuses only a kind
-- that no file may have as its name: a check is parsed anew by every insert, and four of them
-- took a fifth of the time of an enqueue.
create table outbox.job (
	id bigint primary key,
	created_at timestamptz not null,
	run_at timestamptz not null, -- the due time of the first attempt
	priority smallint not null, -- 1 (first) to 4 (last)
	max_attempts smallint, -- 1 to 10000; null: the kind's
	version integer,       -- from 1; null: any handler
	kind text not null check (kind ~ '^[a-z0-9][a-z0-9._-]{0,99}$'),
	tenant_key text,
	subject_key text,
	correlation_id text,
	traceparent text,
	dedupe_key text,
	payload json not null, -- kept byte for byte
	metadata json
);

create table outbox.ready (
	due_at timestamptz not null,
	job_id bigint not null,
	version integer not null default 0, -- least handler version; 0: any
	priority smallint not null,
	attempt smallint not null,          -- attempts already recorded
	kind text not null,
	primary key (kind, priority, due_at, job_id)
) with (
	autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
	autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0,
	autovacuum_analyze_threshold = 200000, vacuum_truncate = false
);

create table outbox.claim (
	id bigint primary key,
	claimed_at timestamptz not null,
	found outbox.found not null,
	worker text not null,
	kind text not null,
	ids bigint[] not null,
	attempts smallint[] not null -- of the same length: the attempt each job is in
) with (
	autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
	autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false,
	toast_tuple_target = 8160
);
create index claim_worker on outbox.claim (worker);
-- Out-of-line or compressed arrays would cost more than they save: in line as long as a
-- claim fits into a page (800 jobs), never compressed.
alter table outbox.claim alter ids set storage external, alter attempts set storage external;

create table outbox.attempt (
	job_id bigint not null,
	started_at timestamptz,          -- null: never started
	finished_at timestamptz not null, -- when it was recorded
	next_at timestamptz,             -- due time of the next attempt, if there is to be one
	duration_ms integer,
	dropped_bytes integer,           -- output past the limits
	outcome outbox.outcome not null,
	trigger outbox.trigger not null default 'automatic',
	found outbox.found,
	attempt smallint not null,
	exit_status smallint,
	signal smallint,
	kind text not null,
	code text,
	worker text,
	tenant_key text,
	subject_key text,
	correlation_id text,
	traceparent text,
	triggered_by text,
	reason text,
	error text,
	response json,
	primary key (job_id, attempt)
) with (
	autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05
);
create index attempt_finished on outbox.attempt using brin (finished_at)
	with (pages_per_range = 32, autosummarize = on);
create index attempt_ended_badly on outbox.attempt (finished_at, job_id)
	where outcome in ('dead', 'cancelled');

create table outbox.cancel (
	job_id bigint primary key,
	requested_at timestamptz not null,
	cancelled_by text not null,
	reason text
);

create table outbox.rearm (
	id bigint generated always as identity primary key,
	job_id bigint not null,
	created_at timestamptz not null,
	due_at timestamptz not null,
	action text not null check (action in ('replay', 'resend', 'retry_now')),
	from_attempt smallint not null, -- attempts recorded when it was asked
	budget_from smallint not null,  -- budgets count the attempts after this one
	budget smallint check (budget > 0), -- granted attempts; null: the whole budget
	triggered_by text not null,
	reason text
);
create index rearm_job on outbox.rearm (job_id, id);

create table outbox.dedupe (
	tenant_key text not null, -- '' for jobs without a tenant
	key text not null,
	job_id bigint not null,
	kind text not null,
	primary key (tenant_key, key)
);

create table outbox.lane (
	name text primary key check (name ~ '^[a-z0-9][a-z0-9._-]{0,99}$'),
	paused boolean not null default false,
	notify boolean not null default true,  -- false: enqueue never notifies, ticks find the jobs
	pooled boolean not null default false, -- a claimer is behind a pooler: always notify
	changed_at timestamptz,
	changed_by text
) with (fillfactor = 50);
insert into outbox.lane (name) values ('default');

create table outbox.kind (
	name text primary key check (name ~ '^[a-z0-9][a-z0-9._-]{0,99}$'),
	lane text not null default 'default',
	version integer not null default 0,
	timeout_ms bigint not null default 30000,
	max_attempts smallint not null default 8,
	backoff_ms bigint not null default 1000,
	backoff_max_ms bigint not null default 300000,
	max_crashes smallint not null default 3,
	warn_at_streak smallint,
	codes jsonb not null default '{}',   -- code -> {max_attempts, max_delay_ms, streak, on_exhaustion}
	commits jsonb not null default '{}', -- name -> statement that a handler may ask for
	payload_schema jsonb,
	max_payload_bytes integer not null default 262144,
	max_payload_depth integer not null default 500,
	retention jsonb not null default '{}', -- state -> seconds, or null for never
	updated_at timestamptz not null default now(),
	updated_by text
) with (fillfactor = 50);

create table outbox.worker (
	id text primary key,
	host text not null,
	pid integer not null,
	program_version text not null,
	lane text not null,
	lease_ms bigint not null,
	kinds text[] not null,
	versions integer[] not null,
	beat bigint not null default 0,
	started_at timestamptz not null,
	seen_at timestamptz not null
) with (
	fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200
);

create table outbox.hook (
	id bigint generated always as identity primary key,
	transition text not null
		check (transition in ('succeeded', 'retrying', 'dead', 'cancelled')),
	kind text,              -- null: every kind
	function text not null -- schema.name; called as f(job outbox.job, transition text)
);
create unique index hook_once on outbox.hook (transition, coalesce(kind, ''), function);

-- What the functions of the same names take and return.

create type outbox.enqueue_result as (
	status text, id bigint, kind text, existing_kind text, issues json);

create type outbox.claimed as ( -- an attempt in flight
	claim_id bigint, worker text, found outbox.found, job_id bigint, attempt smallint);

create type outbox.result as ( -- what is said of one attempt
	claim_id bigint, claim_index integer, job_id bigint, attempt smallint,
	outcome text,      -- ok, retry, fail, cancel, lost, release
	code text, error text, response text, response_is_json boolean,
	after_ms bigint,   -- null: no wish
	reason text,       -- of a cancel
	started_us bigint, -- database clock, Unix microseconds; 0: never started
	duration_ms bigint, exit_status integer, signal integer,
	commits text,      -- JSON array [{"name", "args"}]
	follow_ups text,   -- JSON array of jobs to enqueue
	dropped_bytes bigint,
	worker text, found outbox.found); -- of the claim, not of the frame

create type outbox.settled as ( -- an attempt whose end was accepted
	job_id bigint, attempt smallint, kind text, outcome outbox.outcome, code text,
	next_at timestamptz, duration_ms integer, worker text, warning text);
