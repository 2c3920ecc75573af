#!lua flags=no-writes
-- A session with the newest entry of each of some kinds, the first entries of its branch, and the newest ones.
-- include marks
local most_first, most_newest, most_bytes = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local kept = call('HMGET', ROW, 'born', 'branch', 'seq')
if not kept[1] then
  return {'absent'}
end
local branch, last = kept[2], tonumber(kept[3])
local _, fork = origin(branch)
local first = (fork or last) + 1

local marks = {}
for i = 4, #ARGV do
  local spot = last >= first and newest_mark(ARGV[i], branch, first, last)
  marks[#marks + 1] = spot and collect({spot}, 1)[1] or false
end
local early, late = {}, {}
for seq = first, math.min(last, first + most_first - 1) do
  early[#early + 1] = place(branch, seq)
end
for seq = last, math.max(first, last - most_newest + 1), -1 do
  late[#late + 1] = place(branch, seq)
end
return {'there', call('HGETALL', ROW), marks, collect(early, most_bytes), collect(late, most_bytes)}
