#!/bin/sh
# What the pipeline costs while there is nothing to do, and the memory that it takes then and
# under load.
#
# environment: BENCH_IDLE_S     seconds of watching (default 20)
#              BENCH_EXEC_JOBS  jobs of the load (default 10000)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

seconds=${BENCH_IDLE_S:-20}
handler bench.idle "$tools/noop"

queries() { # prints how many statements this database has been sent
	on_server "select coalesce(sum(calls), 0) from pg_stat_statements s
		join pg_database d on d.oid = s.dbid where d.datname = '$PGDATABASE'"
}

transactions() {
	on_server "select xact_commit + xact_rollback from pg_stat_database
		where datname = '$PGDATABASE'"
}

server_cpu_ns() { # of the processes that there are now
	# shellcheck disable=SC2046 # a list of numbers
	cpu_ns $(ps -o pid= --ppid "$(head -n 1 "$server_folder/data/postmaster.pid")")
}

emit_memory() { # VmRSS|VmHWM SUFFIX
	programs | sort -k 2 | while read -r pid name; do
		emit "memory.${name#outbox-}_$2" "$(memory_mb "$pid" "$1")" MB
	done
}

percent() { # BEFORE AFTER: nanoseconds
	calculate "100 * ($2 - $1) / ($seconds * 1e9)" %.3f
}

fresh_database
on_server "alter database $PGDATABASE set pg_stat_statements.track = top"
start_pipeline -j 4
sleep 5 # until the first greetings and looks are over

pids=$(programs | cut -d' ' -f1)
queries_before=$(queries)
transactions_before=$(transactions)
# shellcheck disable=SC2086 # a list of numbers
cpu_before=$(cpu_ns $pids)
server_before=$(server_cpu_ns)
sleep "$seconds"
# shellcheck disable=SC2086
cpu_after=$(cpu_ns $pids)
server_after=$(server_cpu_ns)
emit idle.queries "$(calculate "($(queries) - $queries_before) / $seconds")" queries/s
emit idle.transactions "$(calculate "($(transactions) - $transactions_before) / $seconds")" \
	transactions/s
emit idle.cpu "$(percent "$cpu_before" "$cpu_after")" %
emit idle.server_cpu "$(percent "$server_before" "$server_after")" %
emit_memory VmRSS idle

preload bench.idle "${BENCH_EXEC_JOBS:-10000}"
wait_until_done 120
emit_memory VmHWM loaded
