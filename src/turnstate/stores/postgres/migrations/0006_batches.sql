-- Appends of one moment are one call with sets of rows (functions.sql); `append` has one argument less.
-- Processes that were started before have to be restarted.

DROP FUNCTION IF EXISTS turnstate.append;
