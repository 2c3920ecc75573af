#!lua flags=no-writes
-- Parcels of some buckets, with their states.
local found = {}
for i = 1, #ARGV, 2 do
  local id = ARGV[i + 1]
  local kept = redis.call('HMGET', KEYS[tonumber(ARGV[i])], 'b' .. id, 's' .. id)
  if kept[1] and kept[2] then
    found[#found + 1] = {tonumber(ARGV[i]), id, kept[1], kept[2]}
  end
end
return found
