#!/bin/sh
# No program leaks memory or descriptors, or touches what is not its own, while 1,000 jobs go
# through it: all five run under valgrind.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/../e2e/lib.sh"

programs='claim listen run settle sweep'

# Puts programs of the same names under valgrind in front of those of the build.
use_valgrind() {
	mkdir "$work/valgrind"
	for program in $programs; do
		cat >"$work/valgrind/outbox-$program" <<-SCRIPT
			#!/bin/sh
			exec valgrind --quiet --error-exitcode=99 --leak-check=full \
				--errors-for-leak-kinds=definite,possible --track-fds=yes \
				--log-file='$work/$program.valgrind' '$bin/outbox-$program' "\$@"
		SCRIPT
		chmod 755 "$work/valgrind/outbox-$program"
	done
	bin=$work/valgrind
}

# Descriptors that a program has opened itself and not closed.
left_open() { # PROGRAM
	grep -A1 'Open .*descriptor' "$work/$1.valgrind" | awk '
		/Open .*descriptor/ { line = $0; next }
		line && !/inherited from parent/ { print line }
		{ line = "" }'
}

test_a_thousand_jobs() {
	if ldd "$bin/outbox-run" | grep -q libasan; then
		echo 'skipped: an instrumented program does not run under valgrind, and looks for leaks itself'
		startSkipping
		return
	fi
	plain=$bin
	use_valgrind
	handler quick <<-'HANDLER'
		#!/bin/sh
		echo done
		[ "$OUTBOX_ATTEMPT" -gt 1 ] || [ $((OUTBOX_JOB_ID % 50)) -ne 0 ]
	HANDLER
	lease=60s start_pipeline -j 4 || return
	enqueue_numbers quick 1000
	assert_soon 240 jobs_are succeeded 1000
	stop_pipeline
	for program in $programs; do
		assertNull "descriptors of outbox-$program" "$(left_open "$program")"
		grep -q 'definitely lost\|Invalid\|uninitialised' "$work/$program.valgrind" &&
			fail "$(cat "$work/$program.valgrind")"
	done
	bin=$plain
}

if ! command -v valgrind >/dev/null; then
	echo 'valgrind is not installed' >&2
	exit 69
fi
. shunit2
