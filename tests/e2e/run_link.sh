#!/bin/sh
# outbox-run between a claimer and a settler that the tests play themselves, frame by frame.
# shellcheck disable=SC1091,SC2034,SC2154,SC2016 # run_lib.sh; $ in handlers

. "$(dirname "$0")/run_lib.sh"
logs='claimer settler run.log'

make_handlers() {
	handler quick <<-'END'
		#!/bin/sh
		echo quick
	END
	handler waits <<-'END'
		#!/bin/sh
		id=$OUTBOX_JOB_ID
		echo $$ >"${0%/*}/../$id.new"
		mv "${0%/*}/../$id.new" "${0%/*}/../$id.started"
		while [ ! -e "${0%/*}/../$id.word" ]; do sleep 0.05; done
		echo finished
	END
}

# ---- the two ends: what the runner sent is in $work/claimer and $work/settler

open_end() { # NAME DESCRIPTOR LINK
	rm -f "$work/$1.in" "$work/$1.out"
	mkfifo "$work/$1.in" "$work/$1.out"
	outbox-frame decode <"$work/$1.out" >>"$work/$1" &
	"$bin/tests/e2e/router" "ipc://$work/run/$3" <"$work/$1.in" >"$work/$1.out" &
	echo $! >"$work/$1.pid"
	eval "exec $2>'$work/$1.in'"
}

open_ends() {
	mkdir -m 700 "$work/run"
	open_end claimer 7 jobs
	open_end settler 8 results
}

to_claimer_side() { # LINE ...: from the claimer to the runner
	printf '%s\n' "$@" | outbox-frame encode >&7
}

to_settler_side() { # LINE ...
	printf '%s\n' "$@" | outbox-frame encode >&8
}

said() { # END REGEXP [TIMES]: whether the runner said so, exactly so often if TIMES is given
	count=$(grep -cE "$2" "$work/$1")
	if [ -n "${3:-}" ]; then [ "$count" -eq "$3" ]; else [ "$count" -gt 0 ]; fi
}

greet() { # EPOCH [LEASE_MS]
	to_claimer_side '{"type":"hello","role":"claim","id":"c","epoch":'"$1"',"lease_ms":'"${2:-60000}"',"db_now_us":1700000000000000}'
	assert_soon 5 said claimer '"type":"hello".*"epoch":'"$1,"
}

accept() {
	to_claimer_side '{"type":"beat","id":"w","count":0,"db_now_us":1700000000000000}'
}

greet_settler() { # EPOCH
	to_settler_side '{"type":"hello","role":"settle","id":"s","epoch":'"$1"'}'
}

ack() { # ID ...
	for id; do
		to_settler_side '{"type":"ack","items":[{"job_id":'"$id"',"attempt":1,"accepted":true}]}'
	done
}

seq=0
job() { # ID KIND [EPOCH]
	seq=$((seq + 1))
	to_claimer_side '{"type":"job","epoch":'"${3:-5}"',"seq":'$seq',"claim_id":7,"claim_index":'"$1"',"claim_size":9,"found":"nudge","job_id":'"$1"',"attempt":1,"kind":"'"$2"'","payload":1,"max_attempts":8,"idempotency_key":"k","trigger":"automatic"}'
}

# A runner that is registered and may take as many jobs as it has slots.
start_registered() { # LEASE_MS [OPTION ...]
	lease=$1
	shift
	seq=0
	make_handlers
	open_ends
	start run outbox-run --handlers "$handlers" "$@"
	assert_soon 5 said claimer connected
	assert_soon 5 said settler connected
	greet 5 "$lease"
	greet_settler 1
	accept
	assert_soon 5 said claimer '"type":"credit","epoch":5,"last_seq":0,"total":[1-9]'
}

result() { # ID REGEXP: whether such a result has come
	said settler '"type":"result".*"job_id":'"$1"',.*'"$2"
}

has_started() { # ID
	[ -s "$work/$1.started" ]
}

let_finish() { # ID
	touch "$work/$1.word"
}

# ---- greeting, credit, results

