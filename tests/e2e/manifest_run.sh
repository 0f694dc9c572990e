#!/bin/sh
# What manifests make of handlers, in a runner alone: through pipes, without a database.
# shellcheck disable=SC1091,SC2034,SC2154,SC2016 # run_pipe.sh; $ in handlers

. "$(dirname "$0")/run_pipe.sh"

manifest() { # NAME, and the text on stdin
	cat >"$handlers/$1"
	chmod 644 "$handlers/$1"
}

noop() { # KIND
	handler "$1" <<-'END'
		#!/bin/sh
	END
}

check() { # the status is the runner's; its output is $work/checked, its log $work/run.log
	"$bin/outbox-run" --handlers "$handlers" --check >"$work/checked" 2>"$work/run.log"
}

is_root() {
	[ "$(id -u)" -eq 0 ]
}

# ---- --check

test_check_prints_what_would_be_registered() {
	mkdir "$handlers/bin"
	noop plain
	noop bin/tool
	manifest email.welcome.ini <<-'END'
		[handler]
		command = ./bin/tool --fast "two words" ''
		mode = stream
		lane = mail
		timeout = 1500ms
		version = 12
	END
	check
	assertEquals status 0 $?
	assertEquals 'kind           mode    lane     version  timeout  command
email.welcome  stream  mail     12       1500ms   ./bin/tool --fast '"'two words'"' ""
plain          exec    default  0        30s      plain' "$(cat "$work/checked")"
	assertEquals 'nothing on stderr' '' "$(grep -v event=handler "$work/run.log")"
}

assert_refused() { # NAME:LINE WHAT; the manifest is on stdin
	manifest "${1%%:*}"
	check
	assertEquals "status for $2" 78 $?
	assertContains "$(cat "$work/run.log")" "$handlers/$1"
	assertContains "$(cat "$work/run.log")" "$2"
	assertEquals 'nothing on stdout' '' "$(cat "$work/checked")"
	"$bin/outbox-run" --handlers "$handlers" --jobs - --results - </dev/null 2>/dev/null
	assertEquals "status of a start for $2" 78 $?
	rm "$handlers/${1%%:*}"
}

test_what_is_wrong_is_refused_with_file_and_line() {
	noop k
	printf '[handler]\ntimeout = 30s\n\ntimout = 3s\n' |
		assert_refused k.ini:4 'there is no such key'
	printf '[handlers]\n' | assert_refused k.ini:1 'there is no section [handlers]'
	printf '[handler]\ntimeout = soon\n' | assert_refused k.ini:2 'not a duration'
	printf '[env]\nrequire = NO_SUCH_TOKEN\n' | assert_refused k.ini:2 'NO_SUCH_TOKEN'
	printf '[handler]\ncommand = gone\n' | assert_refused x.ini:2 'No such file'
	printf '[handler]\nuser = nobody-here\n' | assert_refused k.ini:2 'there is no user'
	printf '[redact]\npattern = [\n' | assert_refused outbox.ini:2 'cannot be redacted'
	printf '[payload]\nschema = k.json\n' >"$work/ini"
	printf '{"type":' >"$handlers/k.json"
	assert_refused k.ini:2 'is not JSON' <"$work/ini"
	ln -sf "$work/ini" "$handlers/k.json"
	assert_refused k.ini:2 'leads out of the handler folder' <"$work/ini"
}

test_two_files_for_one_kind_are_both_named() {
	noop a
	printf '[handler]\nkind = k\ncommand = a\n' | manifest one.ini
	printf '[handler]\nkind = k\ncommand = a\n' | manifest two.ini
	check
	assertEquals 78 $?
	assertContains "$(cat "$work/run.log")" '\"one.ini\" and \"two.ini\" both declare the kind \"k\"'
}

test_a_user_that_the_runner_cannot_become() {
	is_root || startSkipping
	noop k
	printf '[handler]\nuser = nobody\n' | manifest k.ini
	isSkipping || setpriv --reuid 64997 --regid 64997 --clear-groups "$bin/outbox-run" \
		--handlers "$handlers" --jobs - --results - </dev/null 2>"$work/run.log"
	assertEquals 78 $?
	assertContains "$(cat "$work/run.log")" 'k.ini'
}

# ---- outcomes

