#!lua flags=allow-oom
-- Remove some of the words of a removed session from the lists; return whether more are left.
-- include basics
local INDEX, GONE = unpack(KEYS)
local tenant, id, count = unpack(ARGV)
local user = call('HGET', GONE, 'user')
local lines = call('HSCAN', GONE, 0, 'COUNT', count)[2]
for i = 1, #lines, 2 do
  local branch, seq, stamp = string.match(lines[i + 1], '^(%d+) (%d+) %-?%d+ %-?%d+ %d+ %d+ (%d+) ')
  if stamp and stamp ~= '0' then
    local found = moment(stamp) .. ':' .. branch .. ':' .. seq .. ':' .. id
    call('ZREM', INDEX, 'w' .. tenant .. found)
    if user then
      call('ZREM', INDEX, 'v' .. tenant .. named(user) .. found)
    end
  end
  if lines[i] ~= 'user' then
    call('HDEL', GONE, lines[i])
  end
end
if call('HLEN', GONE) > (user and 1 or 0) then
  return 1
end
call('UNLINK', GONE)
return 0
