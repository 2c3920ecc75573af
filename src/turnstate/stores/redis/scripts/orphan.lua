#!lua flags=no-writes
-- Whether a key belongs to a session that does not exist.
local row, key = unpack(KEYS)
return redis.call('EXISTS', row) == 0 and redis.call('EXISTS', key) == 1 and 1 or 0
