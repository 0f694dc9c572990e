#!/bin/sh
# What one job's whole life writes: WAL, and rows that vacuum has to take away. A payload of
# 200 bytes, one job a transaction, every attempt recorded.
#
# After a checkpoint the first change to each page logs all of it; so there are two rounds,
# and the second, in the pages of the first, shows the steady state.
#
# environment: BENCH_WAL_JOBS  jobs a round (default 10000)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

clients=4
jobs=$((${BENCH_WAL_JOBS:-10000} / clients * clients))
handler bench.wal "$tools/noop"
pad=$(printf '%0186d' 0)
echo "select status from outbox.enqueue('bench.wal', '{\"padding\":\"$pad\"}');" \
	>"$work/enqueue.sql"

wal() { # prints bytes so far, and full pages logged
	on_server "select pg_current_wal_insert_lsn() - '0/0', wal_fpi from pg_stat_wal"
}

dead() { # prints the dead rows made so far; each update and each delete leaves one
	sql "select coalesce(sum(n_tup_upd + n_tup_del), 0) from pg_stat_user_tables
		where schemaname = 'outbox'"
}

difference() { # BEFORE AFTER: prints "BYTES PAGES", a job
	echo "$1|$2" | awk -F '|' -v jobs="$jobs" \
		'{ printf "%.0f %.3f\n", ($3 - $1) / jobs, ($4 - $2) / jobs }'
}

# A process that ends leaves its statistics; so they are read when the pipeline is gone.
round() { # PREFIX
	dead_before=$(dead)
	start=$(wal)
	pgbench -n -M prepared -c "$clients" -j 2 -t "$((jobs / clients))" \
		-f "$work/enqueue.sql" >"$work/pgbench.log" 2>&1 || fail 'could not enqueue'
	enqueued=$(wal)
	start_pipeline -j 4
	wait_until_done 300
	stop_pipeline
	end=$(wal)
	emit "wal.$1enqueue" "$(difference "$start" "$enqueued" | cut -d' ' -f1)" bytes/job
	emit "wal.$1run" "$(difference "$enqueued" "$end" | cut -d' ' -f1)" bytes/job
	emit "wal.$1total" "$(difference "$start" "$end" | cut -d' ' -f1)" bytes/job
	emit "wal.$1full_pages" "$(difference "$start" "$end" | cut -d' ' -f2)" pages/job
	dead_rows=$(calculate "($(dead) - $dead_before) / $jobs" %.3f)
}

fresh_database
round after_checkpoint_
round ''
emit wal.dead_rows "$dead_rows" rows/job
