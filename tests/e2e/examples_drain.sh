#!/bin/sh
# Executes scripts/examples as their first lines say: three ways to test a handler.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

# In a copy that nobody else can write to, whatever the umask of the checkout was.
run_example() { # FILE COMMAND ...
	file=$1
	shift
	cp -r "$root/scripts/examples" "$work" && chmod -R go-w "$work/examples"
	(cd "$work/examples" && PYTHONDONTWRITEBYTECODE=1 pg-temp run "$@" "$file") \
		>"$work/example.log" 2>&1
	assertEquals "exit status of $file" 0 $? || cat "$work/example.log" >&2
	assertTrue "$file has less than 20 lines" "[ $(wc -l <"$work/examples/$file") -lt 20 ]"
}

# Whether a tool is there, which this command needs; says so when it is not.
have() { # COMMAND ...
	"$@" >/dev/null 2>&1 && return
	echo "skipped: cannot execute $*"
	startSkipping
	return 1
}

test_in_shunit2() {
	run_example ./flaky_test.sh
}

test_in_pytest() {
	if have pytest --version; then
		run_example test_flaky.py pytest -p no:cacheprovider
	fi
}

test_in_node() {
	if have node -e 'require("node:test")'; then
		run_example flaky.test.mjs node --test
	fi
}

# A test that cannot fail is none.
test_they_notice_a_broken_handler() {
	cp -r "$root/scripts/examples" "$work" && chmod -R go-w "$work/examples"
	printf '#!/bin/sh\nexit 0\n' >"$work/examples/handlers.d/flaky"
	(cd "$work/examples" && pg-temp run ./flaky_test.sh) >"$work/example.log" 2>&1
	assertNotEquals 'exit status' 0 $?
}

# shellcheck disable=SC1091
. shunit2
