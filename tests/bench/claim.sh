#!/bin/sh
# How fast jobs can be claimed and settled when no time is spent on handlers and sockets:
# what the tables and functions allow. Connections that do both in turn.
#
# environment: BENCH_CLAIM_JOBS  jobs a run (default 100000; a twentieth for batches of 1)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

jobs=${BENCH_CLAIM_JOBS:-100000}

measure() { # FIGURE BATCH CONNECTIONS JOBS
	fresh_database
	preload bench.claim "$4"
	emit_figures "claim.$1_" claim -b "$2" -j "$3" bench.claim
	left=$(sql 'select count(*) from outbox.ready')
	[ "$left" -eq 0 ] || fail "$left jobs were left"
}

measure batch_1 1 1 "$((jobs / 20))"
measure batch_100 100 1 "$jobs"
measure batch_500 500 1 "$jobs"
measure batch_500_2_connections 500 2 "$jobs"
