-- Cron expressions and the instants they stand for. Nothing here looks at the time zone of
-- the server or of the session.
--
-- An expression has five fields: minute (0-59), hour (0-23), day of month (1-31), month
-- (1-12 or jan-dec), day of week (0-7 or sun-sat; 0 and 7 are Sunday). A field is a list,
-- separated by commas, of *, values, and ranges; * and ranges may have a step: */15,
-- 8-18/2, mon-fri. Case does not matter. Or it is one of @yearly, @annually, @monthly,
-- @weekly, @daily, @midnight, @hourly.
--
-- Two rules are those of Vixie's cron and its heirs, and go by the first character of a field:
-- * When day of month and day of week are both restricted, either is enough: "0 0 13 * fri"
--   is every 13th and every Friday. A field that begins with a star is not restricted in this
--   sense, "*/2" neither: then both must match.
-- * When minute or hour begins with a star, the job is a matter of intervals, and its ticks are
--   all instants at which the clock on the wall matches: it stands still in no shift of the
--   clocks. All others are jobs for a time of day, to which two policies apply:
--   gap   for times that a shift leaves out: after (one tick where the gap ends), skip
--   fold  for times that a shift repeats: first, last, both

-- cron_value(word, …): the number that a word of a field stands for. Called for every word of
-- a list: fixing the search path, as its callers do, would double what it costs.
create or replace function outbox.cron_value(
	word text, field text, low integer, high integer, names text[])
	returns integer language plpgsql immutable parallel safe
as $$
declare
	value integer := array_position(names, word) - 1 + low;
begin
	if value is null and word ~ '^[0-9]{1,2}$' then
		value := word;
	end if;
	if value is null or value not between low and high then
		raise exception 'cron: "%" in the field "%" is not between % and %', word, field, low, high
			using errcode = '22023';
	end if;
	return value;
end $$;

-- cron_field(text, field, low, high, names): a field as bits; the first stands for `low`.
-- field: its name, for messages. names: those of the values from `low`.
create or replace function outbox.cron_field(
	text text, field text, low integer, high integer, names text[] default '{}')
	returns bit varying language plpgsql immutable parallel safe
	set search_path = pg_catalog, pg_temp
as $$
declare
	bits bit varying := repeat('0', high - low + 1);
	item text;
	span text; -- the item without its step
	first integer;
	last integer;
	step integer;
begin
	if text = '*' then
		return repeat('1', high - low + 1);
	end if;
	foreach item in array string_to_array(text, ',') loop
		if item ~ '^[0-9]{1,2}$' and item::integer between low and high then
			bits := set_bit(bits, item::integer - low, 1);
			continue; -- long lists are of these
		end if;
		-- taken apart by splitting: a match with captures costs 40 microseconds
		if item !~ '^(\*|[0-9a-z]+(-[0-9a-z]+)?)(/[0-9]{1,3})?$' then
			raise exception 'cron: "%" in the field "%" is not *, a value or a range', item, field
				using errcode = '22023';
		end if;
		span := split_part(item, '/', 1);
		step := coalesce(nullif(split_part(item, '/', 2), ''), '1');
		first := low;
		last := high;
		if span <> '*' then
			first := outbox.cron_value(split_part(span, '-', 1), field, low, high, names);
			last := first;
			if span like '%-%' then
				last := outbox.cron_value(split_part(span, '-', 2), field, low, high, names);
				if last = 0 and high = 7 then
					last := 7; -- a range may end with Sunday
				end if;
			elsif span <> item then
				raise exception 'cron: "%" in the field "%" has a step without a range', item, field
					using errcode = '22023';
			end if;
			if last < first then
				raise exception 'cron: the range "%" in the field "%" runs backwards', item, field
					using errcode = '22023';
			end if;
		end if;
		if step not between 1 and high - low + 1 then
			raise exception 'cron: the step of "%" in the field "%" is not between 1 and %',
				item, field, high - low + 1 using errcode = '22023';
		end if;
		for value in first .. last by step loop
			bits := set_bit(bits, value - low, 1);
		end loop;
	end loop;
	return bits;
end $$;

-- cron_parse(expression): raises 22023, naming the field, when it is malformed or when no
-- month has the day.
create or replace function outbox.cron_parse(expression text)
	returns outbox.cron language plpgsql immutable parallel safe
	set search_path = pg_catalog, pg_temp
