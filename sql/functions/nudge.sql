-- Waking claimers. A nudge is a hint: losing one only makes jobs later.
--
-- NOTIFY takes a lock of the whole database cluster at commit and holds it through the
-- flush, so that commits which carry one cannot share a flush: it is sent only while a
-- claimer of the lane sleeps. The handshake is an advisory lock per lane. A claimer that goes
-- to sleep holds it exclusively. A producer tries it shared, for its transaction: refused
-- means "asleep: notify", granted means "awake: say nothing". A claimer cannot have it while
-- a producer that was told "awake" is uncommitted, and scans once more when it has it. So no
-- wake-up is lost, and under load no commit pays.

-- sleep_key(lane): the second key of the advisory lock; the first is 7318349.
create or replace function outbox.sleep_key(lane text) returns integer
	language sql immutable parallel safe
	as 'select pg_catalog.hashtext(lane)';

-- nudge(kind, lane, notify, pooled): tells whoever serves the lane that work of this kind
-- was added (due now or later), and returns whether it had to. NOTIFY carries the kind and
-- nothing else, at most once a kind and transaction (the server merges equal ones), sent at
-- commit.
-- notify: false in a lane that only polls. pooled: a claimer of the lane is behind a
-- transaction pooler and cannot hold the lock: always notify.
create or replace function outbox.nudge(kind text, lane text, notify boolean, pooled boolean)
	returns boolean language plpgsql
as $$
begin
	if notify and (pooled
		or not pg_catalog.pg_try_advisory_xact_lock_shared(7318349, outbox.sleep_key(lane)))
	then
		perform pg_catalog.pg_notify('outbox', kind);
		return true;
	end if;
	return false;
end $$;

-- nudge(kind): the same, looking up the lane.
create or replace function outbox.nudge(kind text)
	returns boolean language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	rules record := outbox.kind_rules(kind);
begin
	return outbox.nudge(kind, rules.lane, rules.notify, rules.pooled);
end $$;

-- sleep_begin(lane): tries to fall asleep. asleep: this session has the lock and must look
-- once more; colleague: another claimer sleeps with it; busy: a producer that was told
-- "awake" has not committed yet: look again soon.
create or replace function outbox.sleep_begin(lane text)
	returns text language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	key constant integer := outbox.sleep_key(lane);
begin
	if pg_try_advisory_lock(7318349, key) then
		return 'asleep';
	end if;
	if pg_try_advisory_lock_shared(7318349, key) then
		perform pg_advisory_unlock_shared(7318349, key);
		return 'busy';
	end if;
	return 'colleague';
end $$;

-- sleep_end(lane): awake: producers need not notify any more.
create or replace function outbox.sleep_end(lane text)
	returns boolean language sql
	as 'select pg_catalog.pg_advisory_unlock(7318349, outbox.sleep_key(lane))';

-- nudge_others(kinds): for a claimer that has no room for more of these: other claimers of
-- their lane may have.
create or replace function outbox.nudge_others(kinds text[])
	returns void language sql
	set search_path = pg_catalog, pg_temp
	as $$ select pg_notify('outbox', k.kind) from unnest(kinds) k (kind) $$;

-- lane_is_pooled(lane): a claimer of the lane is behind a transaction pooler.
create or replace function outbox.lane_is_pooled(lane text)
	returns void language sql
	set search_path = pg_catalog, pg_temp
	as $$
	insert into outbox.lane as l (name, pooled) values (lane, true)
	on conflict (name) do update set pooled = true where not l.pooled
	$$;
