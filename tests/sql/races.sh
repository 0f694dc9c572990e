#!/bin/sh
# Two and more sessions at the same rows: producers with one dedupe key, settle against
# recover, cancel and fence, claims that overlap, commits out of the order of ids.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/../e2e/lib.sh"

# ---- sessions: psql processes that take one statement after the other

# Starts the session, which is named a, b, c, d or e.
open_session() { # NAME
	mkfifo "$work/$1.in"
	PGAPPNAME=session_$1 stdbuf -oL psql -qXAt -v VERBOSITY=sqlstate \
		<"$work/$1.in" >"$work/$1.out" 2>&1 &
	echo $! >"$work/$1.pid"
	# the writing end, which keeps the session open, is one of the descriptors 4 to 8
	case $1 in
	a) exec 4>"$work/$1.in" ;;
	b) exec 5>"$work/$1.in" ;;
	c) exec 6>"$work/$1.in" ;;
	d) exec 7>"$work/$1.in" ;;
	e) exec 8>"$work/$1.in" ;;
	esac
	: >"$work/$1.said"
}

# Sends SQL and does not wait for the answer.
tell() { # NAME SQL
	echo x >>"$work/$1.said"
	case $1 in
	a) fd=4 ;;
	b) fd=5 ;;
	c) fd=6 ;;
	d) fd=7 ;;
	e) fd=8 ;;
	esac
	printf '\\echo told\n%s;\n\\echo done\n' "$2" >&"$fd"
}

has_answered() { # NAME: whether it has answered everything that it was told
	[ "$(grep -c '^done$' "$work/$1.out")" = "$(wc -l <"$work/$1.said")" ]
}

# Prints what the session answered to the last SQL, on one line.
answer() { # NAME
	wait_until 20 has_answered "$1" || return 1
	awk '/^told$/ { lines = ""; next } !/^done$/ { lines = lines sep $0; sep = " " }
		/^done$/ { last = lines; sep = "" } END { print last }' "$work/$1.out"
}

ask() { # NAME SQL: prints the answer
	tell "$1" "$2"
	answer "$1"
}

is_blocked() { # NAME
	[ "$(sql "select count(*) from pg_stat_activity
		where datname = current_database() and application_name = 'session_$1'
		and wait_event_type = 'Lock'")" = 1 ]
}

assert_blocked() { # NAME
	wait_until 20 is_blocked "$1" || fail "session $1 does not wait"
}

assert_answer() { # MESSAGE EXPECTED NAME
	assertEquals "$1" "$2" "$(answer "$3")"
}

# ---- what the sessions say

enqueue_key() { # [MODE [KEY]]
	echo "select status from outbox.enqueue('k', '{}', '${2:-key}', '${1:-forever}')"
}

# Claims everything due of kind k for worker w1.
claim_all() {
	echo "select count(*) from outbox.claim('w1', 'default', '{k}', '{100}', 100)"
}

# Settles what is in flight, as its runner says it; one row for each that is accepted.
settle() { # OUTCOME
	echo "select outcome, code from test_settle('$1')"
}

create_test_settle() {
	sql "create function test_settle(said text) returns table (outcome outbox.outcome, code text)
		language plpgsql as \$\$
		declare
			f record;
			answer outbox.settled;
		begin
			for f in
				select c.id, u.n::integer, u.job_id, u.attempt from outbox.claim c
				cross join unnest(c.ids, c.attempts) with ordinality u (job_id, attempt, n)
			loop
				select s.* into answer from outbox.settle(array[f.id], array[f.n],
					array[f.job_id], array[f.attempt], array[said], null, null, null, null, null,
					null, null, null, null, null, null, null, null, array[f.id]) s;
				if not found then
					return query values ('succeeded'::outbox.outcome, null::text);
				elsif answer.outcome is not null then
					return query values (answer.outcome, answer.code);
				end if;
			end loop;
		end \$\$"
}

# One job of kind k in flight at worker w1; sessions a and b.
begin_with_job_in_flight() {
	create_test_settle
	enqueue k '{}' >"$work/id"
	sql "$(claim_all)" >/dev/null
	open_session a
	open_session b
}

