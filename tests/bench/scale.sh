#!/bin/sh
# How long a claim of 100 jobs takes when the tables are large: behind jobs that are due, in
# front of jobs that are delayed (in a higher priority, so that they stand in its way), and
# beside the history of finished ones.
#
# environment: BENCH_SCALE  1 for a million due, a million delayed, five million finished
#                           (default 0.1)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

kind=bench.scale
batch=100
batches=200
measured_jobs=$((batch * batches))
million=$(calculate "1e6 * ${BENCH_SCALE:-0.1}" %d)

measure() { # FIGURE
	sql 'vacuum analyze'
	on_server checkpoint
	emit_figures "scale.$1_" claim -b "$batch" -n "$batches" "$kind"
}

fresh_database
preload "$kind" "$measured_jobs"
measure empty

fresh_database
preload "$kind" "$((million + measured_jobs))"
measure due

fresh_database
preload "$kind" "$million" ", delays => array[interval '1 day'], priorities => array[1]"
preload "$kind" "$measured_jobs"
measure delayed

fresh_database
preload "$kind" "$((5 * million))"
claim -b 500 -j 2 "$kind" >/dev/null
preload "$kind" "$measured_jobs"
measure finished
note "scale: $million due, $million delayed, $((5 * million)) finished"
