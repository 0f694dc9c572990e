-- Time and identity.

-- now(): the clock behind every stored instant and every due time: the start of the
-- transaction. One function, so that tests can move it. Inlined, it costs nothing.
create or replace function outbox.now() returns timestamptz
	language sql stable parallel safe
	as 'select pg_catalog.now()';

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
