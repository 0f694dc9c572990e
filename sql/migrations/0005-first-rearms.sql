-- The few jobs whose first attempt somebody has asked for: settling looks for them each time.
create index rearm_of_first on outbox.rearm (job_id) where from_attempt = 0;
