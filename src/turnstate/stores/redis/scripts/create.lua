#!lua
-- include appending
local ask = cmsgpack.unpack(ARGV[1])
local RECORDS = 2

if call('EXISTS', ROW) == 1 then
  return {'there'}
end
local twice = taken(RECORDS, ask.records)
if twice then
  return {'id taken', twice}
end
if not summed(RECORDS, ask.records, 0) then
  return {'beyond'}
end

local born = int(ticks(1))
call('HSET', ROW, 'born', born, 'branches', 1, unpack(ask.fields))
call('HSET', BRANCHES, '1', '|0|' .. int(ask.created) .. '||0:create')
append(RECORDS, ask.records, ask.tenant, ask.user, ask.session, '1', 0, 0)
call('ZADD', INDEX, 0, 'd' .. ask.tenant .. moment(ask.created) .. ask.session)
if ask.user then
  call('ZADD', INDEX, 0, 'u' .. ask.tenant .. named(ask.user) .. moment(ask.created) .. ask.session)
end
move_activity(ask.tenant, ask.session, nil, ask.active)
expect(ask.tenant, ask.session, nil, ask.expires)
return {'made', born}
