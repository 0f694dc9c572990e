#!/bin/sh
# outbox-frame: JSON lines to frames and back. Needs no database.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154 # run_lib.sh; $ stands in JSON, not in the shell
. "$(dirname "$0")/run_lib.sh"
logs=output

all_types() {
	cat <<-'END'
		{"type":"nudge","kind":null}
		{"type":"hello","role":"run","id":"host.1.deadbeef","epoch":5,"lease_ms":30000,"db_now_us":1700000000000001,"host":"host","pid":1,"program_version":"0.1.0","lane":"default","slots":8,"kinds":[{"kind":"a","version":12,"lane":"default","timeout_ms":5,"manifest":{"retry":{"max_attempts":3}}},{"kind":"b","version":0,"lane":null,"timeout_ms":0}],"claims":[{"claim_id":7,"received":3}]}
		{"type":"credit","epoch":5,"last_seq":9,"total":3,"kinds":[{"kind":"a","count":3,"held":1,"apart":false}]}
		{"type":"job","epoch":5,"seq":1,"claim_id":9007199254740993,"claim_index":1,"claim_size":1,"claimed_at_us":2,"found":"nudge","job_id":9223372036854775807,"attempt":1,"kind":"email.welcome","payload":{ "n": 12345678901234567890.10, "é":"\u00e9\/" },"max_attempts":8,"idempotency_key":"1","tenant_key":"org \"1\"","subject_key":"","correlation_id":null,"traceparent":null,"metadata":null,"created_at_us":3,"trigger":"automatic","reason":null,"version":0}
		{"type":"cancel","epoch":5,"job_id":1,"attempt":1,"cancelled_by":"bob","reason":"spam"}
		{"type":"result","worker":"w","claim_id":1,"claim_index":1,"claim_size":1,"job_id":1,"attempt":1,"kind":"a","outcome":"retry","code":"exit_3","error":"line 1\nline 2","response_text":"not JSON","response_is_json":false,"after_ms":-1,"reason":null,"started_at_us":1,"duration_ms":2,"exit_status":3,"signal":0,"found":"poll","commit":[{"name":"x","args":["$1"]}],"dropped_bytes":0}
		{"type":"ack","items":[{"job_id":1,"attempt":1,"accepted":true},{"job_id":2,"attempt":1,"accepted":false}]}
		{"type":"beat","id":"w","count":17,"state":"draining","db_now_us":1}
		{"type":"event","at_us":1,"name":"dead","job_id":1,"attempt":8,"kind":"a","from_state":"running","to_state":"dead","code":"exit_65","duration_ms":2,"worker":"w","detail":{"x":[]}}
	END
}

test_every_type_survives_both_ways() {
	all_types >"$work/lines"
	outbox-frame encode <"$work/lines" >"$work/frames"
	assertEquals 'encode' 0 $?
	outbox-frame decode <"$work/frames" >"$work/again"
	assertEquals 'decode' 0 $?
	assertEquals 'lines' '' "$(diff "$work/lines" "$work/again")"
	outbox-frame encode <"$work/again" | cmp "$work/frames" -
	assertEquals 'frames' 0 $?
}

test_documents_that_do_not_fit_a_line_become_strings() {
	for text in '"{\n}"' '" {}"' '"{"' '""'; do
		line='{"type":"job","payload_text":'$text'}'
		printf '%s\n' "$line" | outbox-frame encode | outbox-frame decode >"$work/decoded"
		grep -qF "\"payload_text\":$text" "$work/decoded"
		assertEquals "status of finding $text" 0 $?
	done
}

test_frames_appear_while_the_input_is_open() {
	mkfifo "$work/input"
	outbox-frame decode <"$work/input" >"$work/output" &
	echo $! >"$work/decode.pid"
	exec 8>"$work/input"
	all_types | outbox-frame encode >&8
	assert_soon 10 has_lines 9
	exec 8>&-
	wait_for_end decode
	assertEquals 'exit status' 0 $?
}

has_lines() { # COUNT
	[ "$(wc -l <"$work/output")" -eq "$1" ]
}

# The status and the error of a run that must fail.
assert_refused() { # DIRECTION ERROR, and the input on stdin
	outbox-frame "$1" >"$work/out" 2>"$work/error"
	assertEquals "exit status ($2)" 65 $?
	assertContains "$(cat "$work/error")" "$2"
}

test_a_bad_line_is_named() {
	printf '{"type":"nudge"}\n\n{"type":"job","job_id":1e3}\n' |
		assert_refused encode 'line 3: field \"job_id\" is not a whole number of 64 bits'
	assertEquals 'the line before is written' 1 "$(outbox-frame decode <"$work/out" | wc -l)"
	echo '{"type":"job","job":1}' |
		assert_refused encode 'line 1: field \"job\" is none that such a frame has'
	echo '{"type":"ack","items":[{},{"job_id":"1"}]}' |
		assert_refused encode 'line 1: field \"items[1].job_id\" is not a whole number'
	echo '{"type":"beat","state":"dead"}' | assert_refused encode 'field \"state\"'
	echo '{"kind":"a"}' | assert_refused encode 'line 1: field \"type\" is missing'
	echo '{"type":"nudge"' | assert_refused encode 'line 1: not valid JSON'
}

test_bad_frames_are_placed() {
	echo '{"type":"nudge","kind":"k"}' | outbox-frame encode >"$work/frame" # 5 bytes
	{
		cat "$work/frame"
		printf '\223\001\001\005'
	} | assert_refused decode 'frame at byte 5: malformed nudge frame: field \"kind\"'
	assertEquals 'the frame before is shown' '{"type":"nudge","kind":"k"}' "$(cat "$work/out")"
	{
		cat "$work/frame"
		head -c 4 "$work/frame"
	} | assert_refused decode 'frame at byte 5: the input ends within it'
	echo hello | assert_refused decode 'frame at byte 0: malformed frame: not an array'
	printf '\335\377\377\377\377' | assert_refused decode 'more fields than bytes allowed'
}

test_frames_of_the_future_are_described() {
	assertEquals '{"type":77,"frame_version":2,"bytes":5}' \
		"$(printf '\223\002\115\241x' | outbox-frame decode)"
}

test_wrong_use() {
	for operands in '' 'sideways' 'decode encode'; do
		# shellcheck disable=SC2086 # several operands
		outbox-frame $operands </dev/null 2>"$work/error"
		assertEquals "exit status of \"$operands\"" 64 $?
	done
	echo '{"type":"nudge"}' | outbox-frame encode >/dev/full 2>"$work/error"
	assertEquals 'exit status of a full disk' 74 $?
}

# shellcheck disable=SC1091
. shunit2
