-- Cron expressions, and the instants they stand for. The clocks of server and session must not
-- matter: the session's is New York's, and at the end others give the same.
begin;
set client_min_messages = warning;
set timezone = 'America/New_York';
select plan(133);

-- The values that a field has, as a list.
create function pg_temp.listed(bits bit varying, low integer) returns text language sql as $$
	select string_agg((n + low)::text, ' ' order by n)
	from generate_series(0, length(bits) - 1) n where get_bit(bits, n) = 1 $$;

-- The first n ticks after an instant, in UTC: '03-29 01:00, ...'.
create function pg_temp.ticks(
	cron text, after timestamptz, n integer, zone text, gap text default 'after',
	fold text default 'first') returns text language plpgsql as $$
declare
	list text[];
begin
	for i in 1 .. n loop
		after := outbox.cron_next(cron, after, zone, gap, fold);
		list := list || to_char(after at time zone 'UTC', 'MM-DD HH24:MI');
	end loop;
	return array_to_string(list, ', ');
end $$;

-- ---- what an expression may be

select is(pg_temp.listed((outbox.cron_parse(cron)).minutes, 0), listed, cron)
from (values
	('0 * * * *', '0'),
	('59 * * * *', '59'),
	('5,1,1 * * * *', '1 5'),
	('3-6 * * * *', '3 4 5 6'),
	('*/15 * * * *', '0 15 30 45'),
	('*/60 * * * *', '0'),
	('50-59/4 * * * *', '50 54 58'),
	('1,10-12,*/30 * * * *', '0 1 10 11 12 30'),
	('  7	 * * * *	', '7')) t (cron, listed);

select is(pg_temp.listed((outbox.cron_parse(cron)).hours, 0), listed, cron)
from (values ('0 0,23 * * *', '0 23'), ('0 8-18/5 * * *', '8 13 18'), ('0 */7 * * *', '0 7 14 21'))
	t (cron, listed);

select is(pg_temp.listed((outbox.cron_parse(cron)).days, 1), listed, cron)
from (values ('0 0 31 * *', '31'), ('0 0 */10 * *', '1 11 21 31')) t (cron, listed);

select is(pg_temp.listed((outbox.cron_parse(cron)).months, 1), listed, cron)
from (values
	('0 0 1 1 *', '1'),
	('0 0 1 dec *', '12'),
	('0 0 1 JAN,Apr-jun *', '1 4 5 6'),
	('0 0 1 feb-12/5 *', '2 7 12')) t (cron, listed);

select is(pg_temp.listed((outbox.cron_parse(cron)).weekdays, 0), listed, cron)
from (values
	('0 0 * * 0', '0'),
	('0 0 * * 7', '0'),
	('0 0 * * sun', '0'),
	('0 0 * * MON-fri', '1 2 3 4 5'),
	('0 0 * * fri-sun', '0 5 6'),
	('0 0 * * 5-7', '0 5 6'),
	('0 0 * * 6-0', '0 6'),
	('0 0 * * sun-tue', '0 1 2'),
	('0 0 * * 0-7', '0 1 2 3 4 5 6'),
	('0 0 * * */2', '0 2 4 6')) t (cron, listed);

select is(outbox.cron_parse(short), outbox.cron_parse(long), short)
from (values
	('@yearly', '0 0 1 1 *'), ('@annually', '0 0 1 1 *'), ('@monthly', '0 0 1 * *'),
	('@weekly', '0 0 * * 0'), ('@daily', '0 0 * * *'), ('@Midnight', '0 0 * * *'),
	('@hourly', '0 * * * *')) t (short, long);

