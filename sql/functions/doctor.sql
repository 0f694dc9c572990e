-- doctor(): everything that one would check by hand when deliveries are slow or missing. One
-- row a check: its name, a severity (ok, warning, critical) and a sentence for people.
-- Without the rights of pg_read_all_stats it does not see when other sessions began.
create or replace function outbox.doctor()
	returns table ("check" text, severity text, detail text) language sql stable
	set search_path = pg_catalog, pg_temp
	set jit = off
	as $$
	select * from outbox.doctor_work() union all select * from outbox.doctor_programs()
	union all select * from outbox.doctor_tables() union all select * from outbox.doctor_horizon()
	union all select * from outbox.doctor_server()
	$$;

-- graded(value, warning, critical): the severity of what is bad when it is large.
create or replace function outbox.graded(value numeric, warning numeric, critical numeric)
	returns text language sql immutable parallel safe
	as $$ select case when value >= critical then 'critical' when value >= warning then 'warning'
		else 'ok' end $$;

-- age_s(at, now): the seconds since then, for grades; age_text(at, now): the same for people.
-- now: the clock that made the instant.
create or replace function outbox.age_s(at timestamptz, now timestamptz default outbox.now())
	returns numeric language sql stable parallel safe
	as $$ select extract(epoch from now - at)::numeric $$;

create or replace function outbox.age_text(at timestamptz, now timestamptz default outbox.now())
	returns text language sql stable parallel safe
	as $$ select pg_catalog.date_trunc('second', now - at)::text $$;

-- ---- jobs: who waits, and for whom

create or replace function outbox.doctor_work()
	returns table ("check" text, severity text, detail text) language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	with owed as materialized (
		select o.kind, coalesce(k.lane, 'default') as lane, d.due_at,
			exists (select from outbox.live_workers() w where o.kind = any (w.kinds)) as served
		from outbox.kinds_owed() o (kind)
		left join outbox.kind k on k.name = o.kind
		cross join lateral outbox.next_due(null, array[o.kind]) d (due_at)
	), due as materialized (
		select o.*, l.name is not null as paused from owed o
		left join outbox.lane l on l.name = o.lane and l.paused
		where o.due_at <= outbox.now()
	), worker as materialized (
		select w.*, w.seen_at > outbox.now() - w.lease_ms * interval '1 millisecond' as alive
		from outbox.worker w
	)
	select 'overdue', outbox.graded(outbox.age_s(min(d.due_at)), 300, 3600),
		case when count(*) = 0 then 'no job is due'
			else format('the oldest due job, of kind %s, has waited for %s',
				(array_agg(d.kind order by d.due_at))[1], outbox.age_text(min(d.due_at))) end
	from due d where not d.paused
	union all
	select 'kinds', case when count(*) > 0 then 'warning' else 'ok' end,
		coalesce('jobs are due and no live worker has a handler: '
			|| string_agg(d.kind, ', ' order by d.due_at), 'every kind that is due has a worker')
	from due d where not d.served and not d.paused
	union all
	select 'lanes', case when count(*) > 0 then 'warning' else 'ok' end,
		coalesce(string_agg(format('lane %s is paused%s', l.name,
			coalesce(' by ' || l.changed_by, '')), ', '), 'no lane is paused')
	from outbox.lane l where l.paused
	union all
	select 'workers', case when count(*) filter (where w.alive) = 0 and exists (select from due)
			then 'critical' when bool_or(not w.alive) then 'warning' else 'ok' end,
		concat(count(*) filter (where w.alive), ' alive', ', the last beat '
			|| outbox.age_text(max(w.seen_at)) || ' ago', '; silent past their lease: '
			|| string_agg(format('%s for %s', w.id, outbox.age_text(w.seen_at)), ', ')
				filter (where not w.alive))
	from worker w
	$$;

-- ---- programs: sessions by their application name

create or replace function outbox.doctor_programs()
	returns table ("check" text, severity text, detail text) language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	with session as materialized (
		select a.* from pg_stat_activity a
		where a.datname = current_database() and a.application_name like 'outbox-%'
	), listener as (
		-- its round trip is a NOTIFY to itself every 10 seconds; what it hears, it alone knows
		select count(*) as sessions, max(s.query_start) as last from session s
		where s.application_name = 'outbox-listen'
	)
	select 'programs', case when count(s.pid) = count(*) then 'ok' else 'warning' end,
		string_agg(format('%s: %s', p.name, coalesce(s.sessions, 0) || ' sessions'), ', '
			order by p.n)
	from unnest(array['outbox-claim', 'outbox-settle', 'outbox-sweep']) with ordinality p (name, n)
	left join lateral (
		select min(s.pid) as pid, count(*) as sessions from session s
		where s.application_name = p.name having count(*) > 0) s on true
	union all
	select 'listener',
		case when l.sessions = 0 then 'warning'
			else outbox.graded(outbox.age_s(l.last, clock_timestamp()), 30, 300) end,
		case when l.sessions = 0 then 'none is connected: jobs wait for ticks'
			when l.last is null then 'connected; when it last tried itself is not visible'
			else format('tried itself %s ago', outbox.age_text(l.last, clock_timestamp())) end
	from listener l
	union all
	select 'notifications', outbox.graded(u.used, 0.1, 0.5),
		format('%s %% of the queue is used', round(u.used * 100, 2)) || case when u.used >= 0.1
			then ': a session that listens is stuck in a transaction' else '' end
	from (select pg_notification_queue_usage()::numeric) u (used)
	$$;

-- ---- tables: dead rows that vacuum does not keep up with, and indexes