as $$
declare
	short constant text := btrim(lower(expression collate "C"), E' \t');
	fields constant text[] := regexp_split_to_array(case short
		when '@yearly' then '0 0 1 1 *' when '@annually' then '0 0 1 1 *'
		when '@monthly' then '0 0 1 * *' when '@weekly' then '0 0 * * 0'
		when '@daily' then '0 0 * * *' when '@midnight' then '0 0 * * *'
		when '@hourly' then '0 * * * *' else short end, '[ \t]+');
	longest constant integer[] := '{31,29,31,30,31,30,31,31,30,31,30,31}';
	weekdays bit varying;
	parsed outbox.cron;
begin
	if expression is null or length(expression) > 400 then
		raise exception 'cron: an expression must have between 1 and 400 characters'
			using errcode = '22023';
	end if;
	if cardinality(fields) <> 5 then
		raise exception 'cron: "%" does not have the five fields minute, hour, day of month, '
			'month, day of week', expression using errcode = '22023';
	end if;
	parsed.minutes := outbox.cron_field(fields[1], 'minute', 0, 59);
	parsed.hours := outbox.cron_field(fields[2], 'hour', 0, 23);
	parsed.days := outbox.cron_field(fields[3], 'day of month', 1, 31);
	parsed.months := outbox.cron_field(fields[4], 'month', 1, 12,
		'{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}');
	weekdays := outbox.cron_field(fields[5], 'day of week', 0, 7, '{sun,mon,tue,wed,thu,fri,sat}');
	parsed.weekdays := set_bit(substring(weekdays for 7), 0,
		get_bit(weekdays, 0) | get_bit(weekdays, 7));
	parsed.either_day := fields[3] !~ '^\*' and fields[5] !~ '^\*';
	parsed.is_interval := fields[1] ~ '^\*' or fields[2] ~ '^\*';

	-- Where the weekday is enough, or the days are not impossible, there is a tick within 40
	-- years: from one 29 February on a Sunday to the next.
	for month in 1 .. 12 loop
		if get_bit(parsed.months, month - 1) = 1
			and (parsed.either_day or position(B'1' in parsed.days) <= longest[month]) then
			return parsed;
		end if;
	end loop;
	raise exception 'cron: no month of the field "month" has a day of the field "day of month": "%"',
		expression using errcode = '22023';
end $$;

-- cron_next_day(cron, from): the first day that matches, `from` included.
create or replace function outbox.cron_next_day(cron outbox.cron, first date)
	returns date language plpgsql immutable parallel safe
	set search_path = pg_catalog, pg_temp
as $$
declare
	months constant bit varying := cron.months || cron.months;
	weekdays constant bit varying := repeat(cron.weekdays::text, 6);
	day integer := extract(day from first);          -- where to begin in the month
	month date := date_trunc('month', first::timestamp); -- its first day
	next_month date;
	skip integer;
	days bit varying; -- of the month, that match
begin
	loop
		skip := position(B'1' in substring(months from extract(month from month)::integer)) - 1;
		if skip > 0 then
			month := month + make_interval(months => skip);
			day := 1;
		end if;
		next_month := month + interval '1 month';
		days := substring(weekdays from extract(dow from month)::integer + 1 for 31);
		days := case when cron.either_day then cron.days | days else cron.days & days end;
		skip := position(B'1' in substring(days from day for next_month - month - day + 1));
		if skip > 0 then
			return month + day + skip - 2;
		end if;
		month := next_month;
		day := 1;
	end loop;
end $$;

-- cron_next_local(cron, after): the first time on the wall clock that matches, later than
-- `after`.
create or replace function outbox.cron_next_local(cron outbox.cron, after timestamp)
	returns timestamp language plpgsql immutable parallel safe
	set search_path = pg_catalog, pg_temp
as $$
declare
	earliest constant timestamp := date_trunc('minute', after) + interval '1 minute';
	today constant date := earliest;
	hour integer := extract(hour from earliest);
	minute integer := extract(minute from earliest);
	day date := outbox.cron_next_day(cron, today);
	skip integer; -- so many values further, plus one; 0: none is left
begin
	if day = today then
		skip := position(B'1' in substring(cron.minutes from minute + 1));
		if get_bit(cron.hours, hour) = 1 and skip > 0 then
			return day + make_time(hour, minute + skip - 1, 0);
		end if;
		skip := position(B'1' in substring(cron.hours from hour + 2));
		if skip > 0 then
			return day + make_time(hour + skip, position(B'1' in cron.minutes) - 1, 0);
		end if;
		day := outbox.cron_next_day(cron, today + 1);
	end if;
	return day + make_time(position(B'1' in cron.hours) - 1, position(B'1' in cron.minutes) - 1, 0);
