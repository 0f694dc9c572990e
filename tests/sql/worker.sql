-- worker_hello with its reconciliation, kind_announce, worker_beat, worker_bye.
begin;
\ir helpers.psql
select * from no_plan();

create function test.hello(worker text, kinds json default '[]', claims bigint[] default '{}', received integer[] default '{}')
	returns bigint[] language sql as $$
	select array(select job_id from outbox.worker_hello(worker, 'host-1', 42, '1.2', 'bulk', 30000, kinds, claims, received) order by job_id)
$$;

-- ---- the row of a worker

select is(test.hello('w1', '[{"kind":"mail","version":12},{"kind":"sms"}]'), '{}', 'a new worker holds nothing');
select results_eq('select id, host, pid, program_version, lane, lease_ms, kinds, versions, beat, started_at, seen_at from outbox.worker',
	$$values ('w1', 'host-1', 42, '1.2', 'bulk', 30000::bigint, '{mail,sms}'::text[], '{12,0}'::integer[], 0::bigint, now(), now())$$, 'is registered');
select test.sleep('1 min') as x \gset
select is(test.hello('w1', '[{"kind":"mail","version":13}]'), '{}', 'a second greeting');
select results_eq('select kinds, versions, beat, started_at, seen_at from outbox.worker',
	$$values ('{mail}'::text[], '{13}'::integer[], 1::bigint, now(), now() + interval '1 min')$$, 'renews the row, and is a beat');
select is(test.hello('w2', null), '{}', 'a worker without kinds');
select is((select kinds from outbox.worker where id = 'w2'), '{}', 'has none');

-- ---- jobs that it was sent and did not receive are handed back

create table test.six as select array(select id from outbox.enqueue_many('{six}', array_fill('{}'::text, array[6]))) as ids;
select ids[1] as j1, ids[2] as j2, ids[3] as j3, ids[4] as j4, ids[5] as j5, ids[6] as j6 from test.six \gset
select test.claim('six', 'w1', 3), test.claim('six', 'w1', 2), test.claim('six', 'w2', 1) \g /dev/null
select (test.place(:j1)).claim_id as first, (test.place(:j4)).claim_id as second \gset
savepoint claimed;

select is(test.hello('w1', claims => array[:first, :second], received => '{3,2}'), '{}', 'all received: none come back');
select is((select count(*) from outbox.claim), 3::bigint, 'all claims stand');
select is(test.hello('w1', claims => array[:first, :second], received => '{1,2}'), array[:j2, :j3]::bigint[], 'two were not received');
select is(test.state(:j1) || ' ' || test.state(:j2) || ' ' || test.state(:j4), 'running retrying running', 'they are owed, the others run');
select results_eq(format('select outcome::text, code, next_at, started_at, worker from outbox.attempt where job_id = %s', :j2),
	$$values ('released', 'claim_lost', outbox.now(), null::timestamptz, 'w1')$$, 'charged to nothing, due now');
select is((test.settle(:j1, 'ok')).outcome, 'succeeded', 'what it has can be settled');
select is((select count(*) from outbox.claim where id = :first), 0::bigint, 'that ends the claim');
select is(test.hello('w1', claims => array[:first, :second], received => '{3,2}'), '{}', 'greeting with a claim that is over');
rollback to claimed;
select is(test.hello('w1', claims => array[:second], received => '{2}'), array[:j1, :j2, :j3]::bigint[], 'a claim that it never heard of');
select is((select array_agg(id) from outbox.claim where worker = 'w1'), array[:second]::bigint[], 'is deleted');
rollback to claimed;
select is(test.hello('w1', claims => array[:first, :second], received => '{0,1}'), array[:j1, :j2, :j3, :j5]::bigint[], 'none of the first');
select is((select array_agg(id) from outbox.claim where worker = 'w1'), array[:second]::bigint[], 'is deleted as well');
rollback to claimed;
select is(test.hello('w1'), array[:j1, :j2, :j3, :j4, :j5]::bigint[], 'nothing at all');
select is((select count(*) from outbox.claim where worker = 'w1'), 0::bigint, 'no claim is left');
rollback to claimed;
select (test.settle(:j3, 'ok', done => false)).outcome as x \gset
select is(test.hello('w1', claims => array[:first, :second], received => '{1,2}'), array[:j2]::bigint[], 'what was settled before stays settled');
select is((select outcome::text from outbox.attempt where job_id = :j3), 'succeeded', 'as it was');
rollback to claimed;
select is(test.hello('w2', claims => array[:first, :second], received => '{3,2}'), array[:j6]::bigint[], 'claims of another worker are none of its own');
select is((select count(*) from outbox.claim where worker = 'w1'), 2::bigint, 'and are left alone');
rollback to claimed;
select is(test.hello('w1', claims => array[:first, :second, 999], received => '{99,2,5}'), '{}', 'more than there were, and a claim that never was');
select is(test.claim('six'), '{}', 'nothing is claimable twice');
rollback to claimed;
select is(outbox.cancel(:j1, 'bob'), 'requested', 'a job in flight is cancelled');
select is(test.hello('w1'), array[:j1, :j2, :j3, :j4, :j5]::bigint[], 'and was not received');
select is(test.state(:j1), 'cancelled', 'it is not owed again');
rollback to claimed;

-- ---- kind_announce: the highest version is kept

create function test.kind(name text) returns text language sql as $$
	select concat_ws(' ', k.version, k.timeout_ms, k.max_attempts, k.lane, k.updated_by) from outbox.kind k where k.name = kind.name