# ---- ENQ-06: several producers, one key

# Session b enqueues while a, which was first, has not ended its transaction.
race_of_two() { # HOW A ENDS, WHAT B IS TOLD THEN
	open_session a
	open_session b
	for mode in forever until_done; do
		assertEquals "$mode: the first" 'created' "$(ask a "begin; $(enqueue_key $mode $mode)")"
		tell b "$(enqueue_key $mode $mode)"
		assert_blocked b
		tell a "$1"
		assert_answer "$mode: the second, after it has waited" "$2" b
		assert_sql "$mode: jobs" 1 "select count(*) from outbox.job where dedupe_key = '$mode'"
	done
}

test_winner_commits() {
	race_of_two commit exists
}

test_winner_rolls_back() {
	race_of_two rollback created
}

# Of the sessions that have not rolled back, prints the one that holds the key.
find_holder() { # NAME ...
	for name in "$@"; do
		if has_answered "$name" && [ "$(answer "$name")" = created ]; then
			echo "$name"
			return
		fi
	done
	return 1
}

test_four_of_five_roll_back() {
	sessions='a b c d e'
	for name in $sessions; do
		open_session "$name"
		tell "$name" "begin; $(enqueue_key)"
		[ "$name" = a ] && answer a >/dev/null
	done
	for name in b c d e; do
		assert_blocked "$name"
	done
	for round in 1 2 3 4; do
		# shellcheck disable=SC2086 # a list of names
		wait_until 20 find_holder $sessions >/dev/null
		# shellcheck disable=SC2086
		holder=$(find_holder $sessions)
		assertNotNull "round $round: one holds the key" "$holder"
		tell "$holder" 'rollback'
		sessions=$(echo " $sessions " | sed "s/ $holder / /; s/^ //; s/ $//")
	done
	assert_answer 'the last one' 'created' "$sessions"
	assertEquals 'its commit' '' "$(ask "$sessions" 'commit')"
	assert_sql 'one job, one key, one owed' '1|1|1' 'select (select count(*) from outbox.job),
		(select count(*) from outbox.dedupe), (select count(*) from outbox.ready)'
}

count_waiting() { # COUNT: whether so many sessions wait for the gate
	[ "$(sql "select count(*) from pg_locks where locktype = 'advisory' and not granted
		and database = (select oid from pg_database where datname = current_database())")" = "$1" ]
}

test_fifty_commit() {
	open_session a
	assertEquals 'the gate is closed' '' "$(ask a 'select pg_advisory_lock(1)')"
	for n in $(seq 50); do
		psql -qXAt -c 'select pg_advisory_lock_shared(1)' -c "select status, id
			from outbox.enqueue('k', '{}', 'key', '$([ $((n % 2)) = 0 ] && echo forever || echo until_done)')" \
			>"$work/fifty.$n" 2>&1 &
		echo $! >"$work/fifty.$n.pid"
	done
	assert_soon 60 count_waiting 50
	tell a 'select pg_advisory_unlock(1)'
	for n in $(seq 50); do
		read -r pid <"$work/fifty.$n.pid"
		wait "$pid"
	done
	assertEquals 'answers' '1 created 49 exists' "$(cat "$work"/fifty.*[0-9] | grep '|' | cut -d'|' -f1 |
		sort | uniq -c | xargs)"
	assertEquals 'ids' 1 "$(cat "$work"/fifty.*[0-9] | grep '|' | cut -d'|' -f2 | sort -u | wc -l)"
	assert_sql 'jobs' 1 'select count(*) from outbox.job'
}

