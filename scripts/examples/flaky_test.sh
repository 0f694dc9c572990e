#!/bin/sh
# Tests a handler in shunit2, retries an hour apart and all: ../pg-temp run ./flaky_test.sh
cd "$(dirname "$0")" || exit

oneTimeSetUp() { outbox migrate >/dev/null; }

test_it_succeeds_in_the_end() {
	outbox enqueue flaky '{"fail_times": 2}' >/dev/null
	counts=$(outbox drain --skip-ahead --json)
	assertContains "$counts" '"succeeded":1,' && assertContains "$counts" '"attempts":3}'
}

test_it_gives_up() {
	outbox enqueue flaky '{"fail_times": 9}' >/dev/null
	assertContains "$(outbox drain --skip-ahead --json)" '"dead":1,'
}

# shellcheck disable=SC1091
. shunit2
