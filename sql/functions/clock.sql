-- Time and identity.

-- now(): the clock behind every stored instant and every due time: the start of the
-- transaction. One function, so that tests can move it (clock_move). Inlined, it costs nothing.
create or replace function outbox.now() returns timestamptz
	language sql stable parallel safe
	as 'select pg_catalog.now()';

-- clock_offset(): by how much now() is ahead of the real time; 0 but in tests.
create or replace function outbox.clock_offset() returns interval
	language sql stable parallel safe
	as 'select outbox.now() - pg_catalog.now()';

-- clock_move(by): moves the clock of this database, and returns what now() says then. Claimers
-- and sweepers look again at once. Only ids still come from the real time, so that they stay
-- unique. To put the clock back: outbox.clock_move(-outbox.clock_offset()).
--
-- For tests of what happens later. The offset is written into the body of now() itself, which
-- nobody but the owner of the schema can replace.
create or replace function outbox.clock_move(by interval) returns timestamptz
	language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	-- in seconds: what a day or a month is depends on the date and the time zone
	seconds constant numeric := extract(epoch from outbox.clock_offset() + by);
	body text := 'select pg_catalog.now()';
	moved timestamptz;
begin
	if seconds is null then
		raise exception 'by must not be null' using errcode = '22004';
	end if;
	if seconds <> 0 then
		body := body || format(' + interval ''%s seconds''', seconds);
	end if;
	execute format('create or replace function outbox.now() returns timestamptz'
		' language sql stable parallel safe as %L', body);
	perform pg_notify('outbox', ''), pg_notify('outbox_schedule', '');
	execute 'select outbox.now()' into moved;
	return moved;
end $$;
revoke all on function outbox.clock_move(interval) from public;

-- clock_us(): the database's clock in Unix microseconds, for programs that need "now"
-- without trusting their own.
create or replace function outbox.clock_us() returns bigint
	language sql stable parallel safe
	as 'select (extract(epoch from outbox.now()) * 1000000)::bigint';

-- time_at(unix_us): Unix microseconds as timestamptz; null and 0 give null. Inlined, unlike
-- a sum of timestamptz and interval, which is only stable. A double holds it exactly enough.
create or replace function outbox.time_at(unix_us bigint) returns timestamptz
	language sql immutable parallel safe
	as 'select pg_catalog.to_timestamp(nullif(unix_us, 0) / 1000000.0::double precision)';

-- new_id(): 43 bits of milliseconds since 1970 and 20 bits of a sequence: unique while
-- fewer than 1,048,576 ids are drawn in a millisecond, and ordered by time, so that a
-- range of days is a range of ids.
create or replace function outbox.new_id() returns bigint
	language sql volatile
	as $$ select ((extract(epoch from pg_catalog.clock_timestamp()) * 1000)::bigint << 20)
		| pg_catalog.nextval('outbox.job_seq') $$;

-- id_at(at): the least id that a job made at this instant can have.
create or replace function outbox.id_at(at timestamptz) returns bigint
	language sql stable parallel safe
	as 'select (extract(epoch from at) * 1000)::bigint << 20';

-- schema_version(): what the programs compare with the range they speak.
create or replace function outbox.schema_version() returns integer
	language sql stable parallel safe
	as 'select schema_version from outbox.meta';