test_repeatable_read_fails_cleanly() {
	open_session a
	open_session b
	for mode in forever until_done; do
		snapshot=$(ask b 'begin isolation level repeatable read; select 1')
		assertEquals "$mode: b has its snapshot" 1 "$snapshot"
		assertEquals "$mode: a commits" 'created' "$(ask a "$(enqueue_key $mode $mode)")"
		assertEquals "$mode: b cannot see that key" 'ERROR:  40001' "$(ask b "$(enqueue_key $mode $mode)")"
		assertEquals "$mode: b tries again" 'exists' "$(ask b "rollback; $(enqueue_key $mode $mode)")"

		ask b 'begin isolation level repeatable read; select 1' >/dev/null
		ask a "begin; $(enqueue_key $mode wait.$mode)" >/dev/null
		tell b "$(enqueue_key $mode wait.$mode)"
		assert_blocked b
		tell a 'commit'
		assert_answer "$mode: b waited in vain" 'ERROR:  40001' b

		ask b 'rollback; begin isolation level repeatable read; select 1' >/dev/null
		ask a "begin; $(enqueue_key $mode again.$mode)" >/dev/null
		tell b "$(enqueue_key $mode again.$mode)"
		assert_blocked b
		tell a 'rollback'
		assert_answer "$mode: b is the first after a rollback" 'created' b
		assertEquals "$mode: b commits" '' "$(ask b 'commit')"
	done
}

# The key of an ended job is taken over by two at once.
test_until_done_race() {
	begin_with_job_in_flight
	for end in commit rollback; do
		sql 'delete from outbox.dedupe; delete from outbox.ready'
		sql "$(enqueue_key)" >/dev/null
		sql "$(claim_all)" >/dev/null
		assertEquals "$end: settled" 'succeeded|' "$(sql "$(settle ok)" | tail -n 1)"
		assertEquals "$end: a takes the key" 'created' "$(ask a "begin; $(enqueue_key until_done)")"
		tell b "$(enqueue_key until_done)"
		assert_blocked b
		tell a "$end"
		assert_answer "$end: b" "$([ $end = commit ] && echo exists || echo created)" b
		assert_sql "$end: owed" 1 'select count(*) from outbox.ready'
		assert_sql "$end: the key is that of the owed job" 1 \
			'select count(*) from outbox.ready join outbox.dedupe using (job_id)'
	done
}

# A job whose end is not committed blocks its key, and nobody waits for that.
test_until_done_while_settling() {
	open_session a
	create_test_settle
	sql "$(enqueue_key)" >/dev/null
	sql "$(claim_all)" >/dev/null
	assertEquals 'a settles' 'succeeded|' "$(ask a "begin; $(settle ok)")"
	assert_sql 'running' 'exists' "$(enqueue_key until_done)"
	ask a 'commit' >/dev/null
	assert_sql 'ended' 'created' "$(enqueue_key until_done)"
}

# The order of the elements does not matter: no deadlock.
test_many_keys_in_other_order() {
	open_session a
	open_session b
	many="select string_agg(status, ' ' order by ordinality) from outbox.enqueue_many('{k}', '{1,2,3}', "
	assertEquals 'a' 'created created created' "$(ask a "begin; $many '{x,y,z}')")"
	tell b "$many '{z,y,new}')"
	assert_blocked b
	tell a 'commit'
	assert_answer 'b' 'exists exists created' b
}

# ---- claims

test_claims_do_not_wait() {
	open_session a
	open_session b
	enqueue_numbers k 10
	assertEquals 'a claims five' 5 "$(ask a "begin; select count(*) from outbox.claim('w1', 'default', '{k}', '{5}', 5)")"
	assertEquals 'b gets the others' 5 "$(ask b "begin; select count(*) from outbox.claim('w2', 'default', '{k}', '{10}', 10)")"
	assertEquals 'a gives its own back' '' "$(ask a 'rollback')"
	assertEquals 'b gets them too' 5 "$(ask b "select count(*) from outbox.claim('w2', 'default', '{k}', '{10}', 10)")"
	ask b 'commit' >/dev/null
	assert_sql 'each job is in one claim' '10|10' 'select count(*), count(distinct i) from outbox.claim, unnest(ids) i'
}

