#!lua
-- One change of one session: the checks first and in their order, and nothing is written before the last.
-- include appending
local ask, digest = cmsgpack.unpack(ARGV[1]), ARGV[2]
local RECORDS = 3  -- where the records begin among the arguments
local PARCELS_FROM = RECORDS + ask.records * RECORD
local PARCEL = 3  -- id, due, what stays the same

local function read_head()
  local kept = call('HMGET', ROW, 'born', 'epoch', 'branch', 'seq', 'total', 'version', 'fence',
    'lease_until', 'active', 'idle', 'branches', 'ended', 'user', 'created')
  for i = 1, 11 do
    if not tonumber(kept[i]) then
      return nil
    end
  end
  return {
    born = kept[1], epoch = tonumber(kept[2]), branch = kept[3], seq = tonumber(kept[4]), total = tonumber(kept[5]),
    version = tonumber(kept[6]), fence = tonumber(kept[7]), lease_until = tonumber(kept[8]),
    active = tonumber(kept[9]), idle = tonumber(kept[10]), branches = tonumber(kept[11]),
    ended = kept[12], user = kept[13], created = tonumber(kept[14]),
  }
end

local head = read_head()
if not head then
  return {call('EXISTS', ROW) == 1 and 'damaged' or 'absent'}
end

-- Whether the entry that was last acknowledged to the caller still exists: a server that lost its newest
-- writes cannot know that, but the caller does.
local witnessed = ask.known and ask.known[1] == head.born
local gone = witnessed and call('HGET', IDS, ask.known[2]) ~= ask.known[3] and '1' or '0'

-- The caller finds out why the change was refused: it runs the same checks on this row.
local function refused(known)
  return {'refused', call('HGETALL', ROW), known or ''}
end

-- Creation and epoch.
if ask.created and ask.created ~= head.created then
  return refused()
end
if ask.epoch and ask.epoch ~= head.epoch or head.ended and not ask.next_epoch then
  return refused()
end

-- Key. Of two clocks the one that is behind decides how old it is: if the caller's or the server's own jumped
-- ahead, no key is forgotten.
local expired
local latest, known
if ask.key then
  local seconds, micros = unpack(call('TIME'))
  latest = math.min(ask.now, seconds * 1000 + math.floor(micros / 1000))
  known = call('HGET', ASKED, ask.key)
