#!/bin/sh
# Payloads that are hard to carry, from the producer's transaction to the handler and back: text
# that jsonb cannot hold (ENQ-01), and deep nesting (ENQ-03).
# shellcheck disable=SC1091,SC2016,SC2154 # lib.sh sets what is not set here; $ in handlers
. "$(dirname "$0")/lib.sh"

# Keeps what it gets in $work/JOB, and gives it back as its response.
echoing_handler() { # KIND
	handler "$1" <<-END
		#!/bin/sh
		tee "$work/\$OUTBOX_JOB_ID"
	END
}

# What of a handler's document is the payload.
payload_of() { # JOB
	sed -E 's/^\{"id":"[0-9]+","kind":"[^"]*","payload":(.*),"attempt":[0-9]+,"max_attempts":.*/\1/' "$work/$1"
}

# ---- ENQ-01

hard='{"a":"x\u0000y"}
{"k\u0000":1}
{"a":[{"b":"\u0000"}]}
{"a":"\ud800"}
{"a":"\udc59"}
{"a":"x\\u0000y"}
{"a":"\ud83d\ude00"}'

# Writes lines "JOB PAYLOAD" to $work/hard. One transaction, with the business's own row.
enqueue_hard_ones() {
	{
		echo 'begin; insert into orders values (1);'
		echo "$hard" | while read -r payload; do
			printf "select id, '%s' from outbox.enqueue('hard', '%s', metadata => '%s');\n" \
				"$payload" "$payload" "$payload"
		done
		echo 'commit;'
	} | psql -qXAt -F ' ' -v ON_ERROR_STOP=1 >"$work/hard"
}

looks_well() { # COMMAND OF outbox, for people and for programs
	for json in '' --json; do
		[ "$1$json" != metrics--json ] || continue
		# shellcheck disable=SC2086 # words
		outbox $1 $json >"$work/out" 2>"$work/err"
		assertEquals "outbox $1 $json: $(cat "$work/err")" 0 $?
	done
}

test_text_that_jsonb_cannot_hold() {
	echoing_handler hard
	sql 'create table orders (id bigint)'
	enqueue_hard_ones || fail 'they were refused'
	start_pipeline || return
	assert_soon 20 jobs_are succeeded 7 || return
	while read -r id payload; do
		assertEquals 'on stdin, byte for byte' "$payload" "$(payload_of "$id")"
		assertTrue 'its metadata, too' "grep -qF '\"metadata\":$payload,' $work/$id"
		looks_well "show $id" && looks_well "history $id" && looks_well "explain $id"
		outbox show --json "$id" >"$work/out"
		assertTrue "shown as it is: $payload" "grep -qF '\"payload\":$payload,' $work/out"
		outbox history --json "$id" >"$work/out"
		assertTrue "and so is the response" "grep -qF '\"payload\":$payload,' $work/out"
		assert_sql 'details' 1 "select count(*) from outbox.job_details($id)"
		outbox replay "$id" >"$work/out"
		assertEquals 'replayed' "$id rearmed" "$(cat "$work/out")"
	done <"$work/hard"
	looks_well 'list --kind hard' && looks_well 'count --kind hard' && looks_well stats &&
		looks_well metrics
	assert_soon 20 jobs_are succeeded 7
	assert_sql 'twice each' '7|14' 'select count(distinct job_id), count(*) from outbox.attempt'
	assert_ledger
	stop_pipeline
}

# The same as documents of a stream, and as follow-ups of another job.
test_text_that_jsonb_cannot_hold_in_streams_and_follow_ups() {
	handler hard <<-END
		#!/bin/sh
		while read -r line; do
			printf '%s\n' "\$line" >>"$work/lines"
			id=\${line#*\"id\":\"}
			echo "{\"id\":\"\${id%%\"*}\"}"
		done
	END
	printf '[handler]\nmode = stream\n' >"$handlers/hard.ini"
	handler parent <<-END
		#!/bin/sh
		payload=\$(sed -E 's/.*"payload":(.*),"attempt":.*/\1/')
		printf '{"outcome":"ok","enqueue":[{"kind":"hard","payload":%s}]}' "\$payload" >&3
	END
	echo "$hard" | while read -r payload; do
		enqueue parent "$payload" >/dev/null
	done
	start_pipeline || return
	assert_soon 20 jobs_are succeeded 14 || return
	assertEquals 'lines' "$(echo "$hard" | sort)" "$(sed -E 's/.*"payload":(.*),"attempt":.*/\1/' "$work/lines" | sort)"
	assert_ledger
	stop_pipeline
}

# ---- ENQ-03

nested() { # LEVELS
	python3 -c "print('[' * $1 + ']' * $1)"
}

test_deep_nesting() {
	echoing_handler deep
	noting_handler plain
	handler digs <<-'END'
		#!/bin/sh
		python3 -c "print('[' * 20000 + ']' * 20000)"
	END
	handler digs.outcome <<-'END'
		#!/bin/sh
		python3 -c "print('{\"outcome\":\"ok\",\"commit\":' + '[' * 6000 + ']' * 6000 + '}')" >&3
	END
	printf '[retry]\nmax_attempts = 1\n' >"$handlers/digs.outcome.ini"
	start_pipeline -j 2 || return
	n=0
	for levels in 31 32 33 64 500; do
		n=$((n + 1))
		id=$(enqueue deep "$(nested $levels)")
		enqueue plain "{\"n\":$n}" >/dev/null
		assert_soon 10 jobs_are succeeded $((n * 2)) || return
		assertEquals "$levels levels, on stdin" "$(nested $levels)" "$(payload_of "$id")"
		assert_sql "$levels levels, in the response" "$(nested $levels)" \
			"select response -> 'payload' from outbox.attempt where job_id = $id"
	done
	for levels in 501 1000 6000 20000; do
		sql "select outbox.enqueue('deep', '$(nested $levels)')" >"$work/out" 2>"$work/err"
		assertNotEquals "$levels levels" 0 $?
		assertContains "$(cat "$work/err")" 'payload nesting is deeper than the limit of 500 levels'
	done

	# what a handler says may be as deep, and costs neither the runner nor the settler
	id=$(enqueue digs 1)
	bad=$(enqueue digs.outcome 1)
	enqueue plain '{"n":9}' >/dev/null
	assert_soon 20 jobs_are succeeded 12 || return
	assert_sql 'kept as text' "$(nested 20000)" "select response #>> '{}' from outbox.attempt where job_id = $id"
	assert_soon 20 jobs_are dead 1
	assert_sql 'a bad document' bad_outcome "select code from outbox.attempt where job_id = $bad"
	for instance in settle run claim; do
		assertFalse "$instance has ended" "has_ended $(pid_of $instance)"
	done
	assert_ledger
	stop_pipeline
}

. shunit2