# CLM-06: a job with the lower id, due before the other one, commits after that has run.
test_lower_id_commits_later() {
	open_session a
	create_test_settle
	first=$(ask a "begin; select id from outbox.enqueue('k', '{}')")
	second=$(enqueue k '{}')
	assertTrue 'the first has the lower id' "[ $first -lt $second ]"
	assert_sql 'the second is claimed' "$second" "select job_id from outbox.claim('w1', 'default', '{k}', '{10}', 10)"
	sql "$(settle ok)" >/dev/null
	last=$(sql "select extract(epoch from run_at) from outbox.job where id = $second")
	ask a 'commit' >/dev/null
	# a claimer that goes on where it was may pass it over, until it scans from the head
	sql "select job_id from outbox.claim('w1', 'default', '{k}', '{10}', 10,
		after => array_fill(to_timestamp($last), array[4]))" >/dev/null
	sql "select job_id from outbox.claim('w1', 'default', '{k}', '{10}', 10)" >/dev/null
	assert_sql 'the first is claimed' "$first" 'select ids[1] from outbox.claim order by id desc limit 1'
	assert_sql 'it runs' 'succeeded|' "$(settle ok)"
	assert_sql 'both have run' 2 "select count(*) from outbox.jobs where state = 'succeeded'"
}

# ---- the end of an attempt

test_settle_before_recover() {
	begin_with_job_in_flight
	assertEquals 'a settles' 'succeeded|' "$(ask a "begin; $(settle ok)")"
	assertEquals 'b passes over claims that are being settled' 0 "$(ask b "select count(*) from outbox.recover('w1')")"
	ask a 'commit' >/dev/null
	assertEquals 'b finds nothing lost' 0 "$(ask b "select count(*) from outbox.recover('w1')")"
	assert_sql 'ledger' 'succeeded|1' 'select outcome, attempt from outbox.attempt'
	assert_sql 'nothing is left' '0|0' 'select (select count(*) from outbox.ready), (select count(*) from outbox.claim)'
}

test_recover_before_settle() {
	begin_with_job_in_flight
	assertEquals 'a recovers' 'lost' "$(ask a "begin; select outcome from outbox.recover('w1')")"
	tell b "$(settle ok)"
	assert_blocked b
	tell a 'commit'
	assert_answer 'b comes too late' '' b
	assert_sql 'ledger' 'lost|1' 'select outcome, attempt from outbox.attempt'
	assert_sql 'owed once' 1 'select count(*) from outbox.ready'
}

test_recover_rolls_back() {
	begin_with_job_in_flight
	assertEquals 'a recovers' 'lost' "$(ask a "begin; select outcome from outbox.recover('w1')")"
	tell b "$(settle ok)"
	assert_blocked b
	tell a 'rollback'
	assert_answer 'b settles' 'succeeded|' b
	assert_sql 'nothing is owed' 0 'select count(*) from outbox.ready'
}

test_cancel_before_retry() {
	begin_with_job_in_flight
	assertEquals 'a cancels' 'requested' "$(ask a "begin; select outbox.cancel($(cat "$work/id"), 'ann')")"
	tell b "$(settle retry)"
	assert_blocked b
	tell a 'commit'
	assert_answer 'b sees the cancel' 'cancelled|' b
	assert_sql 'nothing is owed, nothing requested' '0|0' \
		'select (select count(*) from outbox.ready), (select count(*) from outbox.cancel)'
}

test_retry_before_cancel() {
	begin_with_job_in_flight
	assertEquals 'a settles' 'failed|' "$(ask a "begin; $(settle retry)")"
	tell b "select outbox.cancel($(cat "$work/id"), 'ann')"
	assert_blocked b
	tell a 'commit'
	assert_answer 'b takes the job off the queue' 'cancelled' b
	assert_sql 'ledger' 'failed cancelled' "select string_agg(outcome::text, ' ' order by attempt) from outbox.attempt"
	assert_sql 'nothing is owed, nothing requested' '0|0' \
		'select (select count(*) from outbox.ready), (select count(*) from outbox.cancel)'
}

# A success does not wait for a cancel nor the other way round; it stands.
test_success_beside_cancel() {
	begin_with_job_in_flight
	assertEquals 'a settles' 'succeeded|' "$(ask a "begin; $(settle ok)")"
	assertEquals 'b asks' 'requested' "$(ask b "select outbox.cancel($(cat "$work/id"), 'ann')")"
	ask a 'commit' >/dev/null
	assert_sql 'state' 'succeeded' 'select state from outbox.jobs'
	assert_sql 'and b again' 'ended' "select outbox.cancel($(cat "$work/id"), 'ann')"
}