$$;
create function test.tell(kind text, version integer, timeout_ms integer, worker text) returns text language sql as $$
	select outbox.kind_announce(json_build_object('kind', kind, 'version', version, 'timeout_ms', timeout_ms), worker);
	select test.kind(kind);
$$;
select is(test.tell('v', 2, 100, 'w1'), '2 100 8 default w1', 'a new kind');
select is(test.tell('v', 1, 200, 'w2'), '2 100 8 default w1', 'an older version changes nothing');
select is(test.tell('v', 2, 100, 'w2'), '2 100 8 default w1', 'the same again neither, not even by whom');
select is(test.tell('v', 2, 300, 'w2'), '2 300 8 default w2', 'of the same version the last word counts');
select is(test.tell('v', 3, 400, 'w3'), '3 400 8 default w3', 'a newer version');
select is(test.tell('v', null, 500, 'w3'), '3 400 8 default w3', 'no version is 0');

-- defaults, and everything of a manifest

select lives_ok($$select outbox.kind_announce('{"kind":"plain"}', 'w1')$$, 'a kind without a manifest');
select results_eq($$select to_jsonb(k) - 'updated_at' from outbox.kind k where name = 'plain'$$, $$values ('{"name": "plain", "lane": "default",
	"version": 0, "timeout_ms": 30000, "max_attempts": 8, "backoff_ms": 1000, "backoff_max_ms": 300000, "max_crashes": 3, "warn_at_streak": null,
	"codes": {}, "commits": {}, "payload_schema": null, "max_payload_bytes": 262144, "max_payload_depth": 500, "retention": {}, "updated_by": "w1"}'::jsonb)$$,
	'has the defaults');
select is(to_jsonb(k) - '{name,updated_at,updated_by}'::text[], to_jsonb(outbox.default_policy('plain')) - '{name,updated_at,updated_by,payload_schema,max_payload_bytes,max_payload_depth,retention,warn_at_streak}'::text[]
		|| '{"payload_schema": null, "max_payload_bytes": 262144, "max_payload_depth": 500, "retention": {}, "warn_at_streak": null}',
	'which are those of a kind that nobody announced') from outbox.kind k where name = 'plain';
select lives_ok($$select outbox.kind_announce('{"kind":"full","lane":"bulk","version":7,"timeout_ms":1,"manifest":{
	"retry":{"max_attempts":2,"backoff_ms":3,"backoff_max_ms":4,"max_crashes":5,"warn_at_streak":6,"codes":{"x":{"streak":1}}},
	"commit":{"s":"select 1"},"payload":{"schema":{"type":"object"},"max_bytes":8,"max_depth":9},"retention":{"dead":null,"succeeded":10}}}', 'w1')$$, 'a full manifest');
select results_eq($$select to_jsonb(k) - 'updated_at' from outbox.kind k where name = 'full'$$, $$values ('{"name": "full", "lane": "bulk",
	"version": 7, "timeout_ms": 1, "max_attempts": 2, "backoff_ms": 3, "backoff_max_ms": 4, "max_crashes": 5, "warn_at_streak": 6,
	"codes": {"x": {"streak": 1}}, "commits": {"s": "select 1"}, "payload_schema": {"type": "object"}, "max_payload_bytes": 8, "max_payload_depth": 9,
	"retention": {"dead": null, "succeeded": 10}, "updated_by": "w1"}'::jsonb)$$, 'is kept');
select throws_ok($$select outbox.kind_announce('{"kind":"../x"}', 'w1')$$, '23514', null, 'a kind that is none');
select is(test.hello('w1', '[{"kind":"zz"},{"kind":"aa"}]') is null, false, 'kinds of a greeting');
select is((select count(*) from outbox.kind where name in ('zz', 'aa')), 2::bigint, 'are announced');

-- ---- beats

select test.sleep('1 min') as x \gset
create table test.before as select id, beat from outbox.worker;
select set_eq($$select worker, beat from outbox.worker_beat('{w2,unknown,w1}')$$, $$select id, beat + 1 from test.before$$, 'one beat for each that is registered');
select is((select array_agg(distinct seen_at) from outbox.worker), array[outbox.now()], 'they were seen');
select is_empty($$select * from outbox.worker_beat('{}')$$, 'no workers, no beats');

-- ---- worker_bye

select lives_ok($$select outbox.worker_bye('w1')$$, 'an orderly end');
select is((select array_agg(test.state(j) order by j) from unnest(array[:j1, :j2, :j3, :j4, :j5]::bigint[]) j), array_fill('retrying'::text, array[5]), 'what it held is owed');
select is((select string_agg(distinct outcome || ' ' || code, ', ') from outbox.attempt), 'released claim_lost', 'uncharged');
select is((select array_agg(id) from outbox.worker), '{w2}', 'it is forgotten');
select is((select array_agg(distinct worker) from outbox.claim), '{w2}', 'and so are its claims');
select lives_ok($$select outbox.worker_bye('w1')$$, 'again');

-- a schema that could not be applied is refused, not ignored
select throws_like($$select * from outbox.worker_hello('w9', 'h', 1, '0', 'default', 1000,
	'[{"kind":"k9","manifest":{"payload":{"schema":{"type":"objekt"}}}}]', '{}', '{}')$$,
	'payload schema of kind "k9" cannot be used:%', 'an unknown type in a payload schema');
select lives_ok($$select * from outbox.worker_hello('w9', 'h', 1, '0', 'default', 1000,
	'[{"kind":"k9","manifest":{"payload":{"schema":{"type":"object"}}}}]', '{}', '{}')$$,
	'a good one');

select * from finish();
rollback;