test_a_job_from_greeting_to_acknowledgement() {
	start_registered 60000 -j 2
	assertTrue 'it introduces itself' "said claimer '\"role\":\"run\",\"id\":\"[^\"]+\",\"epoch\":5,.*\"lane\":\"default\",\"slots\":2,\"kinds\":\[\{\"kind\":\"quick\",\"version\":0,\"lane\":\"default\",\"timeout_ms\":30000\},\{\"kind\":\"waits\"'"
	assertTrue 'credit' "said claimer '\"total\":2,\"kinds\":\[\{\"kind\":\"quick\",\"count\":2,\"held\":0,\"apart\":false\},\{\"kind\":\"waits\",\"count\":2,\"held\":0,\"apart\":false\}\]'"
	job 1 quick
	assert_soon 5 result 1 '"outcome":"ok".*"response_text":"quick".*"started_at_us":170000000[0-9]*,.*"found":"nudge"'
	ack 1
	job 2 waits
	job 3 waits
	assert_soon 5 has_started 3
	let_finish 2
	let_finish 3
	assert_soon 5 result 2 '"outcome":"ok"'
	assert_soon 5 said claimer '"last_seq":3,"total":[2-9],'
	assertFalse 'no result comes twice' "said settler '\"job_id\":1,' 2"
}

test_results_are_kept_until_acknowledged() {
	start_registered 60000 -j 2
	job 1 quick
	job 2 quick
	assert_soon 5 result 1 ok
	assert_soon 5 result 2 ok
	ack 1
	greet_settler 2 # a new settler, or the old one after a pause
	assert_soon 5 said settler '"job_id":2,' 2
	assertTrue 'an acknowledged one is not sent again' "said settler '\"job_id\":1,' 1"
	kill_program settler
	job 3 quick
	assert_soon 5 said claimer '"last_seq":3,'
	open_end settler 8 results
	assert_soon 5 said settler connected 2
	greet_settler 3
	assert_soon 5 said settler '"job_id":3,'
	assert_soon 5 said settler '"job_id":2,' 3
	ack 2 3
	stop run
	assertEquals 0 $?
}

test_no_credit_beyond_the_unsettled_bound() {
	start_registered 60000 -j 2 --max-unsettled 3
	job 1 quick
	job 2 quick
	assert_soon 5 result 2 ok
	assertTrue 'one more is allowed' "said claimer '\"last_seq\":2,\"total\":[2-9]' 0"
	job 3 quick
	assert_soon 5 result 3 ok
	assertTrue 'none is allowed' "said claimer '\"last_seq\":3,\"total\":[1-9]' 0"
	ack 1 2 3
	assert_soon 5 said claimer '"last_seq":3,"total":[1-3],'
}

test_nothing_is_taken_from_who_has_not_greeted() {
	make_handlers
	open_ends
	seq=0
	start run outbox-run --handlers "$handlers"
	assert_soon 5 said claimer connected
	assert_soon 5 said settler connected
	accept
	job 1 quick 0
	job 2 quick
	greet_settler 1
	to_claimer_side '{"type":"hello","role":"claim","id":"c","epoch":5,"lease_ms":0}'
	to_claimer_side '{"type":"hello","role":"claim","id":"c","epoch":5,"lease_ms":9223372036854775807}'
	to_claimer_side '{"type":"nudge","kind":"quick"}'
	greet 7
	assertTrue 'no credit' "said claimer credit 0"
	accept
	seq=0
	job 3 quick 7
	assert_soon 5 result 3 ok
	assertTrue 'a job was taken' "said settler '\"job_id\":[12],' 0"
}

test_jobs_of_another_epoch_and_copies_are_dropped() {
	start_registered 60000 -j 4
	job 1 quick
	assert_soon 5 result 1 ok
	job 2 quick 4
	seq=1
	job 3 quick # a sequence number that was there: seq 2 is the one that was void
	assert_soon 5 result 3 ok
	seq=2
	job 1 quick # held already, not acknowledged
	job 4 quick
	assert_soon 5 result 4 ok
	assertTrue 'another epoch' "said settler '\"job_id\":2,' 0"
	assertTrue 'a copy' "said settler '\"job_id\":1,' 1"
}

test_what_waits_too_long_is_handed_back() {
	start_registered 60000 -j 1
	job 1 waits
	assert_soon 5 has_started 1
	job 2 waits
	assert_soon 5 result 2 '"outcome":"release","code":"handed_back".*"after_ms":-1,.*"started_at_us":0,'
	let_finish 1
	assert_soon 5 result 1 ok
}

