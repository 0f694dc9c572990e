#!/bin/sh
# How long after a producer's commit its job's handler starts, in an otherwise idle system:
# at 50 jobs/s, where everything has left the processor's caches since the job before, and a
# stream handler at 500 jobs/s too.
#
# environment: BENCH_LATENCY_S  seconds a run (default 20)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

export BENCH_STAMPS="$work/stamps" OUTBOX_PASS_ENV=BENCH_STAMPS
mkfifo "$BENCH_STAMPS"
# a FIFO that handlers can open even before and after the measuring
exec 3<>"$BENCH_STAMPS"

measure() { # NAME [RATE]
	fresh_database
	start_pipeline -j 4
	emit_figures "latency.$1${2:+_at_$2}_" latency -r "${2:-50}" -t "${BENCH_LATENCY_S:-20}" \
		"bench.$1" "$BENCH_STAMPS"
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
	measure stream_c 500
else
	note 'latency.stream_c: skipped, this outbox-run has no stream handlers'
fi