select throws_matching(format('select outbox.cron_parse(%L)', cron), problem, coalesce(cron, 'null'))
from (values
	(null, 'between 1 and 400 characters'),
	('', 'five fields'),
	('* * * *', 'five fields'),
	('* * * * * *', 'five fields'),
	('@reboot', 'five fields'),
	('60 * * * *', '"60" in the field "minute" is not between 0 and 59'),
	('-1 * * * *', '"-1" in the field "minute"'),
	('* 24 * * *', '"24" in the field "hour" is not between 0 and 23'),
	('* * 0 * *', '"0" in the field "day of month" is not between 1 and 31'),
	('* * 32 * *', 'field "day of month"'),
	('* * * 13 *', 'field "month" is not between 1 and 12'),
	('* * * 0 *', 'field "month"'),
	('* * * * 8', '"8" in the field "day of week" is not between 0 and 7'),
	('* * * mon *', '"mon" in the field "month"'),
	('* * * * jan', '"jan" in the field "day of week"'),
	('* * * * monday', '"monday" in the field "day of week"'),
	('jan * * * *', '"jan" in the field "minute"'),
	('1, * * * *', '"" in the field "minute"'),
	('1,,2 * * * *', '"" in the field "minute"'),
	('a b c d e', '"a" in the field "minute"'),
	('*-5 * * * *', 'field "minute"'),
	('1-2-3 * * * *', 'field "minute"'),
	('5-1 * * * *', 'the range "5-1" in the field "minute" runs backwards'),
	('* * * dec-jan *', 'the range "dec-jan" in the field "month" runs backwards'),
	('5/15 * * * *', '"5/15" in the field "minute" has a step without a range'),
	('*/0 * * * *', 'step of "\*/0" in the field "minute" is not between 1 and 60'),
	('*/61 * * * *', 'step of "\*/61" in the field "minute"'),
	('0 */25 * * *', 'step of "\*/25" in the field "hour"'),
	('*/-1 * * * *', 'field "minute"'),
	('1.5 * * * *', 'field "minute"'),
	('1e1 * * * *', 'field "minute"'),
	('? * * * *', 'field "minute"'),
	('0 0 L * *', 'field "day of month"'),
	(repeat('1,', 200) || '1 * * * *', 'between 1 and 400 characters'),
	('0 0 31 4 *', 'has a day of the field "day of month": "0 0 31 4 \*"'),
	('0 0 30 feb *', 'no month of the field "month"'),
	('0 0 31 4,6,9,11 *', 'no month'),
	('0 0 30,31 2 */7', 'no month')) t (cron, problem);

select throws_matching($$select outbox.cron_next('@daily', now(), 'UTC', 'never')$$, 'gap ''never''', 'gap');
select throws_matching($$select outbox.cron_next('@daily', now(), 'UTC', 'skip', 'twice')$$,
	'fold ''twice''', 'fold');

-- ---- days

select is(pg_temp.ticks(cron, '2026-01-01Z', 4, 'UTC'), ticks, cron || ': ' || why)
from (values
	('0 0 13 * fri', '01-02 00:00, 01-09 00:00, 01-13 00:00, 01-16 00:00', 'either is enough'),
	('0 0 13 * *', '01-13 00:00, 02-13 00:00, 03-13 00:00, 04-13 00:00', 'every weekday'),
	('0 0 * * fri', '01-02 00:00, 01-09 00:00, 01-16 00:00, 01-23 00:00', 'every day of the month'),
	('0 0 */2 * fri', '01-09 00:00, 01-23 00:00, 02-13 00:00, 02-27 00:00',
		'a star with a step is no restriction: both must match'),
	('0 0 1-7 * */5', '01-02 00:00, 01-04 00:00, 02-01 00:00, 02-06 00:00', 'the same, as a weekday'),
	('0 0 1-31/2 * fri', '01-02 00:00, 01-03 00:00, 01-05 00:00, 01-07 00:00', 'a range is one'),
	('0 0 31 * *', '01-31 00:00, 03-31 00:00, 05-31 00:00, 07-31 00:00', 'months without it'),
	('59 23 31 12 *', '12-31 23:59, 12-31 23:59, 12-31 23:59, 12-31 23:59', 'year after year'),
	('30 8,20 * 6-7 *', '06-01 08:30, 06-01 20:30, 06-02 08:30, 06-02 20:30', 'not before June'),
	('@weekly', '01-04 00:00, 01-11 00:00, 01-18 00:00, 01-25 00:00', 'Sundays')) t (cron, ticks, why);

select is(outbox.cron_next('0 0 29 2 *', after, 'UTC'), expected, '29 February after ' || after)
from (values
	('2026-01-01Z'::timestamptz, '2028-02-29Z'::timestamptz),
	('2095-12-31Z', '2096-02-29Z'),
	('2096-02-28 23:59:59.999Z', '2096-02-29Z'),
	('2096-02-29Z', '2104-02-29Z'), -- 2100 is no leap year
	('2399-12-31Z', '2400-02-29Z')) t (after, expected);
