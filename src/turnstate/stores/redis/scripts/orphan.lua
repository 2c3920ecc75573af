#!lua flags=allow-oom
-- Whether a key belongs to a session that is not there; it is put under another name if asked for.
local row, key, lost = unpack(KEYS)
if redis.call('EXISTS', row) == 1 or redis.call('EXISTS', key) == 0 then
  return 0
end
if ARGV[1] == 'repair' then
  redis.call('RENAME', key, lost)
end
return 1
