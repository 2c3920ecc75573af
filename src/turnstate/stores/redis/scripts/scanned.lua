#!lua flags=no-writes
-- A part of a hash, and where the next begins.
return redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
