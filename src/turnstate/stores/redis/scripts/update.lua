#!lua
-- include session
local tenant, id, known = unpack(ARGV, 1, 3)
if call('EXISTS', ROW) == 0 then
  return {'absent'}
end
if known ~= '' and known ~= call('HGET', ROW, 'meta') then
  return {'changed'}
end
local function expires()
  local kept = call('HMGET', ROW, 'active', 'idle', 'ended')
  return expiry(tonumber(kept[1]) or 0, tonumber(kept[2]) or 0, kept[3])
end
local before = expires()
for i = 4, #ARGV, 2 do
  call('HSET', ROW, ARGV[i], ARGV[i + 1])
end
expect(tenant, id, before, expires())
return {'there', call('HGETALL', ROW)}
