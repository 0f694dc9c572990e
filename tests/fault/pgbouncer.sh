# shellcheck shell=sh disable=SC2154 # lib.sh sets what is not set here
# A pooler for tests that source lib.sh, too: its socket is in $work/pooler.

PATH=$PATH:/usr/sbin # where Debian has it
server_host=$PGHOST

start_pooler() { # POOL_MODE POOL_SIZE
	mkdir -p "$work/pooler"
	cat >"$work/pooler/ini" <<-END
		[databases]
		* = host=$server_host port=$PGPORT user=$PGUSER pool_size=$2
		[pgbouncer]
		unix_socket_dir = $work/pooler
		listen_addr =
		listen_port = $PGPORT
		auth_type = any
		pool_mode = $1
		server_reset_query =
		ignore_startup_parameters = options,extra_float_digits
	END
	set -- pgbouncer "$work/pooler/ini"
	if [ "$(id -u)" -eq 0 ]; then
		chown postgres "$work/pooler"
		chmod 711 "$work"
		set -- setpriv --reuid=postgres --regid=postgres --clear-groups "$@"
	fi
	"$@" >"$work/pooler.log" 2>&1 &
	echo $! >"$work/pooler.pid"
	assert_soon 10 test -S "$work/pooler/.s.PGSQL.$PGPORT"
}