end
if known then
  local created, epoch, version, branch, first, last, first_digest =
    string.match(known, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if not created then
    return {'damaged'}
  end
  if latest - created < ask.key_life then
    if digest ~= first_digest then
      return refused(known)
    end
    return {'repeated', epoch, version, branch, first, last, head.born, gone}
  end
  expired = created
end

-- Fence: the next epoch wins over a lease on this one.
if not ask.next_epoch and (not ask.fence and head.lease_until > ask.now or ask.fence and ask.fence ~= head.fence) then
  return refused()
end

-- Expected version and head.
if ask.version and ask.version ~= head.version then
  return refused()
end
if ask.head and (ask.head[1] ~= tonumber(head.branch) or ask.head[2] ~= head.seq) then
  return refused()
end

-- Where the records go: after the head, after the end of another branch, or onto a new one.
local function total_at(branch, seq)
  while branch ~= '' and seq > 0 do
    local parent, fork = origin(branch)
    if not parent then
      return nil
    end
    if seq > fork then
      local meta = call('HGET', ENTRIES, place(branch, seq)) or ''
      return tonumber(string.match(meta, '^%d+ %d+ %-?%d+ (%-?%d+) '))
    end
    branch = parent
  end
  return 0
end

local branch, seq, total = head.branch, head.seq, head.total
local parent = ask.fork and ask.fork.parent and int(ask.fork.parent) or ''
local selected = ask.select and int(ask.select)
if ask.fork then
  branch, seq, total = int(head.branches + 1), 0, 0
  if parent ~= '' then
    if not origin(parent) then
      return {'no branch', parent}
    end
    local last, sum = tip(head, parent)
    if not last then
      return {'damaged'}
    end
    seq = ask.fork.seq
    if seq < 0 or seq > last then
      return {'no entry', parent, int(seq)}
    end
    total = seq == last and sum or total_at(parent, seq)
  end
elseif selected and selected ~= head.branch then
  if not origin(selected) then
    return {'no branch', selected}
  end
  branch = selected
  seq, total = tip(head, selected)
end
if not seq or not total then
  return {'damaged'}
end

-- What is written: ids that are free, sums that are exact, parcels of this session.
local twice = taken(RECORDS, ask.records)
if twice then
  return {'id taken', twice}
end
local sum = summed(RECORDS, ask.records, total)
if not sum then
  return {'beyond'}
end
for i = PARCELS_FROM, #ARGV, PARCEL do
  if ARGV[i + 1] == '' then
    return {'foreign parcel', ARGV[i]}
  end
end

-- From here on nothing can fail.
if branch ~= head.branch then
  call('HSET', BRANCHES, 't' .. head.branch, int(head.seq) .. ' ' .. int(head.total))
end
if ask.fork then
  local made = {parent, int(seq), int(ask.now), head.branch, named(ask.fork.name) .. ask.fork.operation}
  call('HSET', BRANCHES, branch, table.concat(made, '|'))
  call('HSET', ROW, 'branches', branch)
end
append(RECORDS, ask.records, ask.tenant, head.user, ask.session, branch, seq, total)

local was_due = expiry(head.active, head.idle, head.ended)
local active = ask.activity and math.max(head.active, ask.now) or head.active
local epoch = int(head.epoch + (ask.next_epoch and 1 or 0))
local version = int(head.version + (ask.moves and 1 or 0))
local first, last = int(seq + 1), int(seq + ask.records)
call('HSET', ROW, 'epoch', epoch, 'branch', branch, 'seq', last, 'total', int(sum), 'version', version,
  'active', int(active))
if ask['end'] then
  head.ended = true
  call('HSET', ROW, 'ended', int(ask.now))
  if ask['end'] ~= '' then
    call('HSET', ROW, 'reason', ask['end'])
  end
elseif ask.next_epoch then
  head.ended = false
  call('HDEL', ROW, 'ended')
  call('HSET', ROW, 'reason', '', 'fence', int(head.fence + 1), 'lease_until', '0', 'holder', '')
end
move_activity(ask.tenant, ask.session, head.active, active)
expect(ask.tenant, ask.session, was_due, expiry(active, head.idle, head.ended))

for i = PARCELS_FROM, #ARGV, PARCEL do
  local name, due, packed = unpack(ARGV, i, i + 2)
  if call('HSETNX', PARCELS, 'b' .. name, packed) == 1 then
    call('HSET', PARCELS, 's' .. name, due .. ' 0 0 ')
    call('ZADD', INDEX, 0, 'o' .. moment(due) .. name, 0, 'p' .. ask.tenant .. moment(due) .. name,
      0, 's' .. ask.tenant .. named(ask.session) .. name)
  end
end

-- Each change that has a key does its share of forgetting those that are too old.
if ask.key then
  if expired then
    call('ZREM', OWN, 'a' .. moment(expired) .. ask.key)
  end
  local receipt = {int(ask.now), epoch, version, branch, first, last, digest}
  call('HSET', ASKED, ask.key, table.concat(receipt, ' '))
  call('ZADD', OWN, 0, 'a' .. moment(ask.now) .. ask.key)
  local over = '(a' .. moment(math.max(0, latest - ask.key_life + 1))
  for _, old in ipairs(call('ZRANGEBYLEX', OWN, '[a', over, 'LIMIT', 0, 10)) do
    call('ZREM', OWN, old)
    call('HDEL', ASKED, string.sub(old, 18))
  end
end
return {'done', epoch, version, branch, first, last, head.born, gone}