test_cancel_while_claiming() {
	open_session a
	open_session b
	enqueue k '{}' >"$work/id"
	assertEquals 'a claims' 1 "$(ask a "begin; $(claim_all)")"
	tell b "select outbox.cancel($(cat "$work/id"), 'ann')"
	assert_blocked b
	tell a 'commit'
	assert_answer 'b finds it in flight' 'requested' b
	assert_sql 'the worker is to stop it' "w1|$(cat "$work/id")|1" "select worker, job_id, attempt from outbox.cancels('{w1}')"
}

test_claim_while_cancelling() {
	open_session a
	open_session b
	enqueue k '{}' >"$work/id"
	assertEquals 'a cancels' 'cancelled' "$(ask a "begin; select outbox.cancel($(cat "$work/id"), 'ann')")"
	assertEquals 'b passes it over' 0 "$(ask b "$(claim_all)")"
	ask a 'rollback' >/dev/null
	assertEquals 'b claims it' 1 "$(ask b "$(claim_all)")"
}

# While a greeting hands back what the worker does not have, another claimer claims for it:
# that claim was not looked at and must not be deleted as if it had been.
test_hello_leaves_a_new_claim_alone() {
	begin_with_job_in_flight
	open_session c
	ask c "begin; select 1 from outbox.job for update" >/dev/null
	tell b "select outbox.worker_hello('w1', 'host', 1, '1', 'default', 1000, '[]', '{}', '{}')"
	assert_blocked b
	new=$(enqueue k '{}')
	assertEquals 'a new claim' 1 "$(ask a "$(claim_all)")"
	ask c 'commit' >/dev/null
	assert_answer 'the old one is handed back' "$(cat "$work/id")" b
	assert_sql 'the new one stands' "$new" 'select unnest(ids) from outbox.claim'
	assert_sql 'and can be settled' 'succeeded|' "$(settle ok)"
}

# ---- fence: a handler's own transaction

test_fence_holds_off_settle() {
	begin_with_job_in_flight
	sql 'create table written (n integer)'
	assertEquals 'the handler writes' '' \
		"$(ask a "begin; select outbox.fence($(cat "$work/id"), 1); insert into written values (1)")"
	tell b "$(settle ok)"
	assert_blocked b
	tell a 'commit'
	assert_answer 'then its result is settled' 'succeeded|' b
	assert_sql 'both stand' '1|1' 'select (select count(*) from written), (select count(*) from outbox.attempt)'
}

test_fence_outlasts_settle() {
	begin_with_job_in_flight
	assertEquals 'the handler is slow' '' "$(ask a "begin; select outbox.fence($(cat "$work/id"), 1)")"
	for what in "$(settle ok)" "$(settle retry)" "select outcome from outbox.recover('w1')"; do
		assertEquals "gives up: $what" 'ERROR:  55P03' "$(ask b "$what")"
	done
	assert_sql 'nothing is recorded' 0 'select count(*) from outbox.attempt'
	ask a 'commit' >/dev/null
	assertEquals 'the next try' 'succeeded|' "$(ask b "$(settle ok)")"
}

test_settle_before_fence() {
	begin_with_job_in_flight
	sql 'create table written (n integer)'
	assertEquals 'b settles' 'succeeded|' "$(ask b "begin; $(settle ok)")"
	tell a "begin; insert into written values (1); select outbox.fence($(cat "$work/id"), 1)"
	assert_blocked a
	tell b 'commit'
	assert_answer 'the handler learns that it is over' 'ERROR:  OB001' a
	ask a 'commit' >/dev/null
	assert_sql 'its writes are gone' 0 'select count(*) from written'
}

test_recover_before_fence() {
	begin_with_job_in_flight
	assertEquals 'b recovers' 'lost' "$(ask b "begin; select outcome from outbox.recover('w1')")"
	tell a "select outbox.fence($(cat "$work/id"), 1)"
	assert_blocked a
	tell b 'commit'
	assert_answer 'the zombie is refused' 'ERROR:  OB001' a
}

