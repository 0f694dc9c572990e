# shellcheck shell=sh
# Helpers of the benchmarks. A group of figures is a script tests/bench/NAME.sh that starts
# with
#
#   . "$(dirname "$0")/lib.sh"
#
# and prints one line "NAME.FIGURE value unit" a figure, and notes that start with "# ". It is
# run by scripts/bench, which sets B (absolute) and PG*, for a server made by pg-temp.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
tools=$B/tests/bench
export PATH="$B:$tools:$root/scripts:$PATH"
server_database=$PGDATABASE
# shellcheck disable=SC2034 # for the groups
server_folder=$PGHOST # with the server's data and log
pipeline=             # of the process of outbox-up, while it runs
measured=0            # databases made

work=$(mktemp -d /tmp/outbox-bench-XXXXXX)
handlers=$work/handlers.d
mkdir -m 755 "$handlers"
chmod 755 "$work"
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

clean_up() {
	trap '' INT TERM HUP
	stop_pipeline
	[ "$measured" -eq 0 ] || on_server "drop database if exists $PGDATABASE with (force)"
	rm -rf "$work"
}

# ---- what is printed

emit() { # NAME VALUE UNIT
	printf '%s %s %s\n' "$1" "$2" "$3"
}

note() { # TEXT
	printf '# %s\n' "$*"
}

fail() { # TEXT: a figure that was measured wrongly is none
	echo "bench: $*" >&2
	[ ! -s "$work/pipeline.log" ] || tail -n 20 "$work/pipeline.log" >&2
	exit 1
}

# Runs a tool that prints figures, and puts PREFIX before their names.
emit_figures() { # PREFIX COMMAND [ARGUMENT ...]
	prefix=$1
	shift
	"$@" >"$work/figures" || fail "$1 ended with status $?"
	sed "s/^/$prefix/" "$work/figures"
}

# Prints the result of an arithmetic expression, of which awk takes the numbers as they are.
calculate() { # EXPRESSION [FORMAT]
	awk "BEGIN { printf \"${2:-%.2f}\n\", $1 }"
}

# ---- the database

on_server() { # SQL: in the database that the server came with
	PGOPTIONS='-c client_min_messages=warning' psql -qXAt -v ON_ERROR_STOP=1 \
		-d "$server_database" -c "$1"
}

sql() { # SQL: prints the result, columns separated by |
	psql -qXAt -v ON_ERROR_STOP=1 -c "$1"
}

# A database with the schema in it takes the place of the one before. What earlier figures
# have left to be written is written before this one is measured.
fresh_database() {
	[ "$measured" -eq 0 ] || on_server "drop database $PGDATABASE with (force)"
	measured=$((measured + 1))
	PGDATABASE=bench_$$_$measured
	on_server "create database $PGDATABASE"
	outbox migrate >"$work/migrate.log" 2>&1 || {
		cat "$work/migrate.log" >&2
		fail 'could not make the schema'
	}
	on_server 'checkpoint'
}

# About 110 bytes of JSON, the same as for the peers.
payload_sql="'{\"id\":' || n || ',\"kind\":\"welcome_email\",\"to\":\"user.name@example.com\",\"ref\":\"0b9f6a52-7c1e-4d7a-9a55-2f8f3f0c1d11\"}'"

# As a runner does that has a handler for the kind.
announce() { # KIND
	sql "select count(*) from outbox.worker_hello('bench', 'bench', 1, '0', 'default', 60000,
		'[{\"kind\":\"$1\"}]', '{}', '{}')" >/dev/null
}

# In transactions of 1000 jobs.
preload() { # KIND COUNT [, NAME => VALUE ...]
	sql "do \$\$ begin
		for done in 0 .. $2 - 1 by 1000 loop
			perform from outbox.enqueue_many(array['$1'], array(select $payload_sql
				from generate_series(done + 1, least(done + 1000, $2)) n) ${3:-});
			commit;
		end loop;
	end \$\$"
	sql 'analyze'
}

