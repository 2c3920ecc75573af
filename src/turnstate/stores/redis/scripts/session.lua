-- include basics
-- The keys of a session and of its bucket: every script of a session is given all of them, so that the
-- server knows before it begins whether it holds them all.
local ROW, BRANCHES, ENTRIES, BODIES, IDS, ASKED, WORDS, OWN, ASIDE, GONE, INDEX, PARCELS, CLOCK = unpack(KEYS)

local function place(branch, seq)
  return branch .. ':' .. int(seq)
end

-- The parent of a branch ('' for a root) and the number after which it forks; nil if it does not exist.
local function origin(branch)
  local kept = call('HGET', BRANCHES, branch)
  if kept then
    local parent, fork = string.match(kept, '^(%d*)|(%d+)|')
    return parent, tonumber(fork)
  end
end

-- The last number of a branch and the total there: the head's own, or as the head left it.
local function tip(head, branch)
  if branch == head.branch then
    return head.seq, head.total
  end
  local seq, total = string.match(call('HGET', BRANCHES, 't' .. branch) or '', '^(%d+) (%-?%d+)$')
  return tonumber(seq), tonumber(total)
end

-- When a session ends by itself, if ever.
local function expiry(active, idle, ended)
  if idle > 0 and not ended then
    return active + idle
  end
end

-- Move a session in the list by activity; without a time before or after it is new there, or leaves.
local function move_activity(tenant, id, before, after)
  if before ~= after then
    if before then
      call('ZREM', INDEX, 'a' .. tenant .. moment(before) .. id)
    end
    if after then
      call('ZADD', INDEX, 0, 'a' .. tenant .. moment(after) .. id)
    end
  end
end

local function expect(tenant, id, before, after)
  if before ~= after then
    if before then
      call('ZREM', INDEX, 'e' .. tenant .. moment(before) .. id)
    end
    if after then
      call('ZADD', INDEX, 0, 'e' .. tenant .. moment(after) .. id)
    end
  end
end
