-- Appends of one moment are one call with sets of rows (functions.sql); `append` has one argument less.
-- Processes that were started before have to be restarted.

DROP FUNCTION IF EXISTS turnstate.append;

-- While a table is small, the planner finds all indexes that have the columns equally good, and takes the one
-- that was made last; a connection keeps that plan while the table grows. So the index that finds a session by
-- its name has to be the last: with any other, every lookup would read all sessions of the tenant.

ALTER TABLE turnstate.session DROP CONSTRAINT session_by_name;
ALTER TABLE turnstate.session ADD CONSTRAINT session_by_name UNIQUE (tenant, id);