test_the_exit_table() {
	handler exits <<-'END'
		#!/bin/sh
		exit "$(sed 's/.*"payload":\([0-9]*\),.*/\1/')"
	END
	manifest exits.ini <<-'END'
		[exit]
		65 = retry busy
		7 = fail bad_input   ; for good
		8 = cancel gone
		9 = ok
		10 = fail
	END
	for status in 0 65 7 8 9 10 11 64; do
		job "$((status + 100))" exits "$status"
	done | run
	for expected in '0 ok' '65 retry busy' '7 fail bad_input' '8 cancel gone' '9 ok' \
		'10 fail exit_10' '11 retry exit_11' '64 fail exit_64'; do
		# shellcheck disable=SC2086 # two or three words
		set -- $expected
		assert_field "$(($1 + 100))" outcome "\"$2\""
		assert_field "$(($1 + 100))" code "${3:+\"}${3:-null}${3:+\"}"
		assert_field "$(($1 + 100))" exit_status "$1"
	done
}

test_outbox_outcome() {
	handler says <<-END
		#!/bin/sh
		PATH=$bin:\$PATH
		case \$(sed 's/.*"payload":\([0-9]*\),.*/\1/') in
		1) outbox-outcome retry --code rate_limited --after 60s --error 'try later' ;;
		2) outbox-outcome ok --commit mark_welcomed --enqueue '{"kind":"a","payload":{"n":1.0}}' -- 'u"1' -2 ;;
		3) outbox-outcome fail --code bounced; echo why >&2; exit 1 ;;
		4) outbox-outcome cancel --reason 'account closed' ;;
		5) outbox-outcome ok; exit 3 ;;
		6) outbox-outcome ok; outbox-outcome ok ;;
		7) outbox-outcome retry --code 'Not A Code' || exit 9 ;;
		8) outbox-outcome ok --commit '{"name":"m","args":[1]}' --commit n --enqueue '{"kind":"b"}' ;;
		esac
	END
	for number in 1 2 3 4 5 6 7 8; do
		job "$number" says "$number"
	done | run
	assert_field 1 outcome '"retry"'
	assert_field 1 code '"rate_limited"'
	assert_field 1 after_ms 60000
	assert_field 1 error '"try later"'
	assertContains "$(cat "$work/results")" \
		'"commit":[{"name":"mark_welcomed","args":["u\"1","-2"]}],"enqueue":[{"kind":"a","payload":{"n":1.0}}]'
	assert_field 3 outcome '"fail"'
	assert_field 3 code '"bounced"'
	assert_field 3 error '"why"'
	assert_field 4 outcome '"cancel"'
	assert_field 4 reason '"account closed"'
	assert_field 5 code '"bad_outcome"'
	assert_field 6 code '"bad_outcome"'
	assert_field 7 code '"exit_9"'
	assertContains "$(cat "$work/results")" \
		'"commit":[{"name":"m","args":[1]},{"name":"n","args":[]}],"enqueue":[{"kind":"b"}]'
}

# ---- the process

test_command_environment_and_working_group() {
	mkdir "$handlers/bin"
	handler bin/show <<-'END'
		#!/bin/sh
		printf '<%s>' "$@"
		env | grep -E '^(TOKEN|URL|HOME|PATH|OUTBOX_KIND)=' | sort
	END
	manifest shows.ini <<-'END'
		[handler]
		command = bin/show --flag 'a b' ; and no more
		[env]
		require = TOKEN
		URL = https://example.org/?a=b;c
		PATH = /usr/bin:/bin
	END
	job 1 shows | TOKEN='s e' HOME=/h run
	assert_field 1 response_text \
		'"<--flag><a b>HOME=/h\nOUTBOX_KIND=shows\nPATH=/usr/bin:/bin\nTOKEN=s e\nURL=https://example.org/?a=b;c"'
	job 1 shows | run
	assertEquals 'without the token' 78 $?
}