create or replace function outbox.doctor_tables()
	returns table ("check" text, severity text, detail text) language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	with hot as (
		select t.*, greatest(t.last_vacuum, t.last_autovacuum) as vacuumed,
			coalesce(o.threshold, current_setting('autovacuum_vacuum_threshold')::numeric)
				+ coalesce(o.scale, current_setting('autovacuum_vacuum_scale_factor')::numeric)
				* t.n_live_tup as trigger
		from pg_stat_all_tables t
		join pg_class c on c.oid = t.relid
		cross join lateral (
			select max(r.option_value) filter (where r.option_name = 'autovacuum_vacuum_threshold')::numeric
				as threshold,
				max(r.option_value) filter (where r.option_name = 'autovacuum_vacuum_scale_factor')::numeric
				as scale
			from pg_options_to_table(c.reloptions) r) o
		where t.schemaname = 'outbox' and t.relname in ('ready', 'claim', 'job', 'attempt', 'worker')
	)
	select 'vacuum ' || h.relname, outbox.graded(h.n_dead_tup, 2 * h.trigger, 10 * h.trigger),
		format('%s dead rows and %s live ones; %s', h.n_dead_tup, h.n_live_tup, coalesce(
			'vacuumed ' || outbox.age_text(h.vacuumed, clock_timestamp()) || ' ago', 'never vacuumed'))
	from hot h
	union all
	select 'autovacuum', case when s.on then 'ok' else 'critical' end,
		case when s.on then 'it is on' else 'it is off: dead rows will slow everything down' end
	from (select current_setting('autovacuum')::boolean
		and current_setting('track_counts')::boolean as on) s
	union all
	select 'indexes', case when count(*) > 0 then 'critical' else 'ok' end,
		coalesce('invalid: ' || string_agg(x.indexrelid::regclass::text, ', '), 'all are valid')
	from pg_index x join pg_class c on c.oid = x.indrelid
	where c.relnamespace = 'outbox'::regnamespace and not (x.indisvalid and x.indisready)
	$$;

-- ---- the horizon: who keeps vacuum from removing what was deleted

create or replace function outbox.doctor_horizon()
	returns table ("check" text, severity text, detail text) language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select 'snapshot',
		case when a.xact_start is null then outbox.graded(a.transactions, 1000000, 50000000)
			else outbox.graded(outbox.age_s(a.xact_start, clock_timestamp()), 300, 3600) end,
		case when a.pid is null then 'no other session holds one'
			else format('pid %s (%s, user %s, %s) has held one for %s and %s transactions',
				a.pid, coalesce(nullif(a.application_name, ''), 'no name'), a.usename,
				coalesce(a.state, 'state not visible'),
				coalesce(outbox.age_text(a.xact_start, clock_timestamp()), 'a time not visible'),
				a.transactions) end
	from (values (1)) one left join lateral (
		select s.*, greatest(age(s.backend_xmin), age(s.backend_xid)) as transactions
		from pg_stat_activity s
		where s.datname = current_database() and s.pid <> pg_backend_pid()
			and s.backend_type = 'client backend'
			and (s.backend_xmin is not null or s.backend_xid is not null)
		order by s.xact_start, transactions desc limit 1) a on true
	union all
	select 'prepared transactions',
		outbox.graded(outbox.age_s(min(p.prepared), clock_timestamp()), 300, 3600),
		case when count(*) = 0 then 'there are none'
			else format('%s, the oldest, %s, was prepared %s ago', count(*),
				(array_agg(p.gid order by p.prepared))[1],
				outbox.age_text(min(p.prepared), clock_timestamp())) end
	from pg_prepared_xacts p where p.database = current_database()
	union all
	select 'replication slots', outbox.graded(max(g.badness), 1, 16),
		coalesce(string_agg(g.detail, '; ') filter (where g.badness >= 1),
			'none holds anything back')
	from (
		select greatest(age(s.xmin) / 1e6,
				case when not s.active then b.behind / 1073741824 end) as badness,
			format('%s (%s) holds %s transactions and %s of WAL', s.slot_name,
				case when s.active then 'active' else 'inactive' end, coalesce(age(s.xmin), 0),
				pg_size_pretty(b.behind)) as detail
		from pg_replication_slots s
		cross join lateral (
			select pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn)) b (behind)) g
	$$;

-- ---- the server

create or replace function outbox.doctor_server()
	returns table ("check" text, severity text, detail text) language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	select 'server version', case when v.number >= 140000 then 'ok' else 'critical' end,
		format('%s; needed is 14 or newer', current_setting('server_version'))
	from (select current_setting('server_version_num')::integer) v (number)
	union all
	select 'connections', outbox.graded(c.used, 0.8 * c.most, 0.95 * c.most),
		format('%s of %s are used, %s by programs of the outbox', c.used, c.most, c.ours)
	from (
		select count(*) as used, count(*) filter (where a.application_name ~ '^outbox') as ours,
			current_setting('max_connections')::integer
				- current_setting('superuser_reserved_connections')::integer
				- coalesce(current_setting('reserved_connections', true)::integer, 0) as most -- 16 on
		from pg_stat_activity a where a.backend_type = 'client backend') c
	union all
	select 'deadlocks', outbox.graded(
			d.deadlocks / greatest(outbox.age_s(d.since, clock_timestamp()) / 86400, 1), 1, 100),
		format('%s in this database in %s', d.deadlocks, outbox.age_text(d.since, clock_timestamp()))
	from (
		select s.deadlocks, coalesce(s.stats_reset, pg_postmaster_start_time()) as since
		from pg_stat_database s where s.datname = current_database()) d
	union all
	select 'privileges', 'warning',
		'other sessions are not fully visible: grant pg_read_all_stats to ' || quote_ident(current_user)
	where not pg_has_role(current_user, 'pg_read_all_stats', 'usage')
	$$;
