-- enqueue, enqueue_strict: limits, statuses, what is stored, bytes kept, nesting.
begin;
\ir helpers.psql
select * from no_plan();

-- ---- limits: the message names the parameter and the limit

select throws_ok(format('select * from outbox.enqueue(%L, %L)', k, '{}'), '22023',
	format('kind %s must match ^[a-z0-9][a-z0-9._-]{0,99}$', quote_nullable(left(k, 120))),
	'kind ' || coalesce(to_json(left(k, 20))::text, 'null'))
from unnest(array[null, '', '../../bin/sh', '/bin/sh', '.', '..', 'a/b', '-rf', 'a;id', '$(id)',
	e'x\n', e'a\nb', 'a b', 'README', '.hidden', 'lib.So', 'k~', 'ｅmail', repeat('a', 101),
	repeat('a', 300)]) k;

select throws_ok('select * from outbox.enqueue(' || c.arguments || ')', '22023', c.message, c.message)
from (values
	($$'k', null::text$$, 'payload must not be null'),
	($$'k', '"' || repeat('x', 262143) || '"'$$, 'payload is 262145 bytes long, the limit is 262144 for kind "k"'),
	($$'k', '"' || repeat('é', 131072) || '"'$$, 'payload is 262146 bytes long, the limit is 262144 for kind "k"'),
	($$'k', repeat('[', 501) || repeat(']', 501)$$, 'payload nesting is deeper than the limit of 500 levels for kind "k"'),
	($$'k', '{}', metadata => to_json(repeat('x', 16383))$$, 'metadata is 16385 bytes long, the limit is 16384'),
	($$'k', '{}', metadata => (repeat('[', 101) || repeat(']', 101))::json$$, 'metadata nesting is deeper than the limit of 100 levels'),
	($$'k', '{}', dedupe_key => ''$$, 'dedupe_key must not be empty'),
	($$'k', '{}', tenant_key => ''$$, 'tenant_key must not be empty'),
	($$'k', '{}', subject_key => ''$$, 'subject_key must not be empty'),
	($$'k', '{}', correlation_id => ''$$, 'correlation_id must not be empty'),
	($$'k', '{}', traceparent => ''$$, 'traceparent must not be empty'),
	($$'k', '{}', dedupe_key => repeat('x', 513)$$, 'dedupe_key is 513 bytes long, the limit is 512'),
	($$'k', '{}', tenant_key => repeat('😀', 129)$$, 'tenant_key is 516 bytes long, the limit is 512'),
	($$'k', '{}', subject_key => repeat('x', 513)$$, 'subject_key is 513 bytes long, the limit is 512'),
	($$'k', '{}', correlation_id => repeat('x', 513)$$, 'correlation_id is 513 bytes long, the limit is 512'),
	($$'k', '{}', traceparent => repeat('x', 513)$$, 'traceparent is 513 bytes long, the limit is 512'),
	($$'k', '{}', priority => 0$$, 'priority 0 must be between 1 (first) and 4 (last)'),
	($$'k', '{}', priority => 5$$, 'priority 5 must be between 1 (first) and 4 (last)'),
	($$'k', '{}', priority => null$$, 'priority null must be between 1 (first) and 4 (last)'),
	($$'k', '{}', max_attempts => 0$$, 'max_attempts 0 must be between 1 and 10000'),
	($$'k', '{}', max_attempts => 10001$$, 'max_attempts 10001 must be between 1 and 10000'),
	($$'k', '{}', version => 0$$, 'version 0 must be at least 1'),
	($$'k', '{}', delay => '1 s', run_at => now()$$, 'delay and run_at must not be given together'),
	($$'k', '{}', delay => '-1 us'$$, 'delay -00:00:00.000001 must be between 0 and 10 years'),
	($$'k', '{}', delay => '10 years 1 day'$$, 'delay 10 years 1 day must be between 0 and 10 years'),
	($$'k', '{}', run_at => 'infinity'$$, 'run_at infinity must be finite and within 10 years'),
	($$'k', '{}', run_at => '-infinity'$$, 'run_at -infinity must be finite and within 10 years'),
	($$'k', '{}', dedupe => 'often'$$, $$dedupe 'often' must be "forever" or "until_done"$$),
	($$'k', '{}', dedupe => null$$, 'dedupe NULL must be "forever" or "until_done"')
) c (arguments, message);

