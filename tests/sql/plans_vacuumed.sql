-- plans.sql with the statistics that vacuum leaves of tables which it has found empty.
\set vacuumed on
\ir plans.sql
