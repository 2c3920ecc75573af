#!lua flags=no-writes
-- The newest entry of each kind on a path: messages are everywhere and are looked for from the end, all
-- other kinds have an index.
-- include marks
local CHUNK = 100
local spans = tonumber(ARGV[1])
local kept = call('HMGET', ROW, 'born', 'branch', 'seq', 'total')
if not kept[1] then
  return {'absent'}
end
local head = {branch = kept[2], seq = tonumber(kept[3]), total = tonumber(kept[4])}

local function newest_message(branch, first, last)
  while last >= first do
    local spots = {}
    for seq = last, math.max(first, last - CHUNK + 1), -1 do
      spots[#spots + 1] = place(branch, seq)
    end
    for i, meta in ipairs(call('HMGET', ENTRIES, unpack(spots))) do
      if meta and string.find(meta, '^%d+ %d+ %-?%d+ %-?%d+ %d+ %d+ %d+ 7 message') then
        return spots[i]
      end
    end
    last = last - CHUNK
  end
end

local function newest_on_path(kind)
  for i = 2, 2 + (spans - 1) * 3, 3 do
    local branch, first, last = unpack(ARGV, i, i + 2)
    local _, fork = origin(branch)
    if fork then
      first, last = math.max(tonumber(first), fork + 1), math.min(tonumber(last), tip(head, branch) or 0)
      local look = kind == 'message' and newest_message or function(...) return newest_mark(kind, ...) end
      local spot = last >= first and look(branch, first, last)
      if spot then
        return spot
      end
    end
  end
end

local found = {}
for i = 2 + spans * 3, #ARGV do
  local spot = newest_on_path(ARGV[i])
  found[#found + 1] = spot and collect({spot}, 1)[1] or false
end
return {'there', found}