select is(outbox.cron_next('0 0 29 2 */7', '2088-03-01Z', 'UTC'), '2128-02-29Z',
	'29 February on a Sunday, 40 years later');
select is(outbox.cron_next('0 0 29 2 */7', '2088-03-01Z', 'Europe/Berlin'), '2128-02-28 23:00Z',
	'the same in Berlin');

select is(outbox.cron_next('*/10 * * * *', after, 'UTC'), expected, 'strictly after ' || after)
from (values
	('2026-05-05 10:09:59.999999Z'::timestamptz, '2026-05-05 10:10Z'::timestamptz),
	('2026-05-05 10:10Z', '2026-05-05 10:20Z'),
	('2026-05-05 10:10:00.000001Z', '2026-05-05 10:20Z'),
	('2026-12-31 23:50Z', '2027-01-01Z')) t (after, expected);

-- ---- SCH-01: shifts of the clocks; at 01:00 in UTC Berlin goes from 2 to 3, and from 3 to 2

prepare shifts as
select pg_temp.ticks(cron, after::timestamptz, n, zone, gap, fold) as ticks, expected,
	concat_ws(' ', cron, zone, gap, fold, left(after, 10)) as what
from (values
	-- a time that is left out
	('30 2 * * *', '2026-03-27 12:00Z', 3, 'Europe/Berlin', 'after', 'first',
		'03-28 01:30, 03-29 01:00, 03-30 00:30'),
	('30 2 * * *', '2026-03-27 12:00Z', 3, 'Europe/Berlin', 'skip', 'first',
		'03-28 01:30, 03-30 00:30, 03-31 00:30'),
	('0 2,3 * * *', '2026-03-29 00:00Z', 2, 'Europe/Berlin', 'after', 'first', '03-29 01:00, 03-30 00:00'),
	('0-59 2 * * *', '2026-03-29 00:00Z', 2, 'Europe/Berlin', 'after', 'first', '03-29 01:00, 03-30 00:00'),
	('59 1 * * *', '2026-03-29 00:00Z', 2, 'Europe/Berlin', 'after', 'first', '03-29 00:59, 03-29 23:59'),
	-- a time that comes twice
	('30 2 * * *', '2026-10-24 12:00Z', 2, 'Europe/Berlin', 'after', 'first', '10-25 00:30, 10-26 01:30'),
	('30 2 * * *', '2026-10-24 12:00Z', 2, 'Europe/Berlin', 'after', 'last', '10-25 01:30, 10-26 01:30'),
	('30 2 * * *', '2026-10-24 12:00Z', 3, 'Europe/Berlin', 'after', 'both',
		'10-25 00:30, 10-25 01:30, 10-26 01:30'),
	('0,30 2 * * *', '2026-10-25 00:15Z', 2, 'Europe/Berlin', 'after', 'last', '10-25 01:00, 10-25 01:30'),
	('0,30 2 * * *', '2026-10-25 00:15Z', 3, 'Europe/Berlin', 'after', 'both',
		'10-25 00:30, 10-25 01:00, 10-25 01:30'),
	('30 2 * * *', '2026-10-25 01:15Z', 1, 'Europe/Berlin', 'after', 'first', '10-26 01:30'),
	('0 3 * * *', '2026-10-24 12:00Z', 2, 'Europe/Berlin', 'after', 'both', '10-25 02:00, 10-26 02:00'),
	-- intervals follow the clock on the wall, whatever the policies
	('*/15 * * * *', '2026-03-29 00:30Z', 4, 'Europe/Berlin', 'after', 'first',
		'03-29 00:45, 03-29 01:00, 03-29 01:15, 03-29 01:30'),
	('*/20 2 * * *', '2026-03-28 12:00Z', 1, 'Europe/Berlin', 'after', 'first', '03-30 00:00'),
	('0 * * * *', '2026-10-24 23:30Z', 4, 'Europe/Berlin', 'after', 'first',
		'10-25 00:00, 10-25 01:00, 10-25 02:00, 10-25 03:00'),
	('30 */2 * * *', '2026-10-24 23:30Z', 3, 'Europe/Berlin', 'after', 'last',
		'10-25 00:30, 10-25 01:30, 10-25 03:30'),
	-- half an hour: from 2:00 (15:30 in UTC) to 2:30, and from 2:00 (15:00 in UTC) to 1:30
	('15 2 * * *', '2026-10-03 00:00Z', 2, 'Australia/Lord_Howe', 'after', 'first',
		'10-03 15:30, 10-04 15:15'),
	('30 2 * * *', '2026-10-03 00:00Z', 2, 'Australia/Lord_Howe', 'after', 'first',
		'10-03 15:30, 10-04 15:30'),
	('45 1 * * *', '2026-04-04 00:00Z', 3, 'Australia/Lord_Howe', 'after', 'both',
		'04-04 14:45, 04-04 15:15, 04-05 15:15'),
	('*/15 * * * *', '2026-04-04 14:30Z', 4, 'Australia/Lord_Howe', 'after', 'first',
		'04-04 14:45, 04-04 15:00, 04-04 15:15, 04-04 15:30'),
	('0 * * * *', '2026-04-04 13:30Z', 2, 'Australia/Lord_Howe', 'after', 'first',
		'04-04 14:00, 04-04 15:30'), -- no clock there shows a full hour between
	-- midnight is left out: a day that begins at 1:00; then a day that ends twice
	('0 0 * * *', '2018-11-03 12:00Z', 2, 'America/Sao_Paulo', 'after', 'first', '11-04 03:00, 11-05 02:00'),
	('30 0 * * *', '2018-11-03 12:00Z', 2, 'America/Sao_Paulo', 'skip', 'first', '11-05 02:30, 11-06 02:30'),
	('0 0 * * sun', '2018-11-03 12:00Z', 2, 'America/Sao_Paulo', 'after', 'first', '11-04 03:00, 11-11 02:00'),
	('30 23 * * *', '2018-02-17 12:00Z', 3, 'America/Sao_Paulo', 'after', 'both',
		'02-18 01:30, 02-18 02:30, 02-19 02:30'),
	('30 23 17 * *', '2018-02-18 01:45Z', 1, 'America/Sao_Paulo', 'after', 'last', '02-18 02:30'),
	-- the clocks go from 0:01 to 23:01 of the day before
	('30 23 28 10 *', '2006-10-29 02:30:30Z', 1, 'America/St_Johns', 'after', 'both', '10-29 03:00'),
	-- a day that is left out
	('0 12 * * *', '2011-12-29 00:00Z', 3, 'Pacific/Apia', 'after', 'first',
		'12-29 22:00, 12-30 10:00, 12-30 22:00')
) t (cron, after, n, zone, gap, fold, expected);