test_a_new_greeting_hears_of_the_claims_that_are_held() {
	start_registered 60000 -j 4
	job 1 quick
	assert_soon 5 result 1 ok
	job 2 waits
	job 3 quick
	assert_soon 5 result 3 ok
	ack 1 3
	assert_soon 5 has_started 2
	kill_program claimer
	open_end claimer 7 jobs
	assert_soon 5 said claimer connected 2
	greet 6 # its successor's
	assertTrue 'claims' "said claimer '\"epoch\":6,.*\"claims\":\[\{\"claim_id\":7,\"received\":2\}\]'"
	assertTrue 'no credit before it is accepted' "said claimer '\"type\":\"credit\",\"epoch\":6' 0"
	accept
	assert_soon 5 said claimer '"type":"credit","epoch":6,"last_seq":0,"total":[1-9],'
	let_finish 2
	assert_soon 5 result 2 ok
}

# ---- RUN-10: a host that is short of something is asked for less

descriptors() {
	ls "/proc/$(pid_of run)/fd"
}

test_a_runner_that_is_short_of_descriptors_asks_for_less() {
	start_registered 60000 -j 4
	job 1 quick
	assert_soon 5 result 1 ok
	assert_soon 5 said claimer '"last_seq":1,"total":[48],'
	before=$(descriptors | wc -l)
	# five are left: enough for some pipes of a handler, not for all
	prlimit --pid "$(pid_of run)" --nofile="$(descriptors | sort -n | awk '
		{ free += $1 - next_one; if (free > 5) { print next_one + 5 - (free - ($1 - next_one)); found = 1; exit }
			next_one = $1 + 1 }
		END { if (!found) print next_one + 5 - free }'):"
	for id in 2 3 4; do job $id quick; done
	assert_soon 5 result 2 '"outcome":"release","code":"spawn_failed".*"after_ms":5000,.*"started_at_us":0,'
	for id in 3 4; do # they may have come while it paused
		assert_soon 5 result $id '"outcome":"release","code":"(spawn_failed|handed_back)".*"started_at_us":0,'
	done
	assert_soon 5 said claimer '"last_seq":[234],"total":0,'
	assert_soon 5 said claimer '"last_seq":4,"total":1,' # to try
	job 5 quick
	assert_soon 5 result 5 '"outcome":"release","code":"spawn_failed"'
	assertEquals 'descriptors' "$before" "$(descriptors | wc -l)"
	assertFalse 'it goes on' "has_ended $(pid_of run)"
	prlimit --pid "$(pid_of run)" --nofile=1000:
	assert_soon 10 said claimer '"last_seq":5,"total":1,'
	job 6 quick
	assert_soon 5 result 6 ok
	assert_soon 5 said claimer '"last_seq":6,"total":[3-8],'
	assertContains "$(cat "$work/run.log")" 'RLIMIT_NOFILE'
}

# ---- the lease (CLM-05, SWP-01, OPS-03)

test_a_lease_that_is_not_confirmed_ends() {
	start_registered 2000 -j 2
	job 1 waits
	assert_soon 5 has_started 1
	assert_soon 5 said claimer '"type":"beat",.*"count":2,"state":"alive"'
	assert_soon 5 result 1 '"outcome":"release","code":"lease_lost"'
	assertTrue 'the handler lives' "has_ended '$(cat "$work/1.started")'"
	assert_soon 5 said claimer '"type":"credit".*"total":0,'
	job 2 quick
	assert_soon 5 result 2 '"outcome":"release","code":"claim_late".*"after_ms":5000,'
	count=$(grep -oE '"type":"beat",.*"count":[0-9]+' "$work/claimer" | tail -n 1 | grep -oE '[0-9]+$')
	to_claimer_side '{"type":"beat","id":"w","count":'"$count"',"db_now_us":1700000000000000}'
	assert_soon 5 said claimer '"type":"credit".*"last_seq":2,"total":2,'
	job 3 quick
	assert_soon 5 result 3 ok
}

confirm_beats() { # SECONDS: answers each beat as it comes
	until=$(($(date +%s) + $1))
	confirmed=0
	while [ "$(date +%s)" -lt "$until" ]; do
		count=$(grep -c '"type":"beat"' "$work/claimer")
		if [ "$count" -gt "$confirmed" ]; then
			confirmed=$count
			to_claimer_side '{"type":"beat","id":"w","count":'"$count"',"db_now_us":1700000000000000}'
		fi
		sleep 0.05
	done
}

test_a_confirmed_lease_goes_on() {
	start_registered 1500 -j 2
	job 1 waits
	assert_soon 5 has_started 1
	confirm_beats 5
	let_finish 1
	assert_soon 5 result 1 ok
}

test_a_thawed_runner_knows_that_its_lease_is_gone() {
	start_registered 2000 -j 2
	job 1 waits
	assert_soon 5 has_started 1
	signal run STOP
	let_pass 4
	let_finish 1
	signal run CONT
	assert_soon 5 result 1 '"outcome":"(release","code":"lease_lost|ok)'
	assert_soon 5 said claimer '"type":"credit".*"total":0,'
}

