-- metrics(period, at_most): what `outbox metrics` prints for Prometheus: samples, those of one
-- family together. suffix: of a histogram's samples. labels: as in the text format.
--
-- There are no counters of outcomes: retention deletes, and a table cannot count what is gone.
-- Outcomes and durations are those of the attempts that ended within the last `period`: to be
-- shown as they are, without rate(). at_most: see backlog.
create or replace function outbox.metrics(
	period interval default '5 minutes', at_most integer default 100000)
	returns table (family text, type text, help text, suffix text, labels text,
		value double precision)
	language sql stable
	set search_path = pg_catalog, pg_temp
	set jit = off
	as $$
	select f.family, f.type, f.help, s.suffix,
		case when s.upto is null then s.labels
			else format('%s,le="%s"}', rtrim(s.labels, '}'), s.upto) end, s.value
	from (
		select * from outbox.metrics_of_backlog(at_most)
		union all select * from outbox.metrics_of_attempts(period)
		union all select * from outbox.metrics_of_parts()
		union all select * from outbox.metrics_of_server()) s
	join (values
		(1, 'outbox_jobs', 'gauge', 'Jobs that are owed (pending, retrying) or in flight (running).'),
		(2, 'outbox_jobs_due', 'gauge', 'Owed jobs whose time has come.'),
		(3, 'outbox_jobs_stuck', 'gauge', 'Jobs in flight for longer than timeout and lease allow.'),
		(4, 'outbox_oldest_due_seconds', 'gauge', 'How long the oldest due job has waited.'),
		(5, 'outbox_kind_workers', 'gauge', 'Live workers with a handler for the kind.'),
		(6, 'outbox_recent_attempts', 'gauge', 'Attempts that ended within the period.'),
		(7, 'outbox_recent_attempt_seconds', 'histogram', 'Durations of the attempts of the period.'),
		(8, 'outbox_workers', 'gauge', 'Registered workers: alive, or silent past their lease.'),
		(9, 'outbox_lane_paused', 'gauge', '1 while nothing is claimed in the lane.'),
		(10, 'outbox_sessions', 'gauge', 'Database sessions of each program.'),
		(11, 'outbox_listener_age_seconds', 'gauge',
			'Time since the listener last tried whether it hears itself.'),
		(12, 'outbox_inserted_total', 'counter',
			'Rows inserted into job and attempt, those of aborted transactions included.'),
		(13, 'outbox_dead_rows', 'gauge', 'Deleted rows that vacuum has not removed yet.'),
		(14, 'outbox_oldest_snapshot_seconds', 'gauge',
			'Age of the oldest transaction that keeps vacuum from its work.'),
		(15, 'outbox_notification_queue_ratio', 'gauge', 'Used part of the queue of NOTIFY.'))
		f (n, family, type, help) on f.family = s.family
	order by f.n, s.labels collate "C", s.n
	$$;

