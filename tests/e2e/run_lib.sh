# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# lib.sh for tests without a PostgreSQL, most of them of the runner alone. Logs are $logs.

export OUTBOX_TEST_DB=none
. "$(dirname "$0")/lib.sh"

oneTimeSetUp() { :; }

setUp() {
	make_work
}

# Also kills what handlers named in files NAME.started.
tearDown() {
	[ -n "$work" ] || return 0
	exec 7>&- 8>&-
	for file in "$work"/*.pid "$work"/*.started; do
		[ -e "$file" ] && kill -KILL "$(cat "$file")" 2>/dev/null
	done
	rm -rf "$work"
	work=
}

oneTimeTearDown() { :; }

fail_with_logs() { # MESSAGE
	fail "$1"
	[ -n "$logs_shown" ] && return
	logs_shown=yes
	for log in $logs; do
		echo "--- $log"
		tail -n 30 "$work/$log"
	done
}
