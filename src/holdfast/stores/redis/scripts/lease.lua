#!lua
-- A fence only grows; the time lets go of the dead.
-- include session
local deed, holder, until_, now, fence = unpack(ARGV)
local kept = call('HMGET', ROW, 'fence', 'lease_until', 'holder')
if call('EXISTS', ROW) == 0 then
  return {'absent'}
end
if not tonumber(kept[1]) or not tonumber(kept[2]) then
  return {'damaged'}
end
if deed == 'acquire' then
  if tonumber(kept[2]) > tonumber(now) then
    return {'busy', kept[3] or ''}
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
  call('HSET', ROW, 'holder', '')
end
return {'held', fence}