# ---- nudges

# Lets session a, which listens, receive what has come.
heard() {
	ask a 'select 1' | grep -o 'payload "[^"]*"' | sed 's/payload //' | xargs
}

# ENQ-05: and one a transaction and kind then, however many jobs it has.
test_notify_only_while_the_claimer_sleeps() {
	open_session a
	open_session b
	assertEquals 'nobody works' '' "$(ask a 'listen outbox')"
	enqueue_numbers k 1000
	assertEquals 'awake: no notification' '' "$(heard)"
	assertEquals 'falls asleep' 'asleep' "$(ask a "select outbox.sleep_begin('default')")"
	enqueue_numbers k 1000
	assertEquals 'asleep: one, with nothing but the kind' 'k' "$(heard)"
	sql "begin; $(enqueue_key forever one); $(enqueue_key forever two);
		select outbox.enqueue('other', '{}'); commit" >/dev/null
	assertEquals 'one a kind and transaction' 'k other' "$(heard)"
	sql "begin; $(enqueue_key forever three); rollback" >/dev/null
	assertEquals 'none after a rollback' '' "$(heard)"
	sql "update outbox.lane set notify = false"
	enqueue k '{}' >/dev/null
	assertEquals 'none in a lane that only polls' '' "$(heard)"
	sql "update outbox.lane set notify = true"
	assertEquals 'a colleague' 'colleague' "$(ask b "select outbox.sleep_begin('default')")"
	assertEquals 'wakes up' t "$(ask a "select outbox.sleep_end('default')")"
	enqueue k '{}' >/dev/null
	assertEquals 'awake again' '' "$(heard)"
	sql "update outbox.lane set pooled = true"
	enqueue k '{}' >/dev/null
	assertEquals 'always behind a pooler' 'k' "$(heard)"
}

test_no_sleep_while_a_producer_is_uncommitted() {
	open_session a
	open_session b
	ask a 'listen outbox' >/dev/null
	assertEquals 'told that the claimer is awake' 'created' "$(ask b "begin; $(enqueue_key)")"
	assertEquals 'it cannot fall asleep' 'busy' "$(ask a "select outbox.sleep_begin('default')")"
	ask b 'commit' >/dev/null
	assertEquals 'now it can' 'asleep' "$(ask a "select outbox.sleep_begin('default')")"
	assertEquals 'and its last look finds the job' 1 "$(ask a "$(claim_all)")"
}

# ENQ-04: no text of a user gets into a notification, however long.
test_notify_with_the_longest_of_everything() {
	open_session a
	ask a 'listen outbox; listen outbox_cancel' >/dev/null
	ask a "select outbox.sleep_begin('default')" >/dev/null
	kind=$(printf 'k%.0s' $(seq 100))
	for character in x 😀; do
		key="repeat('$character', 512 / octet_length('$character'))"
		id=$(sql "select id from outbox.enqueue('$kind', '{}', $key, 'forever', $key, $key, $key, $key)")
		assertEquals "$character: only the kind" "$kind" "$(heard)"
		sql "select outbox.claim('w1', 'default', '{$kind}', '{1}', 1)" >/dev/null
		assert_sql "$character: failed with a long error" 'failed' \
			"select outcome from outbox.settle_claimed('retry', 'busy', repeat('$character', 100000), array(
				select row(c.id, c.worker, c.found, c.ids[1], c.attempts[1])::outbox.claimed from outbox.claim c))"
		assertEquals "$character: only the kind" "$kind" "$(heard)"
		sql "update outbox.ready set due_at = now(); update outbox.attempt set next_at = now()" >/dev/null
		sql "select outbox.claim('w1', 'default', '{$kind}', '{1}', 1)" >/dev/null
		assert_sql "$character: cancelled with a long reason" requested \
			"select outbox.cancel($id, 'ann', repeat('$character', 100000))"
		assertEquals "$character: only the id" "$id" "$(heard)"
		sql 'delete from outbox.claim' >/dev/null
	done
}

. shunit2
