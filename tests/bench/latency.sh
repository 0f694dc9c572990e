#!/bin/sh
# How long after a producer's commit its job's handler starts, in an otherwise idle system.
#
# environment: BENCH_LATENCY_S  seconds a run, at 50 jobs/s (default 20)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

export BENCH_STAMPS="$work/stamps" OUTBOX_PASS_ENV=BENCH_STAMPS
mkfifo "$BENCH_STAMPS"
# a FIFO that handlers can open even before and after the measuring
exec 3<>"$BENCH_STAMPS"

measure() { # NAME
	fresh_database
	start_pipeline -j 4
	emit_figures "latency.$1_" latency -r 50 -t "${BENCH_LATENCY_S:-20}" "bench.$1" \
		"$BENCH_STAMPS"
	stop_pipeline
}

# It has no clock: the arrival of its line counts.
script_handler bench.exec_sh <<'HANDLER'
#!/bin/sh
echo "$OUTBOX_JOB_ID" >"$BENCH_STAMPS"
HANDLER
measure exec_sh
no_handlers
handler bench.exec_c "$tools/noop"
measure exec_c
no_handlers
if has_streams; then
	stream_handler bench.stream_c "$tools/stream"
	measure stream_c
else
	note 'latency.stream_c: skipped, this outbox-run has no stream handlers'
fi
