#!lua
-- A fence only grows; a lease of a dead holder expires.
-- include session
local deed, holder, until_, now, fence, tenant, id = unpack(ARGV)
local kept = call('HMGET', ROW, 'fence', 'lease_until', 'holder', 'active', 'idle', 'ended')
if call('EXISTS', ROW) == 0 then
  return {'absent'}
end
if not tonumber(kept[1]) or not tonumber(kept[2]) then
  return {'damaged'}
end
if deed == 'acquire' then
  if tonumber(kept[2]) > tonumber(now) then
    return {'busy', kept[3] or '', int(tonumber(kept[2]))}
  end
  fence = int(kept[1] + 1)
  call('HSET', ROW, 'fence', fence, 'lease_until', until_, 'holder', holder)
  return {'held', fence}
end
if kept[1] ~= fence then
  return {'fenced'}
end
call('HSET', ROW, 'lease_until', until_)
if deed == 'release' then
  local active, idle = tonumber(kept[4]), tonumber(kept[5])
  if not active or not idle then
    return {'damaged'}
  end
  local used = math.max(active, math.min(tonumber(kept[2]), tonumber(now)))
  call('HSET', ROW, 'holder', '', 'active', int(used))
  move_activity(tenant, id, active, used)
  expect(tenant, id, expiry(active, idle, kept[6]), expiry(used, idle, kept[6]))
end
return {'held', fence}
