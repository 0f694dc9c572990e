-- How long computing the next tick takes, in microseconds: one call each for 500 instants.
-- Wanted: under 1,000 for any legal expression; under 10,000 for 29 February from 2096 on.
--
-- usage: psql -f tests/bench/cron.sql    in a database with the schema outbox
\set QUIET on
set client_min_messages = warning;

create function pg_temp.microseconds(cron text, after timestamptz, zone text) returns integer
language plpgsql as $$
declare
	started constant timestamptz := clock_timestamp();
begin
	for i in 1 .. 500 loop
		perform outbox.cron_next(cron, after + i * interval '1 microsecond', zone);
	end loop;
	return extract(epoch from clock_timestamp() - started) * 1000000 / 500;
end $$;

select left(cron, 40) as cron, zone, left(what, 40) as what,
	pg_temp.microseconds(cron, after::timestamptz, zone) as microseconds
from (values
	('* * * * *', '2026-06-01Z', 'UTC', 'every minute'),
	('*/15 * * * *', '2026-10-25 00:40Z', 'Europe/Berlin', 'within a repeated hour'),
	('30 2 * * *', '2026-03-29 00:30Z', 'Europe/Berlin', 'before a gap'),
	('30 2 * * *', '2026-10-24 12:00Z', 'Australia/Lord_Howe', 'half an hour'),
	('0 0 29 2 *', '2096-03-01Z', 'UTC', 'eight years ahead'),
	('0 0 29 2 *', '2096-03-01Z', 'Europe/Berlin', 'eight years ahead'),
	('0 0 29 2 */7', '2088-03-01Z', 'Europe/Berlin', 'forty years ahead'),
	('0 0 31 12 */7', '2026-01-01Z', 'UTC', 'New Year''s Eve on a Sunday'),
	((select string_agg(n::text, ',') from generate_series(0, 59) n) || ' '
		|| (select string_agg(n::text, ',') from generate_series(0, 23) n) || ' '
		|| (select string_agg(n::text, ',') from generate_series(1, 31) n) || ' '
		|| 'jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec sun,mon,tue,wed,thu,fri,sat',
		'2026-06-01Z', 'Europe/Berlin', 'every value listed')) t (cron, after, zone, what);
