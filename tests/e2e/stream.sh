#!/bin/sh
# Stream handlers of outbox-run, through pipes and without a database.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154,SC3045 # run_pipe.sh; $ in handlers; dash's ulimit

. "$(dirname "$0")/run_pipe.sh"

# A handler whose script is on stdin. What it starts with: `line` reads the next line into
# $line, $id and $payload (a word), and fails at the end; a dash reads one line and no more.
stream() { # KIND [LINE OF THE MANIFEST ...]
	{
		cat <<-'END'
			#!/bin/sh
			folder=${0%/*}/..
			line() {
				read -r line || return
				id=${line#*\"id\":\"} payload=${line#*\"payload\":\"}
				id=${id%%\"*} payload=${payload%%\"*}
			}
			echo $$ >>"$folder/${0##*/}.pids"
		END
		cat
	} | handler "$1"
	kind=$1
	shift
	{
		printf '%s\n' '[handler]' 'mode = stream'
		[ $# -eq 0 ] || printf '%s\n' "$@"
	} >"$handlers/$kind.ini"
}

stream_echo() { # KIND [LINE OF THE MANIFEST ...]: answers with the id alone
	stream "$@" <<-'END'
		while line; do echo "{\"id\":\"$id\"}"; done
	END
}

jobs() { # KIND FROM TO [PAYLOAD]
	for number in $(seq "$2" "$3"); do
		job "$number" "$1" "${4:-null}"
	done
}

count_results() { # REGEXP COUNT
	assertEquals "results: $1" "$2" "$(grep -cE "$1" "$work/results")" ||
		fail_with_logs 'in these results:'
}

starts() { # KIND: how many processes there were
	wc -l <"$work/$1.pids"
}

# ---- what goes in and what comes out

test_documents_are_lines() {
	stream lines <<-'END'
		env | grep -v -e ^PWD= -e ^LANG -e ^LC_ | sort >"$folder/environment"
		[ ! -e /proc/self/fd/3 ] || echo 'descriptor 3 is open' >&2
		while line; do
			printf '%s\n' "$line" >>"$folder/documents"
			echo "{\"id\":\"$id\",\"response\":$id}"
		done
		touch "$folder/left"
	END
	{
		echo "$hello"
		job 1 lines 1
		job 2 lines 2 | sed 's/"payload":2/"payload_text":"{\\n\\"a\\":\\r\\n 1.10,\\"b\\":\\"\\\\n\\"}"/'
		job 9007199254740993 lines '"x"' '"metadata":{"m":1}'
	} | HOME=/h TZ=UTC run
	assertEquals status 0 $?
	assertEquals documents '{"id":"1","kind":"lines","payload":1,"attempt":1,"max_attempts":8,"idempotency_key":"key-1","tenant_key":null,"subject_key":null,"correlation_id":null,"traceparent":null,"metadata":null,"created_at":"2023-11-14T22:13:20.000000Z","deadline":"D","trigger":"automatic","reason":null}
"payload":{ "a":   1.10,"b":"\n"}
"payload":"x"' "$(sed -E -e 's/"deadline":"2023-11-14T22:13:5[^"]*Z"/"deadline":"D"/' \
		-e '2,3s/.*("payload":.*),"attempt".*/\1/' "$work/documents")"
	assertEquals environment 'HOME=/h
OUTBOX_KIND=lines
OUTBOX_MODE=stream
PATH=/usr/local/bin:/usr/bin:/bin
TZ=UTC' "$(cat "$work/environment")"
	assert_field 1 outcome '"ok"'
	assert_field 1 code null
	assert_field 1 response 1
	assert_field 1 worker '"worker-1"'
	assert_field 1 exit_status -1
	assert_field 9007199254740993 response 9007199254740993
	assertEquals 'one process did it all' 1 "$(starts lines)"
	assertTrue 'it saw the end of its input' "[ -e '$work/left' ]"
	assertNotContains "$(cat "$work/run.log")" 'descriptor 3'
}

