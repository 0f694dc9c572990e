-- fence: raises unless the attempt is in flight, and leaves nothing behind. (races.sh has the
-- sessions that wait for each other.)
begin;
\ir helpers.psql
select * from no_plan();

create function test.fence(job_id bigint, attempt integer) returns text language plpgsql as $$
begin
	perform outbox.fence(job_id, attempt);
	return 'in flight';
exception when sqlstate 'OB001' then
	return sqlerrm;
end $$;

select test.enqueue('f') as id \gset
select is(test.fence(:id, 1), format('attempt 1 of job %s is not in flight', :id), 'before it is claimed');
select test.claim('f') as x \gset
select is(test.fence(:id, 1), 'in flight', 'in flight');
select is(test.fence(:id, 1), 'in flight', 'a second time in one transaction');
select is((select count(*) from outbox.attempt), 0::bigint, 'it leaves no attempt');
select is(test.fence(:id, 2), format('attempt 2 of job %s is not in flight', :id), 'an attempt that is to come');
select is(test.fence(:id, 0), format('attempt 0 of job %s is not in flight', :id), 'an attempt that never was');
select is(test.fence(1, 1), 'attempt 1 of job 1 is not in flight', 'a job that never was');
select is((test.settle(:id, 'retry')).outcome, 'failed', 'settling after the fence in one transaction');
select is(test.fence(:id, 1), format('attempt 1 of job %s is over', :id), 'after it was settled');
select test.sleep('1 h') as x \gset
select test.claim('f') as x \gset
select is(test.fence(:id, 1), format('attempt 1 of job %s is over', :id), 'of a second attempt the first');
select is(test.fence(:id, 2), 'in flight', 'and the second');
select lives_ok($$select outbox.recover('w1')$$, 'its worker is given up');
select is(test.fence(:id, 2), format('attempt 2 of job %s is over', :id), 'and so is the attempt');
select is((select count(*) from outbox.attempt where outcome = 'released'), 0::bigint, 'no trace of all this');
select throws_ok('select outbox.fence(null, 1)', '23502', null, 'null is refused');
select throws_ok('select outbox.fence(1, 40000)', '22003', null, 'and so is what no attempt can be');

select * from finish();
rollback;
