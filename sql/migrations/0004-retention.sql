-- How long what has ended is kept, and how far clean-up has come.

-- Null is for ever. Not zero and not negative: that would be "delete all".
create domain outbox.kept_for as interval
	check (value > interval '0' and value <= interval '100 years');

-- One row of settings. Kinds may differ: see outbox.kind.retention.
create table outbox.retention (
	one boolean primary key default true check (one),
	succeeded outbox.kept_for default '7 days', -- jobs, from the end of their last attempt
	cancelled outbox.kept_for default '90 days',
	dead outbox.kept_for,
	attempts outbox.kept_for default '30 days', -- but for the last one of a job that is kept
	attempts_per_job integer default 50 check (attempts_per_job > 0),
	dedupe_keys outbox.kept_for -- of jobs that have ended, from when the key was taken
) with (fillfactor = 50);
insert into outbox.retention default values;

alter table outbox.kind add constraint kind_retention check (
	jsonb_typeof(retention) = 'object'
	and retention - array['succeeded', 'cancelled', 'dead'] = '{}'
	and not jsonb_path_exists(retention,
		'strict $.* ? (@ != null && (@.type() != "number" || @ < 1 || @ > 3155760000))'));

-- Where each walk over what may be past its time stands. A walk goes through one index in its
-- order, up to what is old enough, and waits there.
create table outbox.retention_walk (
	what text not null,     -- a state of jobs, attempts, attempts_per_job or dedupe_keys
	keep_s bigint not null, -- for what is kept so long (attempts_per_job: for so many)
	started_at timestamptz not null, -- of this round
	-- the last row that it has seen, by the columns of the index
	finished_at timestamptz not null default '-infinity',
	job_id bigint not null default 0,
	attempt smallint not null default 0,
	tenant_key text not null default '',
	key text not null default '',
	primary key (what, keep_s)
) with (fillfactor = 50);