test_answers_say_what_documents_say() {
	stream says <<-'END'
		while read -r line; do
			answer=${line#*\"payload\":} id=${line#*\"id\":\"}
			printf '%s\n' "{\"id\":${id%%\"*},${answer%%,\"attempt\":1,\"max*}" | sed 's/,{/,/'
		done
	END
	{
		job 1 says '{"outcome":"ok","response":{"a": 1.10}}'
		job 2 says '{"response":"text"}'
		job 3 says '{"outcome":"retry","code":"rate_limited","after":"60s","error":"slow\u0000"}'
		job 4 says '{"commit":[{"name":"m","args":[1.0]}],"enqueue":[{"kind":"x", "payload":{"z":1e2}}]}'
		job 5 says '{"outcome":"maybe"}'
		job 6 says '{"outcome":"fail","response":null,"error":"never"}'
		job 7 says '{"outcome":"cancel","reason":"gone"}'
		job 8 says '{"attempt":1}'
	} | run
	assertEquals status 0 $?
	assertContains "$(cat "$work/results")" '"response":{"a": 1.10},'
	assert_field 2 response '"text"'
	assert_field 2 response_is_json true
	assert_field 3 outcome '"retry"'
	assert_field 3 code '"rate_limited"'
	assert_field 3 after_ms 60000
	assert_field 3 error '"slow�"'
	assertContains "$(cat "$work/results")" '"commit":[{"name":"m","args":[1.0]}],"enqueue":[{"kind":"x", "payload":{"z":1e2}}]'
	assert_field 5 outcome '"retry"'
	assert_field 5 code '"bad_outcome"'
	assertContains "$(field 5 error)" 'outcome'
	assert_field 6 outcome '"fail"'
	assert_field 6 code '"fail"'
	assert_field 6 error '"never"'
	assert_field 6 response_is_json false
	assert_field 7 outcome '"cancel"'
	assert_field 7 reason '"gone"'
	assert_field 8 outcome '"ok"'
	assertEquals 'a bad answer costs no process' 1 "$(starts says)"
}

test_answers_in_any_order_and_in_pieces() {
	stream pieces <<-'END'
		line; a=$id; line; b=$id; line; c=$id
		printf '{"id":"%s","response":3}\n{"id":"%s","respo' "$c" "$b"
		sleep 0.2
		printf 'nse":2}\n\n{"id":"%s"' "$a"
		sleep 0.2
		printf ',"response":1}' # the last line, without its newline
	END
	jobs pieces 1 3 | run
	assertEquals status 0 $?
	for id in 1 2 3; do
		assert_field $id outcome '"ok"'
		assert_field $id response $id
	done
}

test_many_lines_in_one_write() {
	stream many <<-'END'
		exec sed -u -E 's/^\{"id":"([0-9]+)".*/{"id":"\1"}/'
	END
	jobs many 1 5000 '"12345678901234567890"' | run
	assertEquals status 0 $?
	count_results '"outcome":"ok"' 5000
	assertEquals processes 1 "$(starts many)"
}

test_large_jobs_and_large_answers() {
	stream size <<-'END'
		while line; do
			printf '{"id":"%s","response":[%s,"%s"]}\n' "$id" "${#line}" "$payload"
		done
	END
	letters=$(head -c 250000 /dev/zero | tr '\0' p)
	{
		job 1 size "\"$letters\""
		job 2 size '"small"'
		job 3 size "\"$letters\""
	} | run --max-response 512
	assertEquals status 0 $?
	assert_field 1 outcome '"ok"'
	assert_field 1 response_is_json false
	assertContains "$(field 3 response_text)" '"[250'
	assertContains "$(field 3 response_text)" 'bytes dropped'
	assertTrue "[ $(field 3 dropped_bytes) -gt 249000 ]"
	assertContains "$(cat "$work/results")" ',"small"],"response_is_json":true'
}

test_an_answer_without_end() {
	stream endless <<-'END'
		line
		printf '{"id":"%s","response":"' "$id"
		head -c 20000000 /dev/zero | tr '\0' x
		echo '"}'
		while line; do echo "{\"id\":\"$id\"}"; done
	END
	jobs endless 1 2 | (
		grep -q __asan_init "$bin/outbox-run" || ulimit -v 200000
		run
	)
	assertEquals status 0 $?
	assert_field 1 code '"bad_outcome"'
	assert_field 2 outcome '"ok"'
}

test_what_is_no_answer_is_ignored() {
	stream noisy <<-'END'
		echo 'starting up'
		line; a=$id
		line; b=$id
		echo '{"id":"77"}'
		echo '{"id":null}'
		echo '[]'
		echo "{\"id\":\"$a\",\"attempt\":2}"
		echo "{\"id\":\"$b\",\"outcome\":\"ok\"" # malformed, but whose it is can be seen
		echo "{\"id\":\"$b\"}"                  # too late
		echo "{\"id\":\"$a\"}"
		while line; do :; done
	END
	jobs noisy 1 2 | run
	assertEquals status 0 $?
	assert_field 1 outcome '"ok"'
	assert_field 2 outcome '"retry"'
	assert_field 2 code '"bad_outcome"'
	count_results '"type":"result"' 2
	assertContains "$(cat "$work/run.log")" 'event=answer_ignored kind=noisy'
	assertEquals 'said once a second' 1 "$(grep -c event=answer_ignored "$work/run.log")"
}

# ---- crashes

test_a_crash_takes_what_was_read() {
	stream crashes <<-'END'
		[ -e "$folder/crashed" ] || {
			touch "$folder/crashed"
			line; echo "{\"id\":\"$id\"}"
			line; line
			echo 'it was me' >&2
			exit 3
		}
		while line; do echo "{\"id\":\"$id\"}"; done
	END
	jobs crashes 1 6 | run
	assertEquals status 0 $?
	assert_field 1 outcome '"ok"'
	for id in 2 3; do
		assert_field $id outcome '"lost"'
		assert_field $id code '"handler_lost"'
		assert_field $id exit_status 3
		assert_field $id signal 0
		assertContains "$(field $id error)" 'exited with status 3'
		assertContains "$(field $id error)" 'it was me'
	done
	for id in 4 5 6; do # written, not read: done by the next process
		assert_field $id outcome '"ok"'
	done
	assertEquals processes 2 "$(starts crashes)"
	assertContains "$(cat "$work/run.log")" 'event=handler_stderr kind=crashes'
	assertContains "$(cat "$work/run.log")" 'event=stream_exited kind=crashes'
	assertContains "$(cat "$work/run.log")" 'jobs_ended=2 jobs_waiting=3'
}

test_a_signal_and_an_exit_with_0_are_crashes_too() {
	stream killed <<-'END'
		line
		kill -9 $$
	END
	stream leaves <<-'END'
		line
		exit 0
	END
	{
		job 1 killed
		job 2 leaves
	} | run
	assert_field 1 outcome '"lost"'
	assert_field 1 signal 9
	assert_field 1 exit_status -1
	assert_field 2 outcome '"lost"'
	assert_field 2 exit_status 0
}

# It has read a part of the line, and may have died of it.
test_a_crash_within_a_line() {
	stream chokes <<-'END'
		[ "$(head -c 1000 | wc -c)" -eq 1000 ]
		exit 70
	END
	job 1 chokes "\"$(head -c 200000 /dev/zero | tr '\0' p)\"" | run
	assert_field 1 outcome '"lost"'
	assert_field 1 exit_status 70
}

# Nobody is charged for a handler that does not even begin.
test_a_handler_that_cannot_begin() {
	stream broken <<-'END'
		echo 'no such module' >&2
		exit 1
	END
	stream absent <<-'END'
	END
	echo '#!/nonexistent/interpreter' >"$handlers/absent"
	start=$(date +%s)
	{
		jobs broken 1 3
		jobs absent 4 5
	} | run
	assertEquals status 0 $?
	assertTrue "took $(seconds_since "$start") s" "[ $(seconds_since "$start") -le 10 ]"
	count_results '"outcome":"release","code":"stream_down".*"after_ms":5000,' 3
	count_results '"outcome":"retry","code":"exec_failed".*ENOENT' 2
	pauses=$(sed -nE 's/.*event=stream_exited.*pause_ms=([0-9]+).*/\1/p' "$work/run.log" | xargs)
	assertEquals 'pauses' '100 200 400 800 1600' "$pauses"
}

test_a_handler_may_leave_when_it_has_nothing_to_do() {
	stream one.shot <<-'END'
		line
		echo "{\"id\":\"$id\"}"
	END
	start_run
	send 1 one.shot
	assert_soon 10 has_result 1
	assert_soon 5 grep -q 'event=stream_exited kind=one.shot' "$work/run.log"
	assertEquals 'it is not started for nothing' 1 "$(starts one.shot)"
	send 2 one.shot
	assert_soon 10 has_result 2
	send 3 one.shot
	assert_soon 10 has_result 3
	end_run
	assertEquals status 0 $?
	count_results '"outcome":"ok"' 3
	assertEquals processes 3 "$(starts one.shot)"
	assertNotContains "$(cat "$work/run.log")" 'level=warning'
}

test_a_handler_that_closes_its_stdout() {
	stream mute 'grace = 1s' <<-'END'
		line
		exec >&-
		while :; do sleep 0.1; done
	END
	job 1 mute | run
	assert_field 1 outcome '"lost"'
	assert_field 1 signal 15
	assertContains "$(field 1 error)" 'closed its stdin or stdout'
}

# ---- time

test_one_late_job_is_charged_and_the_others_are_not() {
	stream late 'timeout = 1s' <<-'END'
		[ -e "$folder/restarted" ] || {
			touch "$folder/restarted"
			line; line; line
			while :; do sleep 0.1; done
		}
		while line; do echo "{\"id\":\"$id\"}"; done
	END
	jobs late 1 5 | run
	assert_field 1 outcome '"retry"'
	assert_field 1 code '"timeout"'
	assertContains "$(field 1 error)" 'no answer within 1000 ms'
	for id in 2 3; do
		assert_field $id outcome '"release"'
		assert_field $id code '"stream_restarted"'
		assert_field $id after_ms -1
	done
	for id in 4 5; do
		assert_field $id outcome '"ok"'
	done
	assertEquals processes 2 "$(starts late)"
}

test_too_late_is_too_late() {
	stream excuses 'timeout = 1s' <<-'END'
		trap 'echo "{\"id\":\"$first\"}"; echo "{\"id\":\"$id\"}"; exit 0' TERM
		line; first=$id; line
		while :; do sleep 0.1; done
	END
	jobs excuses 1 2 | run
	assert_field 1 code '"timeout"'
	assert_field 2 outcome '"ok"'
	assertContains "$(cat "$work/run.log")" 'it comes too late'
}

test_the_late_are_killed() {
	stream stubborn 'timeout = 1s' 'grace = 1s' <<-'END'
		trap '' TERM
		line
		while :; do sleep 0.1; done
	END
	job 1 stubborn | run
	assert_field 1 code '"timeout"'
	assert_field 1 signal 9
	assertTrue 'the handler lives' "file_is_gone '$work/stubborn.pids'"
}

# Each has the whole time, counted from when its turn comes.
test_slow_and_steady() {
	stream slow 'timeout = 1s' <<-'END'
		while line; do sleep 0.4; echo "{\"id\":\"$id\"}"; done
	END
	jobs slow 1 6 | run
	count_results '"outcome":"ok"' 6
	assertEquals processes 1 "$(starts slow)"
}

# ---- windows

test_concurrency_bounds_what_is_given() {
	stream careful 'concurrency = 2' 'stream_processes = 2' <<-'END'
		while line; do
			echo "begin $id" >>"$folder/careful.log"
			sleep 0.1
			echo "end $id" >>"$folder/careful.log"
			echo "{\"id\":\"$id\"}"
		done
	END
	jobs careful 1 8 | run
	count_results '"outcome":"ok"' 8
	most=$(awk '$1 == "begin" { if (++now > most) most = now } $1 == "end" { now-- } END { print most }' "$work/careful.log")
	assertEquals 'at once' 2 "$most"
	assertEquals processes 2 "$(starts careful)"
}

test_slots_and_windows_are_apart() {
	handler waits <<-'END'
		#!/bin/sh
		while [ ! -e "${0%/*}/../word" ]; do sleep 0.05; done
	END
	stream_echo quick
	start_run -j 1
	send 1 waits
	for id in 2 3 4; do
		send $id quick
		assert_soon 10 has_result $id
	done
	touch "$work/word"
	end_run
	assertEquals status 0 $?
	count_results '"outcome":"ok"' 4
}

# ---- the end

# One job in flight that ends at a word, the others unread in its pipe.
start_waiting_stream() { # [OPTION ...]
	stream waits 'grace = 1s' <<-'END'
		trap '' TERM
		while line; do
			touch "$folder/$id.read"
			while [ ! -e "$folder/word" ]; do sleep 0.05; done
			echo "{\"id\":\"$id\"}"
		done
		touch "$folder/left"
	END
	start_run "$@"
	send 1 waits
	assert_soon 10 test -e "$work/1.read"
}

test_a_drain_waits_for_answers_and_ends_the_input() {
	start_waiting_stream --grace 60s
	signal run TERM
	assert_soon 10 grep -q event=draining "$work/run.log"
	touch "$work/word"
	wait_for_end run 10
	assertEquals status 0 $?
	assert_soon 5 has_result 1
	assert_field 1 outcome '"ok"'
	assertTrue 'it could leave by itself' "[ -e '$work/left' ]"
}

test_a_drain_has_an_end() {
	start_waiting_stream --grace 1s
	signal run TERM
	wait_for_end run 20
	assertEquals status 0 $?
	assert_soon 5 has_result 1
	assert_field 1 outcome '"release"'
	assert_field 1 code '"interrupted"'
	assert_field 1 signal 9
	assertTrue 'the handler lives' "file_is_gone '$work/waits.pids'"
}

test_the_second_term_leaves_now() {
	start_waiting_stream --grace 60s
	signal run TERM
	assert_soon 10 grep -q event=draining "$work/run.log"
	signal run TERM
	wait_for_end run 5
	assertEquals status 0 $?
	assert_soon 5 has_result 1
	assert_field 1 code '"interrupted"'
}

test_the_lease_of_a_pipe_ends() {
	usual_hello=$hello
	hello='{"type":"hello","role":"pipe","id":"w","lease_ms":2000}'
	start_waiting_stream
	hello=$usual_hello
	assert_soon 10 has_result 1
	assert_field 1 outcome '"release"'
	assert_field 1 code '"lease_lost"'
	assertTrue 'the handler lives' "file_is_gone '$work/waits.pids'"
	send 2 waits
	assert_soon 10 has_result 2
	assert_field 2 code '"claim_late"'
	end_run
	assertEquals status 0 $?
}

test_a_killed_runner_takes_its_handlers_along() {
	stream family <<-'END'
		sh -c 'echo $$ >"$1/member.new"; mv "$1/member.new" "$1/member.id"; exec sleep 60' - "$folder" &
		while line; do echo "{\"id\":\"$id\"}"; done
	END
	start_run
	send 1 family
	assert_soon 10 has_result 1
	assert_soon 10 test -s "$work/member.id"
	kill_program run
	assert_soon 5 file_is_gone "$work/family.pids"
	assert_soon 5 file_is_gone "$work/member.id"
}

has_reloaded() {
	[ "$(grep -c event=handlers_loaded "$work/run.log")" -eq 2 ]
}

# What the old one was given it answers; what comes later is for the new one.
test_new_handlers() {
	start_waiting_stream
	send 2 waits
	sed -i 's/echo "{\\"id\\":\\"$id\\"}"/echo "{\\"id\\":\\"$id\\",\\"response\\":2}"/' "$handlers/waits"
	signal run HUP
	assert_soon 5 has_reloaded
	send 3 waits
	assert_soon 5 test -e "$work/3.read"
	touch "$work/word"
	for id in 1 2 3; do assert_soon 5 has_result $id; done
	end_run
	assertEquals status 0 $?
	count_results '"outcome":"ok"' 3
	assert_field 1 response_is_json false
	assert_field 3 response 2
	assertEquals processes 2 "$(starts waits)"
}

# ---- the samples

install_samples() { # FILE ...
	for file; do
		cp -p "$root/scripts/handlers/$file" "$handlers/$file"
	done
}

test_the_python_sample() {
	[ -x /usr/bin/python3 ] || startSkipping
	install_samples outbox_stream.py example.words example.words.ini
	{
		job 1 example.words '{"text":"one two two"}'
		job 2 example.words '{}'
		job 3 example.words '{"text":"ä ä\u2028"}'
		for id in $(seq 4 300); do job "$id" example.words '{"text":"x"}'; done
	} | run
	assertContains "$(cat "$work/results")" '"response":{"one": 1, "two": 2}'
	assert_field 2 outcome '"fail"'
	assert_field 2 code '"bad_input"'
	count_results '"outcome":"ok"' 299
	count_results '"outcome":"fail"' 1
}

test_the_node_sample() {
	[ -x /usr/bin/node ] || startSkipping
	install_samples outbox_stream.js example.nap example.nap.ini
	start=$(date +%s)
	{
		job 1 example.nap '{"ms":10}'
		job 2 example.nap '{"ms":"x\u2028"}'
		for id in $(seq 3 64); do job "$id" example.nap '{"ms":1000}'; done
	} | run
	count_results '"outcome":"ok"' 63
	assert_field 2 outcome '"fail"'
	assertTrue "all at once: $(seconds_since "$start") s" "[ $(seconds_since "$start") -le 20 ]"
}

test_the_c_sample() {
	command -v cc >/dev/null || startSkipping
	cc -o "$handlers/null" "$root/scripts/handlers/stream_null.c"
	printf '[handler]\nmode = stream\n' >"$handlers/null.ini"
	jobs null 1 2000 '{"a":"b"}' | run
	count_results '"outcome":"ok"' 2000
}

. shunit2