select throws_like($$select * from outbox.enqueue('k', '{}', run_at => now() + interval '10 years 1 s')$$,
	'run_at % must be finite and within 10 years', 'run_at past 10 years');
select throws_ok($$select * from outbox.enqueue('k', '{a}')$$, '22P02', null, 'payload that is not JSON');
select throws_ok($$select * from outbox.enqueue('k', '')$$, '22P02', null, 'empty payload');
select is((select count(*) from outbox.job) + (select count(*) from outbox.ready)
	+ (select count(*) from outbox.dedupe), 0::bigint, 'a refusal leaves nothing behind');

-- ---- what is just within the limits

select is((select status from outbox.enqueue(
		rpad('0', 100, 'a.b_c-9'), '"' || repeat('é', 131071) || '"',
		dedupe_key => repeat('😀', 128), tenant_key => repeat('😀', 128),
		subject_key => repeat('😀', 128), correlation_id => e'\n=' || repeat('x', 510),
		traceparent => repeat('x', 512), delay => '10 years', priority => 4, max_attempts => 10000,
		metadata => to_json(repeat('x', 16382)), version => 2147483647)),
	'created', 'all at their largest');
select is((select status from outbox.enqueue('k', 'null', delay => '0', priority => 1,
	max_attempts => 1, version => 1)), 'created', 'all at their smallest');
select is((select status from outbox.enqueue('0', repeat('[', 500) || repeat(']', 500))),
	'created', '500 levels');

-- ---- limits of a kind

insert into outbox.kind (name, max_payload_bytes, max_payload_depth) values ('small', 10, 2), ('deep', 1000000, 2000);
select throws_ok($$select outbox.enqueue('small', '[[[1]]]')$$, '22023',
	'payload nesting is deeper than the limit of 2 levels for kind "small"', 'nesting of a kind');
select throws_ok($$select outbox.enqueue('small', '"123456789"')$$, '22023',
	'payload is 11 bytes long, the limit is 10 for kind "small"', 'bytes of a kind');
select is((select status from outbox.enqueue('small', '[[1,2,34]]')), 'created', 'within both');
select is((select status from outbox.enqueue('deep', repeat('[', 2000) || repeat(']', 2000))),
	'created', 'a kind may go deeper than the default');

-- ---- nesting (ENQ-03): counted as depth, and not fooled by what is in strings

select is(outbox.json_is_deeper(c.document, c.levels), c.deeper, c.label)
from (values
	('1', 0, false, 'a scalar has no levels'),
	('[]', 0, true, 'an array is a level'),
	('{}', 1, false, 'an object is a level'),
	('[{"a":[1]}]', 3, false, 'both kinds count'),
	('[{"a":[1]}]', 2, true, 'three levels are deeper than two'),
	('[[],[],[[]]]', 3, false, 'siblings do not add up'),
	('["[[[[", "{{{{"]', 1, false, 'brackets in strings are text'),
	('["\"[[", "\\", [1]]', 2, false, 'escaped quotes do not end a string'),
	('["\\\"[[[["]', 1, false, 'an escaped backslash before an escaped quote'),
	('{"[[[":1}', 1, false, 'brackets in names are text'),
	('["é[[[", "😀{{{"]', 1, false, 'characters of several bytes'),
	(repeat('[', 31) || repeat(']', 31), 31, false, '31 levels'),
	(repeat('[', 33) || repeat(']', 33), 32, true, '33 levels'),
	(repeat('{"a":', 64) || '1' || repeat('}', 64), 63, true, '64 objects'),
	('[[1]', 1, false, 'a broken document of little depth is left to the parser'),
	(repeat('[', 100000), 500, true, 'a document that is cut off')
) c (document, levels, deeper, label);

select throws_ok(format('select outbox.enqueue(''k'', repeat(''['', %s) || repeat('']'', %1$s))', n),
	'22023', 'payload nesting is deeper than the limit of 500 levels for kind "k"', n || ' levels')
from unnest(array[501, 1000, 6000, 20000]) n;
select is((select status from outbox.enqueue('nested', repeat('[', n) || repeat(']', n))), 'created',
	n || ' levels') from unnest(array[31, 32, 33, 64]) n;
select is((select status from outbox.enqueue('nested', '{"plain":1}')), 'created', 'and a plain one');
select is((select array_agg(length(c.payload::text) order by c.job_id) from outbox.claim('w', 'default',
	'{nested}', '{10}', 10) c), '{62,64,66,128,11}', 'all of them reach a worker, the plain one too');

