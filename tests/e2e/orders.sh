# shellcheck shell=sh disable=SC2154 # lib.sh sets what is not set here
# A load for tests that source lib.sh, too: each order that is kept owes one job, which has the
# order's number.

# Makes the table of orders, and $work/order.sql: a script for pgbench that places one.
prepare_orders() { # KIND
	sql 'create table orders (id bigint primary key generated always as identity)'
	cat >"$work/order.sql" <<-END
		begin;
		insert into orders default values returning id \gset
		select status from outbox.enqueue('$1', format('{"n":%s}', :id));
		commit;
	END
}

# Two producers; the options of pgbench say how many orders, or for how long. wait_for_end load
# gives its exit status.
start_orders() { # OPTION ...
	pgbench -n -c 2 "$@" -f "$work/order.sql" >"$work/pgbench.log" 2>&1 &
	echo $! >"$work/load.pid"
}

# Two producers that go on whatever happens to the server.
start_stubborn_orders() { # RATE: orders a second
	(
		until [ -e "$work/enough" ]; do
			pgbench -n -c 2 -R "$1" -t $(($1 / 4)) -f "$work/order.sql" || sleep 0.1
		done
	) >"$work/pgbench.log" 2>&1 &
	echo $! >"$work/load.pid"
}

stop_stubborn_orders() {
	touch "$work/enough"
	wait_for_end load
}

orders_reach() { # COUNT; not while the server is away
	[ "$(sql 'select count(*) from orders' 2>/dev/null || echo 0)" -ge "$1" ]
}

# What a noting_handler of the kind has run is what was kept.
assert_orders_were_run() { # KIND
	sql 'select id from orders order by id' >"$work/orders.kept"
	numbers_run "$1" >"$work/orders.run"
	assertTrue 'every order that was kept was run, and no other' \
		"cmp $work/orders.kept $work/orders.run"
}

# Each at least once, and at no cost to a job, whatever was lost on the way.
assert_orders_survived() { # KIND
	assert_orders_were_run "$1"
	assert_sql 'every job has succeeded, once' 't|t' "
		select count(*) = (select count(*) from orders), count(*) = count(distinct job_id)
		from outbox.attempt where outcome = 'succeeded'"
	assert_sql 'nothing was charged to the jobs' '' "
		select outcome, code, count(*) from outbox.attempt
		where outcome not in ('succeeded', 'lost', 'released') group by 1, 2"
}