end $$;

-- utc_offset(at, time_zone): what the zone's clocks are ahead of UTC. at: in UTC.
create or replace function outbox.utc_offset(at timestamp, time_zone text) returns interval
	language sql immutable parallel safe
	as $$ select (at at time zone 'UTC' at time zone time_zone) - at $$;

-- zone_shift(local, time_zone): the shift of the clocks that leaves out or repeats this time
-- of the wall clock; all null when it is there once.
--   at              the instant of the shift
--   is_gap          it leaves times out; else it repeats them
--   starts, ends    the times that it leaves out or repeats, `ends` not included
--   before, after   the zone's offset before and after it
create or replace function outbox.zone_shift(
	local timestamp, time_zone text, out at timestamptz, out is_gap boolean,
	out starts timestamp, out ends timestamp, out before interval, out after interval)
	language plpgsql immutable parallel safe
	set search_path = pg_catalog, pg_temp
as $$
declare
	second constant timestamp := date_trunc('second', local);
	-- no zone is a day ahead of UTC, and none has two shifts within two days
	earlier constant interval := outbox.utc_offset(second - interval '24 hours', time_zone);
	later constant interval := outbox.utc_offset(second + interval '24 hours', time_zone);
	low timestamp;  -- in UTC, before the shift
	high timestamp; -- in UTC, not before it
	middle timestamp;
begin
	if earlier = later then
		return;
	end if;
	low := second - greatest(earlier, later);
	high := second - least(earlier, later);
	if outbox.utc_offset(low, time_zone) <> earlier or outbox.utc_offset(high, time_zone) <> later then
		return; -- the shift is near, and elsewhere
	end if;
	while high - low > interval '1 second' loop
		middle := date_trunc('second', low + (high - low) / 2);
		if outbox.utc_offset(middle, time_zone) = earlier then
			low := middle;
		else
			high := middle;
		end if;
	end loop;
	at := high at time zone 'UTC';
	is_gap := later > earlier;
	starts := high + least(earlier, later);
	ends := high + greatest(earlier, later);
	before := earlier;
	after := later;
end $$;

-- cron_next(cron, after, time_zone, gap, fold): the first tick later than `after`. Searches
-- by fields, from a month that matches to the next: less than a millisecond.
create or replace function outbox.cron_next(
	cron text, after timestamptz, time_zone text default 'UTC', gap text default 'after',
	fold text default 'first')
	returns timestamptz language plpgsql immutable parallel safe
	set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
	moment constant interval := interval '1 microsecond';
	parsed constant outbox.cron := outbox.cron_parse(cron);
	local timestamp := after at time zone time_zone;
	shift record := outbox.zone_shift(local, time_zone);
	tick timestamp;
begin
	if gap is null or gap not in ('after', 'skip') then
		raise exception 'gap % must be "after" or "skip"', quote_nullable(gap) using errcode = '22023';
	elsif fold is null or fold not in ('first', 'last', 'both') then
		raise exception 'fold % must be "first", "last" or "both"', quote_nullable(fold)
			using errcode = '22023';
	elsif parsed.is_interval then
		gap := 'skip';
		fold := 'both';
	end if;
	if shift.is_gap = false then -- the clock shows a time that it shows twice
		if after >= shift.at and fold = 'first' then
			local := shift.ends - moment;
		elsif after < shift.at and fold = 'last' then
			local := shift.starts - moment;
		elsif after < shift.at and fold = 'both' then
			tick := outbox.cron_next_local(parsed, local);
			if tick < shift.ends then
				return (tick - shift.before) at time zone 'UTC';
			end if;
			after := shift.at - moment;
			local := shift.starts - moment;
		end if;
	end if;
	loop
		tick := outbox.cron_next_local(parsed, local);
		shift := outbox.zone_shift(tick, time_zone);
		if shift.at is null then
			return tick at time zone time_zone;
		elsif not shift.is_gap then
			return (tick - case
				when fold = 'first' or fold = 'both' and after < shift.at - moment then shift.before
				else shift.after end) at time zone 'UTC';
		elsif gap = 'after' then
			return shift.at;
		end if;
		local := shift.ends - moment;
	end loop;
end $$;
