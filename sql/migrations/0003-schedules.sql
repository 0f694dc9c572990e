-- Recurring jobs. A schedule remembers one instant, the next tick; whoever fires it moves it
-- on in the same transaction, so any number of sweepers fire a tick once.

create table outbox.schedule (
	name text primary key check (name ~ '^[a-z0-9][a-z0-9._-]{0,99}$'),
	cron text not null,
	time_zone text not null, -- of the IANA database
	gap text not null check (gap in ('skip', 'after')),
	fold text not null check (fold in ('first', 'last', 'both')),
	catch_up text not null check (catch_up in ('skip', 'latest', 'all')),
	catch_up_window interval, -- older ticks are skipped; null: see outbox.schedule_oldest
	kind text,     -- what to enqueue, or
	function text, -- what to call: schema.name, quoted where needed
	payload json,  -- of the kind; the template of each tick's payload
	tenant_key text,
	priority smallint not null,
	max_attempts smallint,
	paused boolean not null default false,
	next_at timestamptz not null, -- the next tick's nominal time
	last_at timestamptz,          -- nominal time of the last tick that ran or failed
	last_error text,              -- why that one failed; null: it did not
	changed_at timestamptz not null,
	changed_by text not null,
	check (num_nonnulls(kind, function) = 1)
) with (fillfactor = 50);
-- No index on next_at: the table is small, and so updates stay on their page.

create type outbox.schedule_event as ( -- what became of a tick
	name text,
	event text, -- fired, exists, skipped, failed, retrying
	nominal timestamptz,
	job_id bigint,
	kind text,
	detail text);

create type outbox.cron as ( -- a parsed expression: a bit for each value of a field
	minutes bit(60),
	hours bit(24),
	days bit(31),     -- of the month, from the 1st
	months bit(12),   -- from January
	weekdays bit(7),  -- from Sunday
	either_day boolean,  -- day of month or day of week is enough; else both must match
	is_interval boolean); -- minute or hour begins with a star
