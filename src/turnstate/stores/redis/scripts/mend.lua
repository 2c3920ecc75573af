#!lua flags=allow-oom
-- Repair something, unless the session or its head has changed since it was checked.
local born, head = ARGV[1], ARGV[2]
if born ~= '' then
  local kept = redis.call('HMGET', KEYS[1], 'born', 'branch', 'seq')
  if kept[1] ~= born or head ~= '' and head ~= tostring(kept[2]) .. ':' .. tostring(kept[3]) then
    return 0
  end
end
local i = 3
while i <= #ARGV do
  local count = tonumber(ARGV[i + 1])
  redis.call(ARGV[i], KEYS[tonumber(ARGV[i + 2])], unpack(ARGV, i + 3, i + 2 + count))
  i = i + 3 + count
end
return 1
