-- The same check of a kind without a counted repetition, for which each insert made a machine of
-- a hundred states. Not valid: nothing is read again, for all that is there has passed it.
alter table outbox.job drop constraint job_kind_check,
	add constraint job_kind_check check (kind ~ '^[a-z0-9][a-z0-9._-]*$' and length(kind) <= 100)
	not valid;

-- What claims did with these, due_shares does.
drop function if exists outbox.due_parts(text, text[], integer[], integer, integer[], timestamptz[]);
drop function if exists outbox.probes(text, text[], integer[], integer, integer[], timestamptz[]);
