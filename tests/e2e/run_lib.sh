# shellcheck shell=sh disable=SC1091,SC2034,SC2154
# lib.sh for tests of the runner alone: without a PostgreSQL. Logs are $logs.

export OUTBOX_TEST_DB=none
. "$(dirname "$0")/lib.sh"

oneTimeSetUp() { :; }

setUp() {
	work=$(mktemp -d /tmp/outbox-test-XXXXXX)
	handlers=$work/handlers.d
	mkdir -m 755 "$handlers"
	chmod 755 "$work" # one test runs as somebody else
	export OUTBOX_RUNTIME_DIR="$work/run"
	logs_shown=
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
