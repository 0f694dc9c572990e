-- nudge(kind, lane, notify, pooled): tells whoever serves the lane that work of this kind
-- was added (due now or later). NOTIFY carries the kind and nothing else, at most once a
-- kind and transaction (the server merges equal ones), sent at commit. The nudge is a hint:
-- losing it only makes jobs later.
-- notify: false in a lane that only polls. pooled: a claimer of the lane is behind a
-- transaction pooler and cannot hold the sleep lock.
create or replace function outbox.nudge(kind text, lane text, notify boolean, pooled boolean)
	returns void language plpgsql
as $$
begin
	if notify then
		perform pg_notify('outbox', kind);
	end if;
end $$;

-- nudge(kind): the same, looking up the lane.
create or replace function outbox.nudge(kind text)
	returns void language plpgsql
	set search_path = pg_catalog, pg_temp
as $$
declare
	rules record := outbox.kind_rules(kind);
begin
	perform outbox.nudge(kind, rules.lane, rules.notify, rules.pooled);
end $$;
