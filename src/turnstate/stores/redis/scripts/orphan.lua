#!lua flags=allow-oom
-- Return whether a key belongs to a session that does not exist; rename the key if asked to.
local row, key, lost = unpack(KEYS)
if redis.call('EXISTS', row) == 1 or redis.call('EXISTS', key) == 0 then
  return 0
end
if ARGV[1] == 'repair' then
  redis.call('RENAME', key, lost)
end
return 1
