#!/bin/sh
# A steady load while somebody holds an old snapshot, so that no dead row can be taken away:
# "free" is the same load without that. For each interval and as a whole: jobs done a second,
# how long they waited from commit to start, how long a claim took (by the server's log), and
# the dead rows there are. Then a backlog is drained in the state that is left, snapshot held.
#
# environment: BENCH_PINNED_S     seconds with the snapshot (default 60)
#              BENCH_FREE_S       seconds without (default: as many)
#              BENCH_PINNED_RATE  jobs a second (default 500)
#              BENCH_EXEC_JOBS    jobs of the backlog (default 10000)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

rate=${BENCH_PINNED_RATE:-500}
backlog=${BENCH_EXEC_JOBS:-10000}
warm_up=2
server_log=$server_folder/server.log

export BENCH_STAMPS="$work/stamps" OUTBOX_PASS_ENV=BENCH_STAMPS
mkfifo "$BENCH_STAMPS"
exec 3<>"$BENCH_STAMPS"
if has_streams; then
	stream_handler bench.pinned "$tools/stream"
	stream_handler bench.backlog "$tools/stream"
else
	note 'pinned: with an exec handler, as this outbox-run has no stream handlers'
	handler bench.pinned "$tools/noop"
	handler bench.backlog "$tools/noop"
fi

# Of at most some 30000 claims; the producer's statements are none of them.
log_statements() {
	on_server "alter database $PGDATABASE set log_min_duration_sample = 0"
	on_server "alter database $PGDATABASE set log_statement_sample_rate =
		$(calculate "60 / ($seconds > 60 ? $seconds : 60)" %.4f)"
}

take_snapshot() {
	PGAPPNAME=bench-snapshot psql -qXAt -c 'begin isolation level repeatable read' \
		-c 'select count(*) from outbox.ready' -c 'select pg_sleep(1e6)' \
		>"$work/snapshot.log" 2>&1 &
	snapshot=$!
	until [ -s "$work/snapshot.log" ]; do
		sleep 0.1
	done
}

give_snapshot_back() {
	on_server "select pg_terminate_backend(pid) from pg_stat_activity
		where application_name = 'bench-snapshot'" >/dev/null
	wait "$snapshot" 2>/dev/null || :
}

watch_dead_rows() { # FIGURE
	passed=0
	sleep "$warm_up"
	while [ "$passed" -lt "$seconds" ]; do
		sleep "$interval"
		passed=$((passed + interval))
		emit "pinned.$1.${passed}s.dead_rows" "$(sql "select sum(n_dead_tup)
			from pg_stat_user_tables where schemaname = 'outbox'")" rows
	done
}

emit_throughput() { # FIGURE BEGIN
	sql "select format('pinned.$1.%ss.throughput %s jobs/s', ($interval * (n + 1))::integer,
			round(count(*) / $interval.0))
		from outbox.attempt, floor((extract(epoch from finished_at) - $2) / $interval) n
		where n >= 0 and n < $seconds / $interval group by n order by n"
	emit "pinned.$1.throughput" "$(sql "select round(count(*) / $seconds.0)
		from outbox.attempt where extract(epoch from finished_at) - $2
			between 0 and $seconds")" jobs/s
}

# Prints "END_OF_INTERVAL MILLISECONDS" of each claim in the log, whose lines begin with the
# Unix time and the program.
claims_in_log() { # BEGIN
	awk -v begin="$1" -v interval="$interval" -v seconds="$seconds" '
		$2 == "outbox-claim" && /duration: .* execute .*outbox\.claim\(/ &&
		$1 >= begin && $1 < begin + seconds {
			end = (int(($1 - begin) / interval) + 1) * interval
			sub(/.*duration: /, "")
			print end, $1
		}' "$server_log"
}

# stdin: "GROUP NUMBER", in order. Prints "GROUP QUANTILE".
quantile() { # PART
	awk -v part="$1" '
		function flush() {
			if (count == 0)
				return
			rank = int(part * count)
			print group, values[rank < part * count ? rank + 1 : rank]
			count = 0
		}
		$1 != group { flush(); group = $1 }
		{ values[++count] = $2 }
		END { flush() }'
}

emit_claims() { # FIGURE BEGIN
	claims_in_log "$2" >"$work/claims"
	sort -k 1,1n -k 2,2n "$work/claims" | quantile 0.99 |
		sed "s/\(.*\) \(.*\)/pinned.$1.\1s.claim_p99 \2 ms/"
	for part in 0.50 0.99; do
		awk '{ print "all", $2 }' "$work/claims" | sort -k 2,2n | quantile "$part" |
			sed "s/all \(.*\)/pinned.$1.claim_p${part#0.} \1 ms/"
	done
}

drain_backlog() {
	cat "$BENCH_STAMPS" >/dev/null &
	reader=$!
	preload bench.backlog "$backlog"
	wait_until_done 120
	drained=$(drain_rate bench.backlog "$backlog")
	kill "$reader"
	wait "$reader" 2>/dev/null || :
}

measure() { # free|held SECONDS
	seconds=$2
	interval=10
	[ "$seconds" -lt 300 ] || interval=60
	fresh_database
	log_statements
	[ "$1" = free ] || take_snapshot
	start_pipeline -j 4
	begin=$(($(date +%s) + warm_up))
	watch_dead_rows "$1" >"$work/dead_rows" &
	watcher=$!
	PGOPTIONS='-c log_min_duration_sample=-1' emit_figures "pinned.$1.commit_to_start_" \
		latency -r "$rate" -t "$seconds" -w "$warm_up" bench.pinned "$BENCH_STAMPS"
	wait "$watcher"
	emit_throughput "$1" "$begin"
	emit_claims "$1" "$begin"
	cat "$work/dead_rows"

	drain_backlog
	emit "pinned.$1.drain_after" "$drained" jobs/s
	stop_pipeline
	[ "$1" = free ] || give_snapshot_back
}

measure free "${BENCH_FREE_S:-${BENCH_PINNED_S:-60}}"
measure held "${BENCH_PINNED_S:-60}"