test_limits() {
	handler files <<-'END'
		#!/bin/sh
		ulimit -n
	END
	handler memory <<-'END'
		#!/bin/sh
		head -c 200M /dev/zero | tail -c 200M >/dev/null 2>&1 || exit 9
	END
	handler cpu <<-'END'
		#!/bin/sh
		ulimit -c 0
		while :; do :; done
	END
	handler processes <<-'END'
		#!/bin/sh
		ulimit -u 2>/dev/null || grep 'Max processes' /proc/self/limits | tr -s ' ' | cut -d' ' -f3
	END
	printf '[handler]\nfiles = 12\n' | manifest files.ini
	printf '[handler]\nmemory = 64MiB\n' | manifest memory.ini
	printf '[handler]\ncpu = 1s\n' | manifest cpu.ini
	printf '[handler]\nprocesses = 50\n' | manifest processes.ini
	{
		job 1 files
		job 2 memory
		job 3 cpu
		job 4 processes
	} | run
	assert_field 1 response 12
	assert_field 2 code '"exit_9"'
	assert_field 3 code '"signal_24"'
	assert_field 4 response 50
}

test_user() {
	is_root || startSkipping
	handler whoami <<-'END'
		#!/bin/sh
		echo "$(id -un) $(id -G) $HOME $USER $LOGNAME"
		cat /root/.profile >/dev/null 2>&1 && echo 'reads what is of root'
		touch "$0" 2>/dev/null && echo 'writes to its program'
		:
	END
	printf '[handler]\nuser = nobody\n' | manifest whoami.ini
	isSkipping || job 1 whoami | HOME=/root run
	assert_field 1 response_text \
		"\"nobody $(id -G nobody) $(getent passwd nobody | cut -d: -f6) nobody nobody\""
}

# The slots are free, the kind's are not.
test_concurrency() {
	handler one.by.one <<-'END'
		#!/bin/sh
		mkdir "${0%/*}/../busy" || exit 9
		sleep 0.2
		rmdir "${0%/*}/../busy"
	END
	printf '[handler]\nconcurrency = 1\n' | manifest one.by.one.ini
	for id in 1 2 3 4; do
		job "$id" one.by.one
	done | run -j 4
	assertEquals 4 "$(grep -c '"outcome":"ok"' "$work/results")"
}

# ---- time (RUN-02)

test_the_group_is_killed_though_its_leader_went_politely() {
	handler polite <<-'END'
		#!/bin/sh
		trap 'exit 0' TERM
		sh -c 'trap "" TERM; echo $$ >"$1/member.new"; mv "$1/member.new" "$1/member.id"
			while :; do sleep 0.05; done' - "${0%/*}/.." >/dev/null 2>&1 3>&- &
		while :; do sleep 0.05; done
	END
	printf '[handler]\ntimeout = 1s\ngrace = 1s\n' | manifest polite.ini
	start=$(date +%s)
	job 1 polite | run
	assertTrue "took $(seconds_since "$start") s" "[ $(seconds_since "$start") -le 4 ]"
	assert_field 1 outcome '"retry"'
	assert_field 1 code '"timeout"'
	assertContains "$(field 1 error)" 'ran longer than 1000 ms'
	assertEquals 'settled once' 1 "$(grep -c '"type":"result"' "$work/results")"
	assertTrue 'the member lives' "file_is_gone '$work/member.id'"
}

test_a_handler_that_ignores_term_is_killed_after_the_grace() {
	handler stubborn <<-'END'
		#!/bin/sh
		trap '' TERM
		echo before >&2
		while :; do sleep 0.05; done
	END
	printf '[handler]\ntimeout = 500ms\ngrace = 1s\n' | manifest stubborn.ini
	job 1 stubborn | run
	assert_field 1 code '"timeout"'
	assert_field 1 error '"ran longer than 500 ms\nbefore"'
	assert_field 1 signal 9
	ms=$(field 1 duration_ms)
	assertTrue "ended after $ms ms" "[ $ms -ge 1500 -a $ms -le 3000 ]"
}

# The handler is given TERM first, and what it does then is its own affair; late is late.
test_an_ok_after_the_deadline_is_a_timeout() {
	handler tidy <<-'END'
		#!/bin/sh
		trap 'echo tidied; exit 0' TERM
		while :; do sleep 0.05; done
	END
	printf '[handler]\ntimeout = 300ms\n' | manifest tidy.ini
	job 1 tidy | run
	assert_field 1 code '"timeout"'
	assert_field 1 response_text '"tidied"'
	assert_field 1 exit_status 0
}

# ---- redaction