# Prints how many transactions a second so many clients get through; the statements are
# prepared, and the client is C.
pgbench_rate() { # CLIENTS SCRIPT [OPTION OF pgbench ...]
	clients=$1
	script=$2
	shift 2
	pgbench -n -M prepared -c "$clients" -j 2 -T "${BENCH_ENQUEUE_S:-5}" -f "$script" "$@" \
		>"$work/pgbench.log" 2>&1 || {
		cat "$work/pgbench.log" >&2
		fail 'pgbench failed'
	}
	awk '/^tps = / { printf "%.0f\n", $3 }' "$work/pgbench.log"
}

# ---- the pipeline

no_handlers() {
	rm -f "$handlers"/*
}

# Puts an executable into the handler folder.
handler() { # KIND FILE
	install -m 755 "$2" "$handlers/$1"
}

# Lines on stdin become the handler.
script_handler() { # KIND
	cat >"$handlers/$1"
	chmod 755 "$handlers/$1"
}

# A stream handler is named by its manifest.
stream_handler() { # KIND FILE
	install -m 755 "$2" "$handlers/$1.handler"
	cat >"$handlers/$1.ini" <<-END
		[handler]
		kind = $1
		command = ./$1.handler
		mode = stream
	END
}

# Whether this outbox-run knows stream handlers: one job through a pipe tells.
has_streams() {
	stream_handler bench.probe "$tools/stream"
	echo '{"type":"job","claim_id":1,"claim_index":1,"claim_size":1,"job_id":1,"attempt":1,"kind":"bench.probe","payload":{},"max_attempts":8}' |
		outbox-frame encode |
		OUTBOX_PASS_ENV='' outbox-run --handlers "$handlers" --jobs - --results - 2>/dev/null |
		outbox-frame decode | grep -q '"outcome":"ok"' && found=0 || found=1
	rm -f "$handlers"/bench.probe*
	return "$found"
}

start_pipeline() { # [OPTION OF outbox-up ...]
	: >"$work/pipeline.log"
	outbox-up --handlers "$handlers" "$@" 2>>"$work/pipeline.log" &
	pipeline=$!
	tries=0
	until grep -q 'outbox-up: ready' "$work/pipeline.log"; do
		kill -0 "$pipeline" 2>/dev/null || fail 'the pipeline did not start'
		tries=$((tries + 1))
		[ "$tries" -lt 200 ] || fail 'the pipeline did not start in time'
		sleep 0.1
	done
}

stop_pipeline() {
	[ -n "$pipeline" ] || return 0
	kill -TERM "$pipeline" 2>/dev/null || :
	wait "$pipeline" || echo "bench: the pipeline ended with status $?" >&2
	pipeline=
}

# Rarely, for the question has its cost; nothing is measured by when the answer comes.
wait_until_done() { # SECONDS
	deadline=$(($(date +%s) + $1))
	until [ "$(sql 'select not exists (select from outbox.ready where due_at <= now())
			and not exists (select from outbox.claim)')" = t ]; do
		[ "$(date +%s)" -lt "$deadline" ] || fail 'the jobs were not done in time'
		sleep 1
	done
}

# Prints how many jobs a second succeeded, from the first start to the last end.
drain_rate() { # KIND COUNT
	rate=$(sql "select case when count(*) = $2 then round(count(*)
			/ extract(epoch from max(finished_at) - min(started_at))) end
		from outbox.attempt where kind = '$1' and outcome = 'succeeded'
			and started_at is not null")
	[ -n "$rate" ] || fail "not all $2 jobs of kind $1 succeeded"
	echo "$rate"
}

# ---- programs, from /proc

# Prints "PID NAME" of each program of the pipeline; the runner's guard is one of its own.
programs() {
	ps -e -o ppid= -o pid= -o comm= | awk -v top="$pipeline" '
		{ parent[$2] = $1; name[$2] = $3 }
		END {
			for (pid in name) {
				if (name[pid] !~ /^outbox-/ || name[pid] == "outbox-up")
					continue
				if (parent[pid] == top || parent[parent[pid]] == top)
					print pid, name[pid]
			}
		}'
}

# Prints how long these processes have been running on a processor, in nanoseconds.
cpu_ns() { # PID ...
	for pid in "$@"; do
		cat "/proc/$pid/task"/*/schedstat
	done | awk '{ ns += $1 } END { printf "%.0f\n", ns }'
}

memory_mb() { # PID VmRSS|VmHWM
	awk -v field="$2:" '$1 == field { printf "%.1f\n", $2 / 1024 }' "/proc/$1/status"
}
