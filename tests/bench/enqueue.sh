#!/bin/sh
# What an enqueue adds to a producer's transaction, in microseconds of one connection's time:
# an application transaction that inserts an order, against the same with
#
#   insert   one plain insert more
#   rows     the rows of a job inserted by hand, unchecked: what the tables alone cost
#   job      outbox.enqueue, of a kind that a runner has announced, as it usually is
#   unknown  the same of a kind that nobody has announced
#   dedupe   outbox.enqueue with a dedupe key
#
# No pipeline runs.
#
# environment: BENCH_ENQUEUE_S  seconds a measurement (default 5)
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"

payload='{"id":1000000,"kind":"welcome_email","to":"user.name@example.com","ref":"0b9f6a52-7c1e-4d7a-9a55-2f8f3f0c1d11"}'

transaction() { # NAME [STATEMENT]
	printf '%s\n' 'begin;' "insert into orders (goods) values ('two chairs');" \
		"${2:-}" 'commit;' >"$work/$1.sql"
}

fresh_database
announce bench.enqueue
sql 'create table orders (id bigint primary key generated always as identity, goods text,
		made_at timestamptz default now());
	create table order_lines (id bigint primary key generated always as identity, line text)'
transaction alone
transaction insert "insert into order_lines (line) values ('$payload');"
transaction rows "with job as (
		insert into outbox.job (id, created_at, run_at, priority, kind, payload)
		values (outbox.new_id(), now(), now(), 2, 'bench.enqueue', '$payload') returning id)
	insert into outbox.ready (kind, priority, due_at, job_id, attempt)
	select 'bench.enqueue', 2, now(), id, 0 from job;"
transaction job "select * from outbox.enqueue('bench.enqueue', '$payload');"
transaction unknown "select * from outbox.enqueue('bench.unknown', '$payload');"
transaction dedupe "select * from outbox.enqueue('bench.enqueue', '$payload',
	dedupe_key => 'order:' || currval('orders_id_seq'));"

for clients in 1 8; do
	alone=$(pgbench_rate "$clients" "$work/alone.sql")
	emit "enqueue.without_$clients" "$alone" transactions/s
	for what in insert rows job unknown dedupe; do
		with=$(pgbench_rate "$clients" "$work/$what.sql")
		emit "enqueue.${what}_$clients" \
			"$(calculate "$clients * (1e6 / $with - 1e6 / $alone)" %.1f)" us
	done
done
