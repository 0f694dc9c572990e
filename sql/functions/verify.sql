-- Comparing two schemas: `outbox verify` makes the schema anew under another name, asks the
-- functions in there, and takes everything back.

-- schema_objects(schema): every property of every object that matters, one a row. In what an
-- object is made of, the schema's name is replaced by a dot, so that two schemas compare.
-- parent: the table, view or type that a column, constraint, index or trigger belongs to.
create or replace function outbox.schema_objects(schema text)
	returns table (object text, parent text, property text, value text) language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	with relation as materialized (
		select c.*, case c.relkind when 'r' then 'table ' when 'v' then 'view ' when 'S' then 'sequence '
			when 'c' then 'type ' else c.relkind::text || ' ' end || c.relname as object
		from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = schema and c.relkind not in ('i', 'I', 't')
	), property (object, parent, property, value) as (
		select r.object, null, p.name, p.value
		from relation r
		left join pg_sequence s on s.seqrelid = r.oid
		cross join lateral (values
			('options', array_to_string(array(select unnest(r.reloptions) order by 1), ', ')),
			('persistence', r.relpersistence::text),
			('row security', r.relrowsecurity::text),
			('definition', case when r.relkind = 'v' then pg_get_viewdef(r.oid, true) end),
			('parameters', case when r.relkind = 'S' then concat_ws(' ', s.seqtypid::regtype,
				s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle) end)
			) p (name, value)
		union all
		select 'column ' || r.relname || '.' || a.attname, r.object, p.name, p.value
		from relation r
		join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
		left join pg_attrdef d on d.adrelid = r.oid and d.adnum = a.attnum
		cross join lateral (values
			('type', format_type(a.atttypid, a.atttypmod)),
			('not null', a.attnotnull::text),
			('default', pg_get_expr(d.adbin, d.adrelid)),
			('identity', concat(a.attidentity, a.attgenerated)),
			('storage', a.attstorage::text)) p (name, value)
		where r.relkind <> 'S'
		union all
		select 'constraint ' || k.conname || ' on ' || r.relname, r.object, p.name, p.value
		from relation r join pg_constraint k on k.conrelid = r.oid and k.contype <> 'n'
		cross join lateral (values ('definition', pg_get_constraintdef(k.oid)),
			('validated', k.convalidated::text)) p (name, value)
		union all
		select 'index ' || i.relname, r.object, p.name, p.value
		from relation r join pg_index x on x.indrelid = r.oid join pg_class i on i.oid = x.indexrelid
		cross join lateral (values
			('definition', pg_get_indexdef(i.oid)),
			('valid', (x.indisvalid and x.indisready)::text)) p (name, value)
		union all
		select 'trigger ' || t.tgname || ' on ' || r.relname, r.object, 'definition',
			pg_get_triggerdef(t.oid)
		from relation r join pg_trigger t on t.tgrelid = r.oid and not t.tgisinternal
		union all
		select 'rule ' || w.rulename || ' on ' || r.relname, r.object, 'definition',
			pg_get_ruledef(w.oid)
		from relation r join pg_rewrite w on w.ev_class = r.oid and w.rulename <> '_RETURN'
		union all
		select 'type ' || t.typname, null, p.name, p.value
		from pg_type t join pg_namespace n on n.oid = t.typnamespace
		cross join lateral (values
			('labels', (select string_agg(e.enumlabel, ', ' order by e.enumsortorder)
				from pg_enum e where e.enumtypid = t.oid)),
			('base', format_type(nullif(t.typbasetype, 0), t.typtypmod)),
			('constraints', (select string_agg(pg_get_constraintdef(k.oid), ', ' order by k.conname)
				from pg_constraint k where k.contypid = t.oid and k.contype = 'c')))
			p (name, value)
		where n.nspname = schema and t.typtype in ('e', 'd')
		union all
		select 'function ' || f.proname || '(' || oidvectortypes(f.proargtypes) || ')',
			null, p.name, p.value
		from pg_proc f join pg_namespace n on n.oid = f.pronamespace
		join pg_language l on l.oid = f.prolang
		cross join lateral (select case f.proname when 'now' -- see clock_move
			then coalesce(substring(f.prosrc from $re$ \+ interval '[-0-9.]+ seconds'$re$), '')
			else '' end) moved (text)
		cross join lateral (values
			('arguments', pg_get_function_arguments(f.oid)),
			('result', pg_get_function_result(f.oid)),
			('language', l.lanname::text),
			('source', md5(replace(replace(f.prosrc, schema || '.', '.'), moved.text, ''))),
			('clock', substring(moved.text from '[-0-9.]+')),
			('attributes', concat_ws(' ', f.provolatile, f.proparallel, f.prosecdef, f.proisstrict)),
			('settings', array_to_string(f.proconfig, ', '))) p (name, value)
		where n.nspname = schema
	)
	select replace(p.object, schema || '.', '.'), p.parent, p.property,
		coalesce(replace(p.value, schema || '.', '.'), '')
	from property p
	$$;

-- schema_drift(expected, actual): what differs between two schemas, by name, one a row:
-- an object that is missing or not expected (what belongs to it is not named as well), or a
-- property with another value.
create or replace function outbox.schema_drift(expected text, actual text)
	returns table (object text, problem text) language sql stable
	set search_path = pg_catalog, pg_temp
	as $$
	with wanted as materialized (select * from outbox.schema_objects(expected)),
	found as materialized (select * from outbox.schema_objects(actual)),
	missing as (
		select distinct w.object, w.parent from wanted w
		where w.object not in (select f.object from found f)
	), extra as (
		select distinct f.object, f.parent from found f
		where f.object not in (select w.object from wanted w)
	)
	select m.object, 'is missing' from missing m
	where m.parent is null or m.parent not in (select p.object from missing p)
	union all
	select e.object, 'is not expected' from extra e
	where e.parent is null or e.parent not in (select p.object from extra p)
	union all
	select w.object, case
		when w.property = 'clock' then format('is off by %s, as %I.clock_offset() says: '
			'%2$I.clock_move(-%2$I.clock_offset()) puts the clock back',
			f.value::numeric * interval '1 second', actual)
		when w.property = 'source' or w.value like E'%\n%' then 'has another ' || w.property
		when w.property = 'valid' then 'is invalid: drop it and create it again'
		else format('has %s %s, expected is %s', w.property, quote_literal(left(f.value, 200)),
			quote_literal(left(w.value, 200))) end
	from wanted w join found f on f.object = w.object and f.property = w.property
	where f.value <> w.value
	order by 1, 2
	$$;