test_a_worker_that_is_not_known_any_more_registers_anew() {
	start_registered 60000 -j 2
	job 1 waits
	assert_soon 5 has_started 1
	to_claimer_side '{"type":"beat","id":"w","count":1,"state":"unknown"}'
	assert_soon 5 said claimer '"type":"hello","role":"run"' 2
	assert_soon 5 result 1 '"outcome":"release","code":"lease_lost"'
	greet 6
	accept
	assert_soon 5 said claimer '"type":"credit","epoch":6,"last_seq":0,"total":2,'
}

# ---- cancel (SET-08)

# Whether none of its threads has run since the last four looks: what it was told is on its way.
is_quiet() { # INSTANCE
	switches=$(cat "/proc/$(pid_of "$1")"/task/*/status | grep ctxt_switches)
	if [ "$switches" = "${switches_before:-}" ]; then
		same_looks=$((same_looks + 1))
	else
		switches_before=$switches
		same_looks=0
	fi
	[ "$same_looks" -ge 4 ]
}

# Both are in the socket when the runner reads the first of them. Mostly it does not start that
# job; when the kernel hands over the second too late, it has, and kills it.
test_cancel_of_a_job_that_is_still_in_the_socket() {
	start_registered 60000 -j 4
	signal run STOP
	job 1 quick
	to_claimer_side '{"type":"cancel","epoch":5,"job_id":1,"attempt":1,"reason":"not this"}'
	job 2 quick
	assert_soon 5 is_quiet claimer
	signal run CONT
	assert_soon 5 result 2 ok
	assert_soon 5 result 1 '"outcome":"cancel","code":"cancelled".*"reason":"not this",'
}

test_cancel_of_a_running_and_of_a_waiting_job() {
	start_registered 60000 -j 1
	job 1 waits
	assert_soon 5 has_started 1
	job 2 quick
	to_claimer_side '{"type":"cancel","epoch":5,"job_id":2,"attempt":1,"reason":"not this"}'
	assert_soon 5 result 2 '"outcome":"cancel","code":"cancelled".*"reason":"not this","started_at_us":0,'
	to_claimer_side '{"type":"cancel","epoch":5,"job_id":1,"attempt":1,"reason":"nor this"}'
	assert_soon 5 result 1 '"outcome":"cancel","code":"cancelled".*"reason":"nor this".*"signal":15,'
	to_claimer_side '{"type":"cancel","epoch":5,"job_id":99,"attempt":1}'
	job 3 quick
	assert_soon 5 result 3 ok
}

test_an_ok_that_wins_the_race_stands() {
	handler polite <<-'END'
		#!/bin/sh
		trap 'echo done anyway; exit 0' TERM
		echo $$ >"${0%/*}/../1.started"
		while :; do sleep 0.05; done
	END
	start_registered 60000 -j 1
	job 1 polite
	assert_soon 5 has_started 1
	to_claimer_side '{"type":"cancel","epoch":5,"job_id":1,"attempt":1,"reason":"late"}'
	assert_soon 5 result 1 '"outcome":"ok","code":null.*"response_text":"done anyway"'
}

# ---- stream handlers

# A handler in sh that has the id of the next line in $id after `line`.
stream() { # KIND: its script is on stdin
	{
		cat <<-'END'
			#!/bin/sh
			folder=${0%/*}/..
			line() {
				read -r line || return
				id=${line#*\"id\":\"}
				id=${id%%\"*}
			}
			echo $$ >>"$folder/${0##*/}.pids"
		END
		cat
	} | handler "$1"
	printf '[handler]\nmode = stream\n%s\n' "${2:-}" >"$handlers/$1.ini"
}

test_a_stream_has_credit_of_its_own() {
	stream steady <<-'END'
		while line; do echo "{\"id\":\"$id\"}"; done
	END
	start_registered 60000 -j 1
	assertTrue 'not part of the total' "said claimer '\"total\":1,\"kinds\":\[.*\{\"kind\":\"steady\",\"count\":8,\"held\":0,\"apart\":true\}'"
	job 1 waits
	assert_soon 5 has_started 1
	for id in 2 3 4 5 6 7 8 9; do job $id steady; done
	for id in 2 3 4 5 6 7 8 9; do assert_soon 5 result $id '"outcome":"ok"'; done
	assert_soon 5 said claimer '"last_seq":[2-9],"total":0,.*"kind":"steady","count":[1-9]'
	let_finish 1
	assert_soon 5 result 1 ok
}

