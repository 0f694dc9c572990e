#!/bin/sh
# The scripts that a person runs: deps, pg-temp, outbox-up, demo, and the example handlers.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
# shellcheck disable=SC2016 # scripts for other shells
. "$(dirname "$0")/lib.sh"

# ---- deps

# Puts commands in front of the real ones: dpkg-query that finds the packages named in
# $work/installed, apt-get that notes its arguments, id that says who is asking.
fake_packages() { # UID
	mkdir -p "$work/fake"
	cat >"$work/fake/dpkg-query" <<-END
		#!/bin/sh
		for package; do :; done
		grep -qx "\$package" $work/installed && printf installed
	END
	cat >"$work/fake/apt-get" <<-END
		#!/bin/sh
		echo "\$*" >>$work/apt-get.called
	END
	printf '#!/bin/sh\necho %s\n' "$1" >"$work/fake/id"
	printf '#!/bin/sh\nexit 1\n' >"$work/fake/sudo"
	chmod 755 "$work"/fake/*
	: >"$work/installed"
	: >"$work/apt-get.called"
}

deps() {
	PATH="$work/fake:$PATH" "$root/scripts/deps" "$@" >"$work/deps.out" 2>&1
}

test_deps_with_everything_there_does_nothing() {
	fake_packages 1000
	deps --dry-run test
	sed 's/.*--no-install-recommends //' "$work/deps.out" | tr ' ' '\n' >"$work/installed"
	deps test
	assertEquals 'exit status' 0 $?
	assertEquals 'output' '' "$(cat "$work/deps.out")"
	assertEquals 'calls of apt-get' '' "$(cat "$work/apt-get.called")"
}

test_deps_without_the_right_to_install_prints_the_command() {
	fake_packages 1000
	deps lint
	assertEquals 'exit status' 77 $?
	assertContains 'the command' "$(cat "$work/deps.out")" \
		'apt-get update && apt-get install -y --no-install-recommends clang-format cppcheck gcc'
	assertEquals 'calls of apt-get' '' "$(cat "$work/apt-get.called")"
}

test_deps_names_only_what_is_missing() {
	fake_packages 1000
	printf '%s\n' gcc make pkg-config libpq-dev libzmq3-dev >"$work/installed"
	deps --dry-run build
	assertEquals 'exit status' 0 $?
	assertEquals 'output' \
		'apt-get update && apt-get install -y --no-install-recommends libinih-dev libmsgpack-dev' \
		"$(cat "$work/deps.out")"
}

test_deps_refuses_unknown_sets() {
	fake_packages 1000
	deps everything
	assertEquals 'exit status' 64 $?
}

# ---- pg-temp

test_pg_temp_run() {
	pg-temp run sh -c 'echo "$PGHOST" >"$0"/host; psql -XAtc "show fsync" "$OUTBOX_TEST_DB"; exit 3' \
		"$work" >"$work/out"
	assertEquals 'exit status of the command' 3 $?
	assertEquals 'a query in the cluster' off "$(cat "$work/out")"
	assertFalse 'the cluster is removed' "test -e $(cat "$work/host")"
}

test_pg_temp_run_passes_a_signal_on() {
	pg-temp run sh -c 'trap "exit 7" TERM; echo "$PGHOST" >"$0/host.new"
		mv "$0/host.new" "$0/host"; while :; do sleep 0.1; done' "$work" &
	echo $! >"$work/pg-temp.pid"
	assert_soon 20 test -e "$work/host" || return
	stop pg-temp
	assertEquals 'exit status of the command' 7 $?
	assertFalse 'the cluster is removed' "test -e $(cat "$work/host")"
}

test_pg_temp_start_restart_stop() {
	mkdir "$work/parent"
	pg-temp start "$work/parent/cluster" 50555
	assertEquals 'start' 0 $?
	query='eval "$(pg-temp env "$0")"; psql -XAtc "$1"'
	assertEquals 'port' 50555 "$(sh -c "$query" "$work/parent/cluster" 'show port')"
	before=$(sh -c "$query" "$work/parent/cluster" 'select pg_postmaster_start_time()')
	pg-temp restart "$work/parent/cluster" -m immediate
	assertEquals 'restart' 0 $?
	assertNotEquals 'start time' "$before" \
		"$(sh -c "$query" "$work/parent/cluster" 'select pg_postmaster_start_time()')"
	pg-temp stop "$work/parent/cluster"
	assertEquals 'stop' 0 $?
	pg-temp stop "$work/parent/cluster"
	assertEquals 'stop of a stopped one' 0 $?
	pg-temp start "$work/parent" 2>"$work/error"
	assertEquals 'start in a folder with something else in it' 73 $?
}

# ---- outbox-up

# Programs that note each signal, and leave at the first one, or, when they are named in
# $work/stubborn, at the second.
stub_programs() {
	mkdir "$work/stubs"
	cat >"$work/stubs/outbox-run" <<-END
		#!/usr/bin/env python3
		import os, signal, sys
		name = os.path.basename(sys.argv[0])
		signals = {signal.SIGTERM, signal.SIGINT}
		signal.pthread_sigmask(signal.SIG_BLOCK, signals)
		os.write(int(sys.argv[sys.argv.index("--ready-fd") + 1]), b"\n")
		def note(word):
		    with open("$work/notes", "a") as notes:
		        notes.write(f"{name} {word}\n")
		note("db" if "OUTBOX_DB" in os.environ else "no-db")
		for turn in range(2 if os.path.exists(f"$work/stubborn-{name}") else 1):
		    signal.sigwait(signals)
		    note("signal")
		sys.exit(75 if turn else 0)
	END
	chmod 755 "$work/stubs/outbox-run"
	for name in claim settle sweep listen; do
		ln "$work/stubs/outbox-run" "$work/stubs/outbox-$name"
	done
}

start_up() { # [ARGUMENT ...]
	B=$work/stubs outbox-up --db 'dbname=x' --handlers "$handlers" "$@" 2>"$work/up.log" &
	echo $! >"$work/up.pid"
	assert_soon 20 grep -q 'outbox-up: ready' "$work/up.log"
}

notes() { # WORD: prints which programs have noted it, in order
	sed -n "s/ $1\$//p" "$work/notes" | tr '\n' ' '
}

test_outbox_up_stops_in_the_order_of_the_work() {
	stub_programs
	start_up --runners 2 || return
	assertEquals 'started in order, with the database only where it is needed' \
		'outbox-settle outbox-sweep outbox-claim outbox-listen ' "$(notes db)"
	assertEquals 'runners' 'outbox-run outbox-run ' "$(notes no-db)"
	stop up
	assertEquals 'exit status' 0 $?
	assertEquals 'stopped in order' \
		'outbox-run outbox-run outbox-claim outbox-settle outbox-sweep outbox-listen ' \
		"$(notes signal)"
}

test_outbox_up_leaves_at_the_second_signal() {
	stub_programs
	touch "$work/stubborn-outbox-claim"
	start_up || return
	signal up TERM
	assert_soon 10 grep -q 'outbox-claim signal' "$work/notes" || return
	stop up
	assertEquals 'exit status' 75 $?
	assertEquals 'signals' 'outbox-claim outbox-claim outbox-listen outbox-run outbox-settle outbox-sweep' \
		"$(notes signal | xargs -n 1 | sort | xargs)"
}

test_outbox_up_ends_when_a_program_dies() {
	stub_programs
	start_up || return
	kill -KILL "$(pgrep -P "$(pid_of up)" -f outbox-settle)"
	wait_for_end up
	assertEquals 'exit status' 137 $?
	assertEquals 'the others were stopped in order' \
		'outbox-run outbox-claim outbox-sweep outbox-listen ' "$(notes signal)"
	assertContains 'it says so' "$(cat "$work/up.log")" 'settle has ended with status 137'
}

test_outbox_up_with_a_wrong_command_line() {
	for arguments in '' '--handlers' '--handlers x --nonsense 1' '--handlers x --runners 0' \
		'--handlers x operand'; do
		# shellcheck disable=SC2086
		outbox-up $arguments 2>"$work/error"
		assertEquals "exit status with \"$arguments\"" 64 $?
	done
}

# ---- the real thing

test_install_and_uninstall() {
	make -C "$root" install DESTDIR="$work/dest" PREFIX=/usr B="$bin" >"$work/make.log" 2>&1
	assertEquals 'exit status of install' 0 $? || show_logs
	for file in bin/outbox bin/outbox-up share/man/man1/outbox-up.1 \
		share/outbox/handlers/example.hello share/outbox/supervisord/outbox.conf; do
		assertTrue "$file" "test -f $work/dest/usr/$file"
	done
	assertEquals 'version' "$(outbox-run --version)" \
		"$(B=/nonexistent "$work/dest/usr/bin/outbox-up" --version)"
	make -C "$root" uninstall DESTDIR="$work/dest" PREFIX=/usr B="$bin" >"$work/make.log" 2>&1
	assertEquals 'left behind' '' "$(find "$work/dest" -type f)"
}

test_outbox_up_runs_the_example_handlers() {
	outbox-up --handlers="$root/scripts/handlers" -j4 --runners 2 2>"$work/up.log" &
	echo $! >"$work/up.pid"
	enqueue example.hello '{"name":"world"}' >/dev/null
	enqueue example.report '{"text":"one two two"}' >/dev/null
	enqueue example.report '{"no":"text"}' >/dev/null
	assert_soon 30 none_is_open || return
	assert_sql 'replies' 'example.hello|succeeded|{"name":"world"}|
example.report|dead||exit_65
example.report|succeeded|{"one": 1, "two": 2}|' "
		select kind, outcome, coalesce(response -> 'payload', response -> 'words'), code
		from outbox.attempt order by kind, outcome::text"
	stop up
	assertEquals 'exit status' 0 $? || show_logs
	assert_ledger
}

test_the_sms_example() {
	sms() { # PAYLOAD: runs the handler as outbox-run does
		echo "{\"payload\":$1}" | TMPDIR=$work OUTBOX_IDEMPOTENCY_KEY=key-1 \
			"$root/scripts/handlers/example.sms" 3>"$work/outcome" 2>"$work/error"
	}
	assertEquals 'sent' '{"message":"key-1"}' "$(sms '{"to":"+491","text":"a"}')"
	sms '{"to":"+491","text":"a"}' >"$work/out"
	assertEquals 'sent twice under one key' 1 "$(find "$work/example.sms" -type f | wc -l)"
	sms '{"text":"a"}'
	assertEquals 'exit status without a number' 65 $?
	touch "$work/example.sms/busy"
	sms '{"to":"+491","text":"a"}'
	assertEquals 'exit status when busy' 0 $?
	assertContains 'outcome when busy' "$(cat "$work/outcome")" '"outcome":"retry"'
}

test_demo() {
	TMPDIR=$work env -u OUTBOX_TEST_DB demo >"$work/demo.out" 2>"$work/demo.log"
	assertEquals 'exit status' 0 $? || show_logs
	for expected in 'order.ship .*| succeeded | *3 | 1 failed (exit_75: the carrier' \
		'order.invoice .*| dead *| *1 | 1 dead (exit_65: no such tax number)' \
		'order.pay .*| succeeded | *1 | 1 succeeded' \
		' 54 |  *57 |  *56 |  *1 |  *54 |  *1 |  *0$'; do
		assertTrue "the demo shows: $expected" "grep -q '$expected' $work/demo.out"
	done
	assertEquals 'left behind' '' "$(find "$work" -mindepth 1 -name 'outbox-*-??????')"
}

. shunit2
