#!lua flags=allow-oom
-- Remove a session from everything. Its words are in lists of the bucket, one for each entry: they match nothing
-- any more, and are removed in steps, so that other clients do not have to wait.
-- include session
-- include parcel
local tenant, id = ARGV[1], ARGV[2]
if call('EXISTS', ROW) == 0 then
  return {'absent'}
end
local created, user, active, idle, ended =
  unpack(call('HMGET', ROW, 'created', 'user', 'active', 'idle', 'ended'))
if tonumber(created) then
  call('ZREM', INDEX, 'd' .. tenant .. moment(created) .. id)
  if user then
    call('ZREM', INDEX, 'u' .. tenant .. named(user) .. moment(created) .. id)
  end
end
move_activity(tenant, id, tonumber(active), nil)
expect(tenant, id, expiry(tonumber(active) or 0, tonumber(idle) or 0, ended), nil)

local list = 's' .. tenant .. named(id)
local sent = call('ZRANGEBYLEX', INDEX, '[' .. list, '(' .. list .. '\255')
for _, member in ipairs(sent) do
  local name = string.sub(member, #list + 1)
  local packed = call('HGET', PARCELS, 'b' .. name)
  if packed then
    discard(INDEX, PARCELS, name, packed)
  else
    call('ZREM', INDEX, member)
  end
end

local branches = 0
for _, name in ipairs(call('HKEYS', BRANCHES)) do
  if string.sub(name, 1, 1) ~= 't' then
    branches = branches + 1
  end
end
local counts = {'gone', call('HLEN', ENTRIES), branches, call('HLEN', ASKED), #sent}

-- Remnants of an earlier removal under this name, which was interrupted, are removed the same way.
for _, line in ipairs(call('HVALS', GONE)) do
  call('HSET', ENTRIES, 'before ' .. line, line)
end
if call('EXISTS', ENTRIES) == 1 then
  call('RENAME', ENTRIES, GONE)
  if user then
    call('HSET', GONE, 'user', user)
  end
end
call('UNLINK', ROW, BRANCHES, BODIES, IDS, ASKED, WORDS, OWN, ASIDE)
return counts
