#!/bin/sh
# How fast a backlog is run by handlers that do nothing, with its whole history recorded.
#
# For exec handlers also what this machine can do at most: the bare loop of spawn.c, which
# starts the same executables, as many at once, just before.
#
# environment: BENCH_EXEC_JOBS    jobs a run of exec handlers (default 10000)
#              BENCH_STREAM_JOBS  jobs a run of stream handlers (default 200000)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

slots=4

drain() { # FIGURE KIND COUNT RUNNERS
	fresh_database
	preload "$2" "$3"
	start_pipeline -j "$slots" --runners "$4"
	wait_until_done 300
	rate=$(drain_rate "$2" "$3")
	stop_pipeline
	emit "drain.$1" "$rate" jobs/s
}

drain_exec() { # NAME
	jobs=${BENCH_EXEC_JOBS:-10000}
	floor=$(spawn -j "$slots" "$((jobs / 2))" "$handlers/bench.$1")
	emit "drain.spawn_$1" "$floor" jobs/s
	drain "exec_$1" "bench.$1" "$jobs" 1
	emit "drain.exec_$1_of_spawn" "$(calculate "100 * $rate / $floor" %.1f)" %
	drain "exec_$1_2_runners" "bench.$1" "$jobs" 2
}

drain_stream() { # NAME FILE
	no_handlers
	stream_handler "bench.stream_$1" "$2"
	drain "stream_$1" "bench.stream_$1" "${BENCH_STREAM_JOBS:-200000}" 1
	drain "stream_$1_2_runners" "bench.stream_$1" "${BENCH_STREAM_JOBS:-200000}" 2
}

script_handler bench.sh <<'HANDLER'
#!/bin/sh
:
HANDLER
drain_exec sh
no_handlers
handler bench.c "$tools/noop"
drain_exec c

if ! has_streams; then
	note 'drain.stream_*: skipped, this outbox-run has no stream handlers'
	exit 0
fi
drain_stream c "$tools/stream"
drain_stream python "$root/tests/bench/stream.py"
if command -v node >/dev/null; then
	drain_stream node "$root/tests/bench/stream.js"
else
	note 'drain.stream_node: skipped, there is no node'
fi
