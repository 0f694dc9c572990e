#!/bin/sh
# TERM during a deploy (DEP-01): to all programs at once, in whatever order it reaches them, and
# to each of them alone. Handlers finish, what was not started goes back, and nothing is charged.
# shellcheck disable=SC1091,SC2154 # lib.sh sets what is not set here
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/orders.sh"

assert_nothing_was_charged() { # MESSAGE
	assert_sql "$1: nothing was charged" '' "select outcome, code, count(*) from outbox.attempt
		where outcome not in ('succeeded', 'released') group by 1, 2"
}

test_term_to_all_in_any_order() {
	noting_handler slow 'sleep 0.3'
	enqueue_numbers slow 60
	for order in 'run claim settle sweep listen' 'settle claim run sweep listen' \
		'claim settle listen sweep run' 'listen sweep settle run claim'; do
		before=$(runs_of slow)
		start_pipeline -j 4 || return
		assert_soon 20 has_run_more "$before" || return
		for instance in $order; do
			signal "$instance" TERM
		done
		for instance in $order; do
			wait_for_end "$instance"
			assertEquals "$order: exit status of $instance" 0 $? || show_logs
		done
		assert_sql "$order: nothing stays in flight" 0 'select count(*) from outbox.claim'
		assert_sql "$order: what was run is settled" "$(runs_of slow)" \
			"select count(*) from outbox.attempt where outcome = 'succeeded'"
		assert_nothing_was_charged "$order"
	done
	assertTrue 'there is still something to do' "[ $(runs_of slow) -lt 60 ]"
	start_pipeline -j 8 || return
	assert_soon 30 none_is_open || return
	assertEquals 'runs' 60 "$(runs_of slow)"
	assert_ledger
	stop_pipeline
}

has_run_more() { # COUNT
	[ "$(runs_of slow)" -gt "$1" ]
}

# The others go on meanwhile. A settler waits for runners, which are not stopped here.
test_term_to_one_under_load() {
	noting_handler work 'sleep 0.01'
	prepare_orders work
	start settle outbox-settle --grace 1s && start sweep outbox-sweep &&
		start run outbox-run --handlers "$handlers" -j 4 &&
		start claim outbox-claim --grace 1s && start listen outbox-listen || return
	start_stubborn_orders 100
	orders=100
	for instance in run claim settle sweep listen; do
		assert_soon 20 orders_reach "$orders" || return
		stop "$instance"
		assertEquals "exit status of $instance" 0 $? || show_logs
		case $instance in
		run) start run outbox-run --handlers "$handlers" -j 4 || return ;;
		settle) start settle outbox-settle --grace 1s || return ;;
		claim) start claim outbox-claim --grace 1s || return ;;
		*) start "$instance" "outbox-$instance" || return ;;
		esac
		orders=$((orders + 100))
	done
	stop_stubborn_orders
	assert_soon 30 none_is_open || return
	assert_orders_were_run work
	assert_nothing_was_charged 'at the end'
	assert_sql 'every job has succeeded, once' t "
		select count(*) = count(distinct job_id) and count(*) = (select count(*) from orders)
		from outbox.attempt where outcome = 'succeeded'"
	assert_ledger
	stop_pipeline
}

. shunit2
