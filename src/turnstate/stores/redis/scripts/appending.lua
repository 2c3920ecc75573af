-- include session
local RECORD = 5  -- id, kind, tokens, checksum, body

-- Numbers that only grow within a bucket, and go with the time of the server: they order what is written.
local function ticks(count)
  local time = call('TIME')
  local first = math.max(time[1] * 1000000 + time[2], tonumber(call('GET', CLOCK) or '0') + 1)
  call('SET', CLOCK, int(first + count - 1))
  return first
end

-- The first id of the records that is taken, by the log or by another of them.
local function taken(at, count)
  local fresh = {}
  for i = at, at + (count - 1) * RECORD, RECORD do
    local id = ARGV[i]
    if fresh[id] or call('HEXISTS', IDS, id) == 1 then
      return id
    end
    fresh[id] = true
  end
end

-- The total after the records; nil if it would no longer be exact.
local function summed(at, count, total)
  for i = at, at + (count - 1) * RECORD, RECORD do
    total = total + tonumber(ARGV[i + 2])
    if math.abs(total) > 9007199254740991 then
      return nil
    end
  end
  return total
end

-- List an entry; its words are written by the first search that looks at it.
local function list_entry(tenant, user, id, spot, stamp)
  local found = moment(stamp) .. ':' .. spot .. ':' .. id
  call('ZADD', INDEX, 0, 'w' .. tenant .. found)
  if user then
    call('ZADD', INDEX, 0, 'v' .. tenant .. named(user) .. found)
  end
end

-- Write records after a position.
local function append(at, count, tenant, user, session, branch, seq, total)
  local stamp = count > 0 and ticks(count) - 1
  for i = at, at + (count - 1) * RECORD, RECORD do
    local id, kind, tokens, sum, body = unpack(ARGV, i, i + RECORD - 1)
    seq, total = seq + 1, total + tonumber(tokens)
    local spot = place(branch, seq)
    stamp = stamp + 1
    list_entry(tenant, user, session, spot, stamp)
    local meta = {branch, int(seq), tokens, int(total), sum, #body, int(stamp), #kind, kind .. id}
    call('HSET', ENTRIES, spot, table.concat(meta, ' '))
    call('HSET', BODIES, spot, body)
    call('HSET', IDS, id, spot)
    if kind ~= 'message' then
      call('ZADD', OWN, 0, 'k' .. named(kind) .. moment(branch) .. moment(seq))
    end
  end
end