test_redaction() {
	printf '[redact]\npattern = sk_[a-z0-9]+\n' | manifest outbox.ini
	printf '[redact]\npattern = [0-9]{16}\npattern = [^ -~]+\n' | manifest card.ini
	handler card <<-'END'
		#!/bin/sh
		printf '{"key":"sk_4ec39","card":"4242424242424242"}'
		printf 'key sk_1a\nhä\377\n' >&2
		printf '{"outcome":"cancel","reason":"sk_zz is revoked"}' >&3
	END
	handler plain <<-'END'
		#!/bin/sh
		echo 'sk_abc 4242424242424242'
		printf '{"outcome":"retry","error":"bad sk_abc"}' >&3
	END
	handler nonsense <<-'END'
		#!/bin/sh
		printf '{"outcome":"retry","after":"sk_abc"}' >&3
	END
	{
		job 1 card
		job 2 plain
		job 3 nonsense
	} | run
	assertContains "$(cat "$work/results")" '"response":{"key":"[redacted]","card":"[redacted]"}'
	assert_field 1 error '"key [redacted]\nh[redacted]"'
	assert_field 1 reason '"[redacted] is revoked"'
	assert_field 2 response_text '"[redacted] 4242424242424242"'
	assert_field 2 error '"bad [redacted]"'
	assert_field 3 code '"bad_outcome"'
	assertNotContains 'a message of the runner quotes it' "$(cat "$work/results")" sk_abc
	assertNotContains "$(cat "$work/run.log")" sk_
}

# A match at either side of what is cut out is still found whole.
test_redaction_across_the_cut() {
	printf '[redact]\npattern = sk_[a-z]{20}\n' | manifest outbox.ini
	handler long <<-'END'
		#!/bin/sh
		for i in $(seq 500); do printf 'sk_abcdefghijklmnopqrst.'; done
	END
	job 1 long | run --max-response 1000 --max-error 1000
	assert_field 1 dropped_bytes $((500 * 24 - 936))
	assertNotContains "$(cat "$work/results")" sk_
	assertNotContains "$(cat "$work/results")" abcdefg
	response=$(field 1 response_text)
	assertContains "$response" 'dropped'
	assertTrue "${#response} characters" "[ ${#response} -le 1010 ]"
}

# ---- HUP

test_hup_takes_a_good_folder_and_keeps_the_handlers_of_what_runs() {
	handler k <<-'END'
		#!/bin/sh
		echo old
		touch "${0%/*}/../$OUTBOX_JOB_ID.started"
		while [ ! -e "${0%/*}/../word" ]; do sleep 0.05; done
		exit 7
	END
	printf '[exit]\n7 = fail old\n' | manifest k.ini
	noop goes
	start_run -j 1
	send 1 k
	assert_soon 10 test -e "$work/1.started"
	send 2 goes # waits
	printf '[exit]\n7 = fail new\n' | manifest k.ini
	noop comes
	rm "$handlers/goes"
	signal run HUP
	assert_soon 10 has_result 2
	assert_field 2 code '"no_handler"'
	assertEquals 2 "$(grep -c event=handlers_loaded "$work/run.log")"
	send 3 k
	touch "$work/word"
	assert_soon 10 has_result 3
	assert_field 1 code '"old"'
	assert_field 3 code '"new"'
	send 4 comes
	assert_soon 10 has_result 4
	assert_field 4 outcome '"ok"'
	end_run
	assertEquals status 0 $?
}

test_hup_with_a_bad_file_changes_nothing() {
	noop k
	start_run
	send 1 k
	assert_soon 10 has_result 1
	printf '[handler]\n\ntimeout = never\n' | manifest k.ini
	handler new <<-'END'
		#!/bin/sh
	END
	signal run HUP
	assert_soon 10 grep -q event=reload_failed "$work/run.log"
	assertContains "$(cat "$work/run.log")" 'k.ini:3'
	send 2 k
	send 3 new
	assert_soon 10 has_result 3
	assert_field 2 outcome '"ok"'
	assert_field 3 code '"no_handler"'
	printf '[handler]\ntimeout = 3s\n' | manifest k.ini
	signal run HUP
	assert_soon 10 sh -c "[ \$(grep -c event=handlers_loaded '$work/run.log') -eq 2 ]"
	send 4 new
	assert_soon 10 has_result 4
	assert_field 4 outcome '"ok"'
	end_run
	assertEquals status 0 $?
}

. shunit2