test_what_waits_too_long_for_a_stream_is_handed_back() {
	stream busy 'concurrency = 1' <<-'END'
		line
		while [ ! -e "$folder/1.word" ]; do sleep 0.05; done
		echo "{\"id\":\"$id\"}"
	END
	start_registered 60000
	job 1 busy
	job 2 busy
	assert_soon 5 result 2 '"outcome":"release","code":"handed_back"'
	let_finish 1
	assert_soon 5 result 1 ok
}

test_a_stream_that_is_down_has_no_credit() {
	stream broken <<-'END'
		exit 1
	END
	start_registered 60000
	job 1 broken
	assert_soon 5 said claimer '"kind":"broken","count":0,"held":1,"apart":true'
	assert_soon 5 result 1 '"outcome":"release","code":"(handed_back|stream_down)"'
	assert_soon 5 said claimer '"kind":"broken","count":1,"held":0,"apart":true' # to try
}

test_cancel_of_a_streamed_job() {
	stream listens <<-'END'
		echo '{"cancel":true}'
		while line; do
			case $line in
			'{"cancel":'*) echo "{\"id\":\"$first\",\"outcome\":\"retry\",\"code\":\"stopped\"}" ;;
			*) first=${first:-$id} && touch "$folder/$id.started" ;;
			esac
		done
	END
	stream deaf <<-'END'
		line
		printf '%s\n' "$line" >"$folder/$id.new" && mv "$folder/$id.new" "$folder/$id.started"
		line && touch "$folder/heard"
	END
	start_registered 60000
	job 1 listens
	job 2 deaf
	assert_soon 5 test -e "$work/1.started"
	assert_soon 5 has_started 2
	to_claimer_side '{"type":"cancel","epoch":5,"job_id":1,"attempt":1,"reason":"not this"}'
	to_claimer_side '{"type":"cancel","epoch":5,"job_id":2,"attempt":1,"reason":"nor this"}'
	assert_soon 5 result 1 '"outcome":"retry","code":"stopped"' # the settler knows of the cancel
	assertFalse 'who has not asked is not told' "[ -e '$work/heard' ]"
}

test_the_lease_of_streamed_jobs_ends() {
	stream holds <<-'END'
		while line; do
			touch "$folder/$id.started"
			while [ ! -e "$folder/$id.word" ]; do sleep 0.05; done
			echo "{\"id\":\"$id\"}"
		done
	END
	start_registered 2000
	job 1 holds
	job 2 holds
	assert_soon 5 test -e "$work/1.started"
	assert_soon 5 result 1 '"outcome":"release","code":"lease_lost"'
	assert_soon 5 result 2 '"outcome":"release","code":"claim_late"' # it was not read
	assertTrue 'the handler lives' "has_ended '$(cat "$work/holds.pids")'"
	count=$(grep -oE '"type":"beat",.*"count":[0-9]+' "$work/claimer" | tail -n 1 | grep -oE '[0-9]+$')
	to_claimer_side '{"type":"beat","id":"w","count":'"$count"',"db_now_us":1700000000000000}'
	assert_soon 5 said claimer '"kind":"holds","count":[1-9][0-9]*,"held":0'
	let_finish 3
	job 3 holds
	assert_soon 5 result 3 ok
}

# ---- the end (DEP-01)

test_a_drained_runner_says_goodbye() {
	start_registered 60000 -j 2
	job 1 waits
	assert_soon 5 has_started 1
	signal run TERM
	assert_soon 5 said claimer '"type":"beat",.*"state":"draining"'
	assert_soon 5 said claimer '"type":"credit".*"total":0,'
	job 2 quick
	assert_soon 5 result 2 '"outcome":"release","code":"drained"'
	let_finish 1
	assert_soon 5 result 1 ok
	assertTrue 'it waits for the settler' "said claimer gone 0"
	ack 1 2
	wait_for_end run 5
	assertEquals 0 $?
	assert_soon 5 said claimer '"type":"beat",.*"state":"gone"'
	assert_soon 5 said settler '"type":"beat",.*"state":"gone"'
}

test_a_drain_does_not_wait_for_ever_for_a_settler() {
	start_registered 60000 -j 1
	job 1 quick
	assert_soon 5 result 1 ok
	signal run TERM
	wait_for_end run 15
	assertEquals 0 $?
	assertContains "$(cat "$work/run.log")" 'event=results_unsettled count=1'
}

. shunit2
