# shellcheck shell=sh
# The server that is measured, for outbox and for its peers alike: one of its own, durable,
# with 512 MB of buffers, removed at the end. Expects $root, the checkout.

# shellcheck disable=SC2154 # root
start_server() {
	server=$(mktemp -d "${BENCH_DIR:-/tmp}/outbox-bench-XXXXXX")
	trap remove_server EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	"$root/scripts/pg-temp" --durable start "$server"
	eval "$("$root/scripts/pg-temp" env "$server")"
	# %n %a: Unix time and program, for what the groups read in the log
	psql -qX -v ON_ERROR_STOP=1 <<-'END'
		alter system set shared_buffers = '512MB';
		alter system set max_wal_size = '4GB';
		alter system set log_line_prefix = '%n %a ';
		alter system set log_parameter_max_length = 0;
		alter system set shared_preload_libraries = 'pg_stat_statements';
		alter system set log_checkpoints = off;
	END
	"$root/scripts/pg-temp" restart "$server"
	psql -qX -v ON_ERROR_STOP=1 >/dev/null <<-'END'
		create extension pg_stat_statements;
		alter system set pg_stat_statements.track = 'none';
		select pg_reload_conf();
	END
}

remove_server() {
	trap '' INT TERM HUP
	"$root/scripts/pg-temp" stop "$server" >/dev/null 2>&1 || :
	rm -rf "$server"
}

describe_machine() {
	cat <<-END
		# $(date -u +%Y-%m-%d), version $(git -C "$root" describe --always --dirty 2>/dev/null)
		# machine: $(nproc) cores, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(awk '/^MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo) GiB, Linux $(uname -r)
		# server: PostgreSQL $(psql -qXAtc 'show server_version'), fsync and synchronous_commit on, shared_buffers 512MB, max_wal_size 4GB
	END
}

# stdin: lines "name value unit" of several runs. Prints each name once, in the order of its
# first line, with the median; a note says from where to where several values go.
medians() {
	awk '
		/^#/ { if (!seen[$0]++) print; next }
		{
			if (!($1 in count)) {
				order[++names] = $1
				unit[$1] = $3
			}
			values[$1, ++count[$1]] = $2
		}
		END {
			for (i = 1; i <= names; i++) {
				name = order[i]
				n = count[name]
				sort_values(name, n)
				median = n % 2 ? values[name, (n + 1) / 2] \
					: (values[name, n / 2] + values[name, n / 2 + 1]) / 2
				print name, median, unit[name]
				if (n > 1)
					print "#   from", values[name, 1], "to", values[name, n]
			}
		}
		function sort_values(name, n,   i, j, value) {
			for (i = 2; i <= n; i++) {
				value = values[name, i]
				for (j = i - 1; j > 0 && values[name, j] + 0 > value + 0; j--)
					values[name, j + 1] = values[name, j]
				values[name, j + 1] = value
			}
		}'
}
