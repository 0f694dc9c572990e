#!/bin/sh
# Stream handlers in the whole pipeline.
# shellcheck disable=SC1091,SC2016,SC2034,SC2154 # lib.sh; $ in handlers

. "$(dirname "$0")/lib.sh"

stream() { # KIND: its script is on stdin
	handler "$1"
	printf '[handler]\nmode = stream\n' >"$handlers/$1.ini"
}

# Neither a backlog of streams nor one of several kinds of processes takes the other's room.
test_streams_and_processes_side_by_side() {
	mkdir "$work/on"
	for kind in slow.a slow.b slow.c; do
		handler "$kind" <<-END
			#!/bin/sh
			: >"$work/on/\$\$"
			ls "$work/on" | wc -l >>"$work/counts"
			sleep 0.3
			rm "$work/on/\$\$"
		END
	done
	stream quick <<-'END'
		#!/bin/sh
		exec sed -u -E 's/^\{"id":"([0-9]+)".*/{"id":"\1"}/'
	END
	for kind in slow.a slow.b slow.c; do enqueue_numbers "$kind" 6; done
	enqueue_numbers quick 1000
	start_pipeline -j 2 || return
	until none_is_open; do
		[ "$(sql "select count(*) from outbox.attempt where kind = 'quick'")" -lt 1000 ] ||
			touch "$work/quick.done"
		if [ -e "$work/quick.done" ] && [ ! -e "$work/slow.left" ]; then
			sql "select count(*) from outbox.jobs where kind like 'slow.%' and state = 'pending'" \
				>"$work/slow.left"
		fi
	done
	assertTrue 'the streams did not wait for the others' "[ $(cat "$work/slow.left") -gt 0 ]"
	assertEquals 'processes at once' 2 "$(sort -n "$work/counts" | tail -n 1)"
	assertEquals 'all succeeded at once' '1018|1018|1018' \
		"$(sql "select count(*), count(*) filter (where outcome = 'succeeded'),
			count(distinct job_id) from outbox.attempt")"
}

test_what_a_crash_takes_along_is_done_again() {
	stream fragile <<-'END'
		#!/bin/sh
		while read -r line; do
			id=${line#*\"id\":\"} id=${id%%\"*}
			case $line in
			*'"payload":{"n":3},"attempt":1,'*) echo 'on number 3' >&2; exit 9 ;;
			esac
			echo "{\"id\":\"$id\",\"response\":\"done\"}"
		done
	END
	enqueue_numbers fragile 20
	start_pipeline || return
	assert_soon 30 jobs_are succeeded 20
	assertEquals 'one attempt was lost' 'lost|handler_lost|9|the handler exited with status 9
on number 3' "$(sql "select outcome, code, exit_status, error from outbox.attempt
		where outcome <> 'succeeded'")"
	assertEquals 'responses are JSON' 20 "$(sql "select count(*) from outbox.attempt
		where response::jsonb = '\"done\"'")"
}

. shunit2