-- metric_labels(name, value, …): {name="value",…}; pairs without a value are left out.
create or replace function outbox.metric_labels(variadic pairs text[]) returns text
	language sql immutable
	as $$
	select coalesce('{' || string_agg(format('%s="%s"', pairs[n], replace(replace(replace(
		pairs[n + 1], '\', '\\'), '"', '\"'), E'\n', '\n')), ',' order by n) || '}', '')
	from generate_series(1, cardinality(pairs), 2) n
	where pairs[n + 1] is not null
	$$;

-- The parts of metrics. upto: the upper end of a bucket; n: the order of samples with the same
-- labels.

create or replace function outbox.metrics_of_backlog(at_most integer)
	returns table (
		family text, suffix text, labels text, upto text, n integer, value double precision)
	language sql stable
	as $$
	select s.family, '', outbox.metric_labels('kind', b.kind, 'state', s.state), null, 0, s.value
	from outbox.backlog(at_most => at_most) b
	cross join lateral (values
		('outbox_jobs', 'pending', b.pending), ('outbox_jobs', 'retrying', b.retrying),
		('outbox_jobs', 'running', b.running), ('outbox_jobs_due', null, b.due),
		('outbox_jobs_stuck', null, b.stuck),
		('outbox_oldest_due_seconds', null, coalesce(b.oldest_due_s, 0)),
		('outbox_kind_workers', null, b.workers)) s (family, state, value)
	$$;

-- Codes come from handlers, and every one would be a series of its own for ever: of each kind
-- and outcome, the 20 most frequent have their names, the others are "other".
create or replace function outbox.metrics_of_attempts(period interval)
	returns table (
		family text, suffix text, labels text, upto text, n integer, value double precision)
	language sql stable
	set enable_seqscan = off
	set jit = off
	as $$
	with ended as materialized (
		select a.kind, a.outcome, coalesce(a.code, '') as code, a.duration_ms
		from outbox.attempt a where a.finished_at > outbox.now() - period
	), counted as (
		select e.kind, e.outcome, e.code, count(*) as attempts, row_number() over (
			partition by e.kind, e.outcome order by count(*) desc, e.code) as nth
		from ended e group by e.kind, e.outcome, e.code
	), named as (
		select c.kind, c.outcome, case when c.nth > 20 then 'other' else c.code end as code,
			sum(c.attempts) as attempts
		from counted c group by 1, 2, 3
	), bucket as (
		select b.ms, b.n::integer from unnest(array[1, 5, 10, 50, 100, 500, 1000, 5000, 10000,
			30000, 60000, 300000]) with ordinality b (ms, n)
	), timed as ( -- bucket nth is the first one that an attempt is in; 12 and more: in none
		select e.kind, count(*) as attempts, sum(e.duration_ms) as ms,
			width_bucket(e.duration_ms - 0.5, (select array_agg(b.ms - 0.0 order by b.n) from bucket b)) as nth
		from ended e where e.duration_ms is not null group by e.kind, nth
	)
	select 'outbox_recent_attempts', '', outbox.metric_labels('kind', n.kind,
		'outcome', n.outcome::text, 'code', n.code), null, 0, n.attempts::float8
	from named n
	union all
	select 'outbox_recent_attempt_seconds', '_bucket', outbox.metric_labels('kind', t.kind),
		(b.ms / 1000.0)::float8::text, b.n,
		coalesce(sum(t.attempts) filter (where t.nth < b.n), 0)::float8
	from timed t cross join bucket b group by t.kind, b.n, b.ms
	union all
	select 'outbox_recent_attempt_seconds', s.suffix, outbox.metric_labels('kind', t.kind), s.upto,
		s.n, s.value
	from (select t.kind, sum(t.attempts)::float8 as attempts, sum(t.ms)::float8 / 1000 as seconds
		from timed t group by t.kind) t
	cross join lateral (values ('_bucket', '+Inf', 97, t.attempts), ('_sum', null, 98, t.seconds),
		('_count', null, 99, t.attempts)) s (suffix, upto, n, value)
	$$;

create or replace function outbox.metrics_of_parts()
	returns table (
		family text, suffix text, labels text, upto text, n integer, value double precision)
	language sql stable
	as $$
	select 'outbox_workers', '', outbox.metric_labels('lane', l.name, 'state', s.state), null, 0,
		(select count(*) from outbox.worker w where w.lane = l.name and s.alive
			= (w.seen_at > outbox.now() - w.lease_ms * interval '1 millisecond'))::float8
	from outbox.lane l cross join (values ('alive', true), ('silent', false)) s (state, alive)
	union all
	select 'outbox_lane_paused', '', outbox.metric_labels('lane', l.name), null, 0, l.paused::integer
	from outbox.lane l
	union all
	select 'outbox_sessions', '', outbox.metric_labels('program', p.name), null, 0,
		(select count(*) from pg_stat_activity a where a.datname = current_database()
			and a.application_name = p.name)
	from unnest(array['outbox-listen', 'outbox-claim', 'outbox-settle', 'outbox-sweep']) p (name)
	union all
	select 'outbox_listener_age_seconds', '', '', null, 0,
		outbox.age_s(max(a.query_start), clock_timestamp())
	from pg_stat_activity a
	where a.datname = current_database() and a.application_name = 'outbox-listen'
	having max(a.query_start) is not null
	$$;

create or replace function outbox.metrics_of_server()
	returns table (
		family text, suffix text, labels text, upto text, n integer, value double precision)
	language sql stable
	as $$
	select s.family, '', outbox.metric_labels('table', t.relname), null, 0, s.value
	from pg_stat_all_tables t
	cross join lateral (values
		('outbox_inserted_total', t.n_tup_ins, array['job', 'attempt']),
		('outbox_dead_rows', t.n_dead_tup, array['job', 'ready', 'claim', 'attempt', 'worker']))
		s (family, value, tables)
	where t.schemaname = 'outbox' and t.relname = any (s.tables)
	union all
	select 'outbox_oldest_snapshot_seconds', '', '', null, 0,
		coalesce(max(outbox.age_s(a.xact_start, clock_timestamp())), 0)
	from pg_stat_activity a
	where a.datname = current_database() and a.pid <> pg_backend_pid()
		and a.backend_type = 'client backend'
		and (a.backend_xmin is not null or a.backend_xid is not null)
	union all
	select 'outbox_notification_queue_ratio', '', '', null, 0, pg_notification_queue_usage()
	$$;
