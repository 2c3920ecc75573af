#!lua flags=no-writes
-- All fields of some hashes.
local found = {}
for i, key in ipairs(KEYS) do
  found[i] = redis.call('HGETALL', key)
end
return found
