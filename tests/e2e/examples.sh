#!/bin/sh
# Executes the examples of outbox(5), as they stand on the page.
# shellcheck disable=SC1091,SC2154,SC2016 # lib.sh; $$ in SQL

. "$(dirname "$0")/lib.sh"

page=$root/cmd/outbox/outbox.5

# A comment in front of each example names its file and mode:
#   .\" file: email.welcome 755
take_examples() {
	awk -v folder="$handlers" '
		/^\.\\" file: / { file = folder "/" $3; mode = $4; next }
		file != "" && /^\.Bd / { inside = 1; printf "" >file; next }
		inside && /^\.Ed/ {
			close(file)
			if (system("chmod " mode " " file) != 0)
				exit 1
			file = ""; inside = 0; next
		}
		inside { gsub(/\\e/, "\\"); gsub(/\\&/, ""); print >file }' "$page"
	cc -o "$handlers/order.count" "$handlers/order.count.c" && chmod 755 "$handlers/order.count"
}

# Unlike other runners of the tests this one has PG* variables, for the one handler that
# requires them.
start_examples() {
	take_examples
	sql 'create table users (id text primary key, welcomed boolean not null default false);
		create table bookings (job_id bigint primary key);
		insert into users values ($$u1$$)'
	start settle outbox-settle
	start claim outbox-claim
	start listen outbox-listen
	: >"$work/run.ready"
	"$bin/outbox-run" --handlers "$handlers" -j 4 --ready-fd 9 9>"$work/run.ready" \
		</dev/null 2>>"$work/run.log" &
	echo $! >"$work/run.pid"
	assert_soon 20 test -s "$work/run.ready"
	assert_soon 10 grep -q event=registered "$work/run.log"
}

last_attempt() { # ID COLUMNS
	sql "select $2 from outbox.attempt where job_id = $1 order by attempt desc limit 1"
}

test_the_folder_is_accepted() {
	take_examples
	assertEquals 'kind           mode  lane     version  timeout  command
email.tips     exec  default  0        30s      email.tips
email.welcome  exec  default  2        10s      email.welcome
order.book     exec  default  0        30s      order.book
order.count    exec  default  0        30s      order.count' \
		"$("$bin/outbox-run" --handlers "$handlers" --check 2>/dev/null)"
}

test_the_examples_do_what_the_page_says() {
	start_examples
	welcome=$(enqueue email.welcome '{"user_id":"u1"}' ", tenant_key => 'org1'")
	assert_soon 20 jobs_are succeeded 2
	assert_sql 'the commit statement' t 'select welcomed from users'
	assert_sql 'the response' '"welcomed u1"' "
		select response from outbox.attempt where job_id = $welcome"
	tips=$(sql "select id from outbox.job where kind = 'email.tips'")
	assertEquals 'the tenant of the follow-up' '{"sent_for": "org1", "key"' \
		"$(last_attempt "$tips" response | sed 's/: "[^"]*"}$//')"

	assert_sql 'the schema' invalid_payload "select status from outbox.enqueue('email.welcome', '{}')"
	busy=$(enqueue email.welcome '{"user_id":"u2@busy.example"}')
	lonely=$(enqueue email.tips '{}')
	count=$(enqueue order.count '{"n":1}')
	book=$(enqueue order.book '{"n":1}')
	assert_soon 20 jobs_are succeeded 4
	assertEquals 'rate limited' 'failed|rate_limited|t' \
		"$(last_attempt "$busy" "outcome, code, next_at > finished_at + interval '59 s'")"
	assertEquals 'no tenant' 'cancelled|no_tenant|tips are for tenants' \
		"$(last_attempt "$lonely" 'outcome, code, reason')"
	assert_sql 'twice' 'failed exit_75 not the first time, succeeded' "
		select string_agg(concat_ws(' ', outcome, code, error), ', ' order by attempt)
		from outbox.attempt where job_id = $count"
	assert_sql 'counted' t "
		select (response ->> 'bytes')::integer > 100 from outbox.attempt
		where job_id = $count and attempt = 2"
	assert_sql 'booked' "$book" 'select job_id from bookings'
	assert_ledger
	stop_pipeline
}

. shunit2
