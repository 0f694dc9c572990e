#!/bin/sh
# outbox-run through pipes: the rules for handlers, without a database.
# shellcheck disable=SC1091,SC2034,SC2154,SC2016,SC3045 # run_pipe.sh; $ in handlers; dash's ulimit

. "$(dirname "$0")/run_pipe.sh"

# ---- the contract

test_document_and_environment() {
	handler a.b <<-'END'
		#!/bin/sh
		cat >"${0%/*}/../document"
		env | grep -v -e ^PWD= -e ^LANG -e ^LC_ | sort >"${0%/*}/../environment"
		echo "args $#"
		echo note >&2
	END
	payload='{"n": 12345678901234567890.10, "k": "\u0000\ud800", "e":"\/"}'
	{
		echo "$hello"
		job 9007199254740993 a.b "$payload" '"tenant_key":"org = \"1\"\nx","traceparent":"00-ab","metadata":{"x": 1.0}'
	} | SECRET=hidden HOME=/h SEEN=1 TZ=UTC run --pass-env SEEN
	assertEquals status 0 $?
	assertEquals document '{"id":"9007199254740993","kind":"a.b","payload":'"$payload"',"attempt":1,"max_attempts":8,"idempotency_key":"key-9007199254740993","tenant_key":"org = \"1\"\nx","subject_key":null,"correlation_id":null,"traceparent":"00-ab","metadata":{"x": 1.0},"created_at":"2023-11-14T22:13:20.000000Z","deadline":"D","trigger":"automatic","reason":null}' \
		"$(sed -E 's/"deadline":"2023-11-14T22:13:5[^"]*Z"/"deadline":"D"/' "$work/document")"
	assertEquals environment 'HOME=/h
OUTBOX_ATTEMPT=1
OUTBOX_DEADLINE=D
OUTBOX_IDEMPOTENCY_KEY=key-9007199254740993
OUTBOX_JOB_ID=9007199254740993
OUTBOX_KIND=a.b
OUTBOX_MAX_ATTEMPTS=8
OUTBOX_RESULT_FD=3
OUTBOX_TENANT_KEY=org = "1"
OUTBOX_TRACEPARENT=00-ab
OUTBOX_TRIGGER=automatic
PATH=/usr/local/bin:/usr/bin:/bin
SEEN=1
TZ=UTC
x' "$(sed 's/\(OUTBOX_DEADLINE=\).*/\1D/' "$work/environment")"
	assertEquals 'the hello goes on' '"worker-1"' \
		"$(sed -nE '1s/.*"type":"hello".*"id":("[^"]*").*/\1/p' "$work/results")"
	assert_field 9007199254740993 worker '"worker-1"'
	assert_field 9007199254740993 outcome '"ok"'
	assert_field 9007199254740993 code null
	assert_field 9007199254740993 error null
	assert_field 9007199254740993 response_text '"args 0"'
	assert_field 9007199254740993 claim_index 9007199254740993
	assert_field 9007199254740993 exit_status 0
}

test_outcomes() {
	handler ok.json <<-'END'
		#!/bin/sh
		echo '{"a": 1.10}'
	END
	handler fails <<-'END'
		#!/bin/sh
		printf 'out'; printf 'first\nlast\n' >&2; exit 65
	END
	handler says <<-'END'
		#!/bin/sh
		sed 's/^{"id":"[0-9]*","kind":"says","payload":\(.*\),"attempt":1,.*/\1/' >&3
	END
	handler says.nonsense <<-'END'
		#!/bin/sh
		printf '[1' >&3
	END
	handler says.and.fails <<-'END'
		#!/bin/sh
		echo '{"outcome":"ok"}' >&3; echo why >&2; exit 1
	END
	{
		job 1 ok.json
		job 2 fails
		job 3 says '{"outcome":"retry","code":"rate_limited","after":"60s","error":"slow\u0000"}'
		job 4 says '{"outcome":"ok","commit":[{"name":"m","args":[1.0]}],"enqueue":[{"kind":"x", "payload":{"z":1e2}}]}'
		job 5 says '{"outcome":"maybe"}'
		job 6 says.nonsense
		job 7 says.and.fails
		job 8 says '{"outcome":"cancel","reason":"gone"}'
		job 8 says '{"outcome":"fail"}'
	} | run 2>/dev/null
	assert_field 1 outcome '"ok"'
	assertContains "$(cat "$work/results")" '"response":{"a": 1.10},'
	assert_field 2 outcome '"fail"'
	assert_field 2 code '"exit_65"'
	assert_field 2 error '"first\nlast"'
	assert_field 2 response_text '"out"'
	assert_field 3 outcome '"retry"'
	assert_field 3 code '"rate_limited"'
	assert_field 3 after_ms 60000
	assert_field 3 error '"slow�"'
	assertContains "$(cat "$work/results")" '"commit":[{"name":"m","args":[1.0]}],"enqueue":[{"kind":"x", "payload":{"z":1e2}}]'
	assert_field 5 code '"bad_outcome"'
	assert_field 5 outcome '"retry"'
	assert_field 6 code '"bad_outcome"'
	assert_field 7 code '"bad_outcome"'
	assert_field 7 error '"why"'
	assert_field 8 outcome '"cancel"'
	assert_field 8 reason '"gone"'
	assertEquals 'an attempt that is held already is ignored' 1 \
		"$(grep -c '"job_id":8,' "$work/results")"
}

# ---- RUN-01

test_grandchildren_that_keep_stdout_open() {
	handler keeps <<-'END'
		#!/bin/sh
		sleep 600 &
		echo $! >>"${0%/*}/../pids"
		echo done
		exit 0
	END
	handler keeps.and.fails <<-'END'
		#!/bin/sh
		while sleep 0.1; do echo more; done &
		echo $! >>"${0%/*}/../pids"
		exit 3
	END
	start=$(date +%s)
	{
		for id in $(seq 10); do
			job "$id" keeps
			job "$((id + 10))" keeps.and.fails
		done
	} | run -j 4
	assertEquals status 0 $?
	assertTrue "20 jobs in 4 slots took $(seconds_since "$start") s" "[ $(seconds_since "$start") -le 9 ]"
	assert_field 10 outcome '"ok"'
	assert_field 10 response_text '"done"'
	assert_field 20 code '"exit_3"'
	assertEquals 'leftovers are logged' 20 "$(grep -c event=leftover_killed "$work/run.log")"
	assertEquals 20 "$(wc -l <"$work/pids")"
	while read -r pid; do
		assertTrue "process $pid lives" "is_gone $pid"
	done <"$work/pids"
}

# ---- RUN-02

test_processes_that_leave_the_group_do_not_block_the_slot() {
	handler leaves <<-'END'
		#!/bin/sh
		setsid sh -c 'echo $$ >"$1"; exec sleep 30 >/dev/null 2>&1 3>&-' - "${0%/*}/../pid1" &
		while [ ! -s "${0%/*}/../pid1" ]; do :; done
	END
	handler leaves.with.stdout <<-'END'
		#!/bin/sh
		setsid sh -c 'echo $$ >"$1"; exec sleep 30' - "${0%/*}/../pid2" &
		while [ ! -s "${0%/*}/../pid2" ]; do :; done
	END
	start=$(date +%s)
	{
		job 1 leaves
		job 2 leaves.with.stdout
	} | run -j 1
	assertTrue "took $(seconds_since "$start") s" "[ $(seconds_since "$start") -le 5 ]"
	assert_field 1 outcome '"ok"'
	assert_field 2 outcome '"ok"'
	kill "$(cat "$work/pid1")" "$(cat "$work/pid2")"
}

# ---- RUN-04

test_a_gigabyte_of_output() {
	handler out <<-'END'
		#!/bin/sh
		head -c 1G /dev/zero
	END
	handler err <<-'END'
		#!/bin/sh
		yes | head -c 300M >&2
		exit 9
	END
	handler both <<-'END'
		#!/bin/sh
		yes out | head -c 100M &
		yes err | head -c 100M >&2
		wait
		echo end
	END
	handler line <<-'END'
		#!/bin/sh
		head -c 65537 /dev/zero | tr '\0' a
	END
	{
		job 1 out
		job 2 err
		job 3 both
		job 4 line
	} >"$work/lines"
	(
		# Sanitizers map terabytes.
		grep -q __asan_init "$bin/outbox-run" || ulimit -v 200000
		run -j 2 <"$work/lines"
	)
	assertEquals status 0 $?
	assert_field 1 outcome '"ok"'
	assert_field 1 dropped_bytes $((1073741824 - 65472))
	assert_field 2 code '"exit_9"'
	assert_field 2 dropped_bytes $((300 * 1048576 - 8128))
	assertContains 'the dropped bytes are marked' "$(field 2 error)" '[… 314564672 bytes dropped …]'
	assert_field 3 outcome '"ok"'
	assertContains 'the tail is kept' "$(field 3 response_text)" 'end"'
	assert_field 4 dropped_bytes 65
}

test_limits_of_output_are_settable_and_text_is_storable() {
	handler out <<-'END'
		#!/bin/sh
		printf 'a\0b\377\355\240\200'
		head -c 2000 /dev/zero | tr '\0' x
		printf '\303'
	END
	job 1 out | run --max-response 512 --max-error 1KiB
	assert_field 1 outcome '"ok"'
	response=$(field 1 response_text)
	assertContains "$response" '"a�b����xxx'
	assertContains "$response" 'xxx�"'
	assertTrue "${#response} characters" "[ ${#response} -le 514 ]"
}

# ---- RUN-06

test_signals_of_handlers_are_clean() {
	handler signals <<-'END'
		#!/bin/sh
		exec grep -E 'Sig(Blk|Ign)' /proc/self/status
	END
	handler stream <<-'END'
		#!/bin/sh
		while read -r line; do
			id=${line#*\"id\":\"}
			printf '{"id":"%s","response":"%s"}\n' "${id%%\"*}" \
				"$(grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\t\n')"
		done
	END
	printf '[handler]\nmode = stream\n' >"$handlers/stream.ini"
	handler broken.pipe <<-'END'
		#!/bin/sh
		yes | head -1
	END
	handler exit.code <<-'END'
		#!/bin/sh
		exit 7
	END
	for ignoring in "trap '' CHLD PIPE TERM HUP" "trap '' INT QUIT USR1"; do
		{
			job 1 signals
			job 2 broken.pipe
			job 3 exit.code
			job 4 stream
		} | (
			eval "$ignoring"
			run
		)
		assert_field 1 response_text '"SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000"'
		assert_field 2 outcome '"ok"'
		assert_field 3 code '"exit_7"'
		assert_field 4 response '"SigBlk:0000000000000000SigIgn:0000000000000000"'
	done
}

# ---- RUN-08

test_large_jobs() {
	handler size <<-'END'
		#!/bin/sh
		wc -c
	END
	letters=$(head -c 256000 /dev/zero | tr '\0' p)
	{
		job 1 size "\"$letters\""
		job 2 size 1 '"metadata":{"m":"'"$(echo "$letters" | head -c 16000)"'"},"correlation_id":"'"$(echo "$letters" | head -c 512)"'"'
		job 3 size 1 '"tenant_key":"'"$(echo "$letters" | head -c 131100)"'"'
		job 4 size 1
	} >"$work/lines"
	(
		for i in $(seq 12); do # the runner's own environment is not the handler's
			eval "export FILL$i=$(echo "$letters" | head -c 120000)"
		done
		run <"$work/lines"
	)
	assert_field 1 outcome '"ok"'
	assertTrue "[ $(field 1 response) -gt 256000 ]"
	assert_field 2 outcome '"ok"'
	assertTrue "[ $(field 2 response) -gt 16512 ]"
	assert_field 3 outcome '"retry"'
	assert_field 3 code '"exec_failed"'
	assertContains "$(field 3 error)" 'E2BIG'
	assert_field 4 outcome '"ok"'
}

test_a_handler_need_not_read_its_job() {
	handler ignores <<-'END'
		#!/bin/sh
		exec <&-
		echo ignored
	END
	job 1 ignores "\"$(head -c 250000 /dev/zero | tr '\0' p)\"" | run
	assertEquals status 0 $?
	assert_field 1 outcome '"ok"'
	assert_field 1 response_text '"ignored"'
}

test_what_cannot_be_executed() {
	handler no.interpreter <<-'END'
		#!/nonexistent/interpreter
	END
	job 1 no.interpreter | run
	assert_field 1 outcome '"retry"'
	assert_field 1 code '"exec_failed"'
	assertContains "$(field 1 error)" 'ENOENT'
}

# ---- DEP-02: a handler that is taken away, and put back

test_a_handler_whose_file_is_gone() {
	for kind in exec stream; do
		handler $kind <<-'END'
			#!/bin/sh
			exec sed -u -E 's/^\{"id":"([0-9]+)".*/{"id":"\1"}/'
		END
	done
	printf '[handler]\nmode = stream\n' >"$handlers/stream.ini"
	start_run
	mkdir "$work/elsewhere"
	mv "$handlers/exec" "$handlers/stream" "$work/elsewhere"
	send 1 exec
	send 2 stream
	chmod 644 "$work/elsewhere/exec" "$work/elsewhere/stream"
	assert_soon 10 has_result 1
	assert_soon 10 has_result 2
	mv "$work/elsewhere/exec" "$work/elsewhere/stream" "$handlers"
	send 3 exec
	assert_soon 10 has_result 3
	chmod 755 "$handlers/exec" "$handlers/stream"
	exec 9>>"$handlers/exec"
	send 4 exec
	assert_soon 10 has_result 4
	exec 9>&-
	for id in 1 2 3 4; do
		assert_field $id outcome '"release"'
		assert_field $id code '"no_handler"'
		assert_field $id after_ms 5000
		assert_field $id started_at_us 0
	done
	assertEquals 'said once of each' 2 "$(grep -c event=handler_absent "$work/run.log")"
	assert_soon 10 is_back 2
	send 5 exec
	send 6 stream
	for id in 5 6; do
		assert_soon 10 has_result $id
		assert_field $id outcome '"ok"'
	done
	end_run
	assertEquals status 0 $?
}

is_back() { # COUNT of handlers
	[ "$(grep -c event=handler_back "$work/run.log")" -eq "$1" ]
}

# ---- RUN-10

test_out_of_descriptors() {
	handler nap <<-'END'
		#!/bin/sh
		sleep 0.3
	END
	for id in $(seq 8); do
		job "$id" nap
	done >"$work/lines"
	(
		ulimit -n 24
		run -j 8 <"$work/lines"
	)
	assertEquals status 0 $?
	assertEquals results 8 "$(grep -c '"type":"result"' "$work/results")"
	assertEquals 'some ran' 0 "$(grep -c '"outcome":"ok"' "$work/results" | grep -cx 0)"
	released=$(grep -c '"outcome":"release","code":"spawn_failed"' "$work/results")
	assertTrue "[ $released -gt 0 ]"
	assertEquals 'handed back uncharged, for later' "$released" "$(grep '"spawn_failed"' "$work/results" |
		grep -c '"after_ms":5000,.*"started_at_us":0,')"
	assertContains "$(cat "$work/run.log")" 'RLIMIT_NOFILE is 24'
}

test_out_of_processes_and_back() {
	[ "$(id -u)" -eq 0 ] || startSkipping # needs a user of its own
	handler quick <<-'END'
		#!/bin/sh
		echo quick
	END
	as_other='setpriv --reuid 64997 --regid 64997 --clear-groups'
	cat >"$work/runner" <<-END
		#!/bin/sh
		# The runner and its guard, no handler.
		exec $as_other prlimit --nproc=2: $bin/outbox-run "\$@"
	END
	chmod 755 "$work/runner"
	isSkipping || {
		runner=$work/runner
		start_run -j 8
		unset runner
		send 1 quick
		assert_soon 10 has_result 1
		assert_field 1 outcome '"release"'
		assert_field 1 code '"spawn_failed"'
		assertContains "$(cat "$work/run.log")" 'RLIMIT_NPROC is 2'
		$as_other prlimit --pid "$(pid_of run)" --nproc=1000:
		send 2 quick # waits out the pause
		assert_soon 10 has_result 2
		assert_field 2 outcome '"ok"'
		end_run
		assertEquals status 0 $?
	}
}

# ---- RUN-11

test_signals_are_not_exit_codes() {
	handler dies <<-'END'
		#!/bin/sh
		kill -9 $$
	END
	handler crashes <<-'END'
		#!/bin/sh
		cd "${0%/*}/.." && ulimit -c unlimited; kill -SEGV $$
	END
	handler exits.137 <<-'END'
		#!/bin/sh
		exit 137
	END
	handler exits.143 <<-'END'
		#!/bin/sh
		exit 143
	END
	{
		job 1 dies
		job 2 crashes
		job 3 exits.137
		job 4 exits.143
	} | run
	for expected in '1 signal_9 9 -1' '2 signal_11 11 -1' '3 exit_137 0 137' '4 exit_143 0 143'; do
		# shellcheck disable=SC2086 # four words
		set -- $expected
		assert_field "$1" outcome '"retry"'
		assert_field "$1" code "\"$2\""
		assert_field "$1" signal "$3"
		assert_field "$1" exit_status "$4"
	done
}

# ---- RUN-12

test_a_killed_runner_takes_its_handlers_along() {
	handler long <<-'END'
		#!/bin/sh
		sh -c 'echo $$ >"$1/member.new"; mv "$1/member.new" "$1/member.id"; exec sleep 60' - "${0%/*}/.." &
		echo $$ >"${0%/*}/../leader.id"
		wait
	END
	start_run
	send 1 long
	assert_soon 10 test -s "$work/member.id"
	kill_program run
	assert_soon 5 file_is_gone "$work/leader.id"
	assert_soon 5 file_is_gone "$work/member.id"
}

# ---- SEC-02

test_only_handlers_are_run() {
	for file in good README .hidden lib.so 'k~' notes; do
		handler "$file" <<-'END'
			#!/bin/sh
			touch "${0%/*}/../ran"
		END
	done
	chmod 644 "$handlers/notes"
	long=$(head -c 300 /dev/zero | tr '\0' k)
	id=0
	for kind in ../../bin/sh /bin/sh . .. '' a/b -rf 'a;id' '$(id)' 'x\n' "$long" 'gооd' README \
		.hidden lib.so 'k~' notes 'good ' 'good\u0000' GOOD; do
		id=$((id + 1))
		job "$id" "$kind"
	done >"$work/lines"
	run <"$work/lines"
	assertEquals status 0 $?
	assertEquals results "$id" "$(grep -c '"type":"result"' "$work/results")"
	assertEquals 'all handed back' "$id" \
		"$(grep -c '"outcome":"release","code":"no_handler"' "$work/results")"
	assertFalse 'something ran' "[ -e '$work/ran' ]"
}

test_untrustworthy_handlers_are_refused() {
	handler good <<-'END'
		#!/bin/sh
	END
	cp "$handlers/good" "$handlers/loose"
	for mode in 757 775; do
		chmod $mode "$handlers/loose"
		run </dev/null
		assertEquals "writable by others: $mode" 78 $?
		assertContains "$(cat "$work/run.log")" "$handlers/loose"
	done
	ln -sf /bin/sh "$handlers/loose"
	run </dev/null
	assertEquals 'a link out of the folder' 78 $?
	assertContains "$(cat "$work/run.log")" "$handlers/loose"
	rm "$handlers/loose"
	for mode in 777 775; do
		chmod $mode "$handlers"
		run </dev/null
		assertEquals "a folder writable by others: $mode" 78 $?
	done
	chmod 755 "$handlers"
	run </dev/null
	assertEquals 'the good one alone' 0 $?
}

# A job for a later version of the handler waits for it, uncharged.
test_a_version_that_is_not_here() {
	handler old <<-'END'
		#!/bin/sh
	END
	job 1 old 1 '"version":2' | run
	assert_field 1 code '"no_handler"'
	assert_field 1 outcome '"release"'
}

# ---- draining (DEP-01) and the lease

start_long_jobs() { # [OPTION ...]: one that ends at a word, one that would not, one waiting
	handler ends <<-'END'
		#!/bin/sh
		trap '' TERM
		touch "${0%/*}/../ends.started"
		while [ ! -e "${0%/*}/../word" ]; do sleep 0.05; done
		echo finished
	END
	stubborn_handler stubborn
	start_run -j 2 "$@"
	send 1 ends
	send 2 stubborn
	send 3 ends
	assert_soon 10 test -e "$work/ends.started"
	assert_soon 10 test -s "$work/stubborn.started"
}

# The handlers have process groups of their own: TERM to the runner's does not reach them.
test_term_drains() {
	start_long_jobs --grace 1s
	signal run TERM
	assert_soon 10 has_result 3
	assert_field 3 outcome '"release"'
	assert_field 3 code '"drained"'
	touch "$work/word"
	assert_soon 10 has_result 1
	assert_field 1 outcome '"ok"'
	assert_field 1 response_text '"finished"'
	wait_for_end run 20 # grace of the runner, then of the handler, then KILL
	assertEquals status 0 $?
	assert_field 2 outcome '"release"'
	assert_field 2 code '"interrupted"'
	assert_field 2 signal 9
	assertTrue 'the handler lives' "file_is_gone '$work/stubborn.started'"
}

# As from a supervisor that stops a process group, and from one that stops a control group.
test_term_to_more_than_the_runner() {
	handler plain <<-'END'
		#!/bin/sh
		echo $$ >"${0%/*}/../$OUTBOX_JOB_ID.new"
		mv "${0%/*}/../$OUTBOX_JOB_ID.new" "${0%/*}/../$OUTBOX_JOB_ID.started"
		while [ ! -e "${0%/*}/../word" ]; do sleep 0.05; done
		echo finished
	END
	handler stream <<-'END'
		#!/bin/sh
		read -r line
		echo $$ >"${0%/*}/../3.new"
		mv "${0%/*}/../3.new" "${0%/*}/../3.started"
		while :; do sleep 0.05; done
	END
	printf '[handler]\nmode = stream\n' >"$handlers/stream.ini"
	printf '#!/bin/sh\nexec setsid %s "$@"\n' "$bin/outbox-run" >"$work/runner"
	chmod 755 "$work/runner"
	runner=$work/runner
	start_run -j 2 --grace 60s
	unset runner
	send 1 plain
	send 2 plain
	send 3 stream
	for id in 1 2 3; do assert_soon 10 test -s "$work/$id.started"; done
	kill -TERM "-$(pid_of run)"
	assert_soon 10 grep -q event=draining "$work/run.log"
	kill -TERM "$(cat "$work/2.started")" "$(cat "$work/3.started")"
	for id in 2 3; do
		assert_soon 10 has_result $id
		assert_field $id outcome '"release"'
		assert_field $id code '"interrupted"'
		assert_field $id signal 15
	done
	touch "$work/word"
	wait_for_end run 10
	assertEquals status 0 $?
	assert_soon 5 has_result 1
	assert_field 1 response_text '"finished"'
}

test_the_second_term_leaves_now() {
	start_long_jobs --grace 60s
	signal run TERM
	assert_soon 10 has_result 3
	signal run TERM
	wait_for_end run 5
	assertEquals status 0 $?
	assert_soon 5 has_result 2
	assert_field 1 code '"interrupted"'
	assert_field 2 code '"interrupted"'
	assertTrue 'the handler lives' "file_is_gone '$work/stubborn.started'"
}

test_the_lease_of_a_pipe_ends() {
	hello='{"type":"hello","role":"pipe","id":"w","lease_ms":2000}'
	start_long_jobs
	assert_soon 10 has_result 2
	assert_field 1 code '"lease_lost"'
	assert_field 2 code '"lease_lost"'
	assert_field 2 outcome '"release"'
	assert_field 3 code '"claim_late"'
	assert_field 3 after_ms 5000
	send 4 ends
	assert_soon 10 has_result 4
	assert_field 4 code '"claim_late"'
	end_run
	assertEquals status 0 $?
}

# ---- broken ends

test_an_input_that_is_not_frames() {
	echo 'GET / HTTP/1.0' | "$bin/outbox-run" --handlers "$handlers" --jobs - --results - \
		>/dev/null 2>"$work/run.log"
	assertEquals 76 $?
}

test_results_that_nobody_reads() {
	handler waits <<-'END'
		#!/bin/sh
		echo $$ >"${0%/*}/../started.new"
		mv "${0%/*}/../started.new" "${0%/*}/../started"
		exec sleep 60
	END
	handler quick <<-'END'
		#!/bin/sh
	END
	mkfifo "$work/jobs" "$work/frames"
	"$bin/outbox-run" --handlers "$handlers" --jobs - --results - -j 2 \
		<"$work/jobs" >"$work/frames" 2>"$work/run.log" &
	echo $! >"$work/run.pid"
	exec 7>"$work/jobs" 8<"$work/frames"
	send 1 waits
	assert_soon 10 test -e "$work/started"
	exec 8<&-
	send 2 quick
	wait_for_end run 10
	assertEquals 74 $?
	assertTrue 'the handler lives' "file_is_gone '$work/started'"
}

. shunit2
