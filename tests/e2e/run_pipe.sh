# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# run_lib.sh for tests that talk to the runner through pipes.

. "$(dirname "$0")/run_lib.sh"
logs='results run.log'

# ---- jobs in, results out

hello='{"type":"hello","role":"pipe","id":"worker-1","lease_ms":60000,"db_now_us":1700000000000000}'

job() { # ID KIND [PAYLOAD [MEMBERS]]: a line for outbox-frame
	printf '{"type":"job","claim_id":7,"claim_index":%d,"claim_size":9,"found":"poll","job_id":%d,"attempt":1,"kind":"%s","payload":%s,"max_attempts":8,"idempotency_key":"key-%d","created_at_us":1700000000000000,"trigger":"automatic"%s}\n' \
		"$1" "$1" "$2" "${3:-null}" "$1" "${4:+,$4}"
}

run() { # [OPTION ...]: runs the jobs on stdin to their end; the status is the runner's
	outbox-frame encode >"$work/jobs"
	"$bin/outbox-run" --handlers "$handlers" --jobs - --results - "$@" \
		<"$work/jobs" >"$work/frames" 2>"$work/run.log"
	status=$?
	outbox-frame decode <"$work/frames" >"$work/results"
	return $status
}

# The same with an input that stays open on descriptor 7.
start_run() { # [OPTION ...]
	mkfifo "$work/jobs" "$work/frames"
	outbox-frame decode <"$work/frames" >"$work/results" &
	"${runner:-$bin/outbox-run}" --handlers "$handlers" --jobs - --results - "$@" \
		<"$work/jobs" >"$work/frames" 2>"$work/run.log" &
	echo $! >"$work/run.pid"
	exec 7>"$work/jobs"
	send_line "$hello"
	# what a test does to the folder from now on happens to a runner that has read it
	assert_soon 10 grep -qs event=ready "$work/run.log"
}

send_line() { # LINE
	printf '%s\n' "$1" | outbox-frame encode >&7
}

send() { # ID KIND [PAYLOAD [MEMBERS]]
	job "$@" | outbox-frame encode >&7
}

end_run() { # ends the input; the status is the runner's
	exec 7>&-
	wait_for_end run
}

field() { # ID MEMBER: of the result; strings with their quotes
	grep "\"job_id\":$1," "$work/results" |
		sed -E 's/.*"'"$2"'":("([^"\\]|\\.)*"|[^",}]*).*/\1/'
}

assert_field() { # ID MEMBER VALUE
	assertEquals "job $1: $2" "$3" "$(field "$1" "$2")" || fail_with_logs "in these results:"
}

has_result() { # ID
	grep -q "\"job_id\":$1," "$work/results"
}

is_gone() { # PID
	! kill -0 "$1" 2>/dev/null || has_ended "$1"
}

file_is_gone() { # FILE holding a pid
	is_gone "$(cat "$1")"
}

seconds_since() { # a time of `date +%s`
	echo $(($(date +%s) - $1))
}