-- ---- what is stored

select id as plain from outbox.enqueue('plain', '{"x":1}') \gset
select results_eq(format('select kind, priority, run_at = now(), created_at = now(), max_attempts, version,
		tenant_key, subject_key, correlation_id, traceparent, dedupe_key, metadata::text
		from outbox.job where id = %s', :plain),
	$$values ('plain', 2::smallint, true, true, null::smallint, null::integer, null::text, null::text,
		null::text, null::text, null::text, null::text)$$, 'the defaults of a job');
select results_eq(format('select kind, priority, due_at = now(), version, attempt from outbox.ready where job_id = %s', :plain),
	$$values ('plain', 2::smallint, true, 0, 0::smallint)$$, 'and of its row in ready');
select id as full from outbox.enqueue('full', '{"x":1}', 'key', 'until_done', 'org1', 'alice', 'req-7',
	'00-ab', '1 min', null, 3, 5, '{"source": "signup"}', 12) \gset
select results_eq(format('select kind, priority, run_at - now(), max_attempts, version, tenant_key,
		subject_key, correlation_id, traceparent, dedupe_key, metadata::text
		from outbox.job where id = %s', :full),
	$$values ('full', 3::smallint, interval '1 min', 5::smallint, 12, 'org1', 'alice', 'req-7', '00-ab',
		'key', '{"source": "signup"}')$$, 'everything given is kept');
select results_eq(format('select kind, priority, due_at - now(), version, attempt from outbox.ready where job_id = %s', :full),
	$$values ('full', 3::smallint, interval '1 min', 12, 0::smallint)$$, 'and its row in ready');
select is((test.job((outbox.enqueue('k', '{}', run_at => now() - interval '1 year')).id)).run_at,
	now(), 'run_at in the past is now');
select is((test.job((outbox.enqueue('k', '{}', run_at => now() + interval '1 year')).id)).run_at,
	now() + interval '1 year', 'run_at in the future');
select ok(:full > :plain, 'ids grow');
select ok((outbox.id_at(clock_timestamp()) - :plain) >> 20 between 0 and 60000,
	'an id begins with the milliseconds of its making');

-- ---- statuses

select results_eq($$select status, id is not null, kind, existing_kind, issues::text from outbox.enqueue('s', '{}', 'k1')$$,
	$$values ('created', true, 's', null::text, null::text)$$, 'created');
select results_eq($$select e.status, e.id = j.id, e.kind, e.existing_kind, e.issues::text
		from outbox.enqueue('s', '{}', 'k1') e, outbox.job j where j.dedupe_key = 'k1'$$,
	$$values ('exists', true, 's', null::text, null::text)$$, 'exists: the id is the existing job''s');
select results_eq($$select e.status, e.id = j.id, e.kind, e.existing_kind, e.issues::text
		from outbox.enqueue('other', '{}', 'k1') e, outbox.job j where j.dedupe_key = 'k1'$$,
	$$values ('dedupe_conflict', true, 'other', 's', null::text)$$, 'dedupe_conflict: whose key it is');
select test.announce('checked', schema => '{"type": "object", "required": ["user"]}') as x \gset
select results_eq($$select status, id, kind, existing_kind, issues::text from outbox.enqueue('checked', '{}', 'k2')$$,
	$$values ('invalid_payload', null::bigint, 'checked', null::text,
		'[{"path": "", "message": "must have the property \"user\""}]')$$, 'invalid_payload: what is wrong');
select is((select count(*) from outbox.dedupe where key = 'k2'), 0::bigint, 'an invalid payload takes no key');
select is((select status from outbox.enqueue('checked', '{"user":1}', 'k2')), 'created', 'a valid payload');
select is((select count(*) from outbox.job where dedupe_key in ('k1', 'k2')), 2::bigint, 'two jobs were made');

-- ---- enqueue_strict

select ok(outbox.enqueue_strict('s', '{}', 'strict') = outbox.enqueue_strict('s', '{}', 'strict'),
	'strict: the id of the job, made or existing');
select throws_like($$select outbox.enqueue_strict('other', '{}', 'strict')$$,
	'dedupe_key "strict" belongs to job % of kind "s"', 'strict: a conflict raises');
select throws_ok($$select outbox.enqueue_strict('other', '{}', 'strict')$$, '23505', null, '… as 23505');
select throws_ok($$select outbox.enqueue_strict('checked', '[]')$$, '22023',
	'payload of kind "checked" is invalid: it must be of type object, not array', 'strict: an invalid payload raises');
select throws_ok($$select outbox.enqueue_strict('', '{}')$$, '22023', null, 'strict: so does a limit');

-- ---- json and jsonb

select is((test.job((outbox.enqueue('k', '{"b":1, "a" :1.10}'::json)).id)).payload::text,
	'{"b":1, "a" :1.10}', 'json is kept as it is');
select is((test.job((outbox.enqueue('k', '{"b":1, "a" :1.10}'::jsonb)).id)).payload::text,
	'{"a": 1.10, "b": 1}', 'jsonb as jsonb writes it');
select is((test.job((outbox.enqueue('k', '1'::jsonb, metadata => '{"a":1}'::jsonb)).id)).metadata::text,
	'{"a": 1}', 'jsonb metadata');
select is((test.job(outbox.enqueue_strict('k', '[ 1]'::json))).payload::text, '[ 1]', 'strict, json');
select is((test.job(outbox.enqueue_strict('k', '[ 1]'::jsonb))).payload::text, '[1]', 'strict, jsonb');
select is((select status from outbox.enqueue('k', '{}'::varchar)), 'created', 'varchar is text');

-- ---- ENQ-01: the bytes of a payload are kept and nothing of ours looks inside

create table test.document (n serial, text text);
insert into test.document (text) values
	('{"a":"x\u0000y"}'), ('{"k\u0000":1}'), ('{"a":[{"b":"\u0000"}]}'), ('{"a":"\ud800"}'),
	('{"a":"\udc59"}'), ('{"a":"x\\u0000y"}'), ('{"a":"\ud83d\ude00"}'),
	(e' {"z" : 1.10,\t"a":12345678901234567890, "a":1e400000,\r\n"":-0.0} '), ('"\/\u00e9é"'),
	('null'), ('true'), ('0'), ('""');
select is((select status from outbox.enqueue('bytes', d.text)), 'created', to_json(d.text) || ' is stored')
	from test.document d order by n;
select results_eq('select payload::text from outbox.job where kind = ''bytes'' order by id',
	'select text from test.document order by n', 'byte for byte in the table');
create table test.sent as select * from outbox.claim('w', 'default', '{bytes}', '{100}', 100);
select results_eq('select payload::text from test.sent order by job_id',
	'select text from test.document order by n', 'byte for byte in the claim');
select lives_ok('select * from outbox.jobs', 'listing them');
select is((test.settle(job_id, 'retry')).outcome, 'failed', 'settling one') from test.sent limit 1;
select is((test.settle(job_id, 'ok', response => payload::text, is_json => true)).outcome, 'succeeded',
	'and with such a response') from test.sent where payload::text like '%k\\u0000%';
select is((select response::text from outbox.attempt where kind = 'bytes' and outcome = 'succeeded'),
	'{"k\u0000":1}', 'a response is kept as it came');
select is(outbox.cancel(job_id), 'cancelled', 'cancelling one') from test.sent limit 1;

-- with a schema on the kind the bad ones are refused, by JSON pointer

select test.announce('bytes', schema => 'true') as x \gset
select is((select e.status || coalesce(' ' || (e.issues -> 0 ->> 'path'), '') from outbox.enqueue('bytes', d.text) e),
	c.answer, to_json(d.text) || ' with a schema')
from test.document d join (values (1, 'invalid_payload /a'), (2, 'invalid_payload /k\u0000'),
	(3, 'invalid_payload /a/0/b'), (4, 'invalid_payload /a'), (5, 'invalid_payload /a'),
	(6, 'created'), (7, 'created')) c (n, answer) using (n) order by n;

-- ---- SEC-02: the tables refuse such a kind as well

select throws_ok(format($$insert into outbox.job (id, created_at, run_at, priority, kind, payload)
		values (1, now(), now(), 1, %L, '{}')$$, k), '23514', null, 'job refuses kind ' || to_json(left(k, 20)))
from unnest(array['../../bin/sh', '', 'a/b', '.hidden', e'x\n', repeat('a', 101)]) k;
select throws_ok(format($$insert into outbox.kind (name) values (%L)$$, k), '23514', null,
	'kind refuses ' || to_json(k)) from unnest(array['../x', '', e'x\n']) k;

select * from finish();
rollback;