create table pg_temp.given as execute shifts;
select is(ticks, expected, what) from pg_temp.given;

set timezone = 'Europe/Berlin';
create table pg_temp.in_berlin as execute shifts;
set timezone = 'Australia/Lord_Howe';
create table pg_temp.in_lord_howe as execute shifts;
select set_eq('table pg_temp.in_berlin', 'table pg_temp.given', 'the same in a session of Berlin');
select set_eq('table pg_temp.in_lord_howe', 'table pg_temp.given', 'the same in one of Lord Howe');

-- Quarters of an hour have no hole where the offsets are whole quarters.
select is((
	select array_agg(distinct outbox.cron_next('*/15 * * * *', t, zone) - t)
	from generate_series(start::timestamptz, start::timestamptz + interval '10 days', '15 min') t),
	array[interval '15 min'], 'every 15 minutes in ' || zone || ' from ' || start)
from (values
	('Europe/Berlin', '2026-03-25Z'), ('Europe/Berlin', '2026-10-20Z'),
	('Australia/Lord_Howe', '2026-03-30Z'), ('Australia/Lord_Howe', '2026-09-29Z')) t (zone, start);

-- One tick a day, whatever the clocks do.
select is((
	select count(*) from (
		with recursive tick (at) as (
			select outbox.cron_next('30 2 * * *', '2025-12-31 12:00Z', zone)
			union all
			select outbox.cron_next('30 2 * * *', at, zone) from tick
			where at < outbox.cron_next('0 12 31 12 *', '2026-02-01Z', zone))
		select from tick where at < '2026-12-31 12:00Z') t), 365::bigint, '365 days of 2:30 in ' || zone)
from (values ('Europe/Berlin'), ('Australia/Lord_Howe'), ('America/New_York')) t (zone);

select * from finish();
rollback;
