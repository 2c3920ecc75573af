#!lua flags=no-writes
-- include collecting
local born, branch, first, last, limit, newest, most_entries, most_bytes = unpack(ARGV)
local kept = call('HMGET', ROW, 'born', 'branch', 'seq', 'total')
if not kept[1] or born ~= '' and born ~= kept[1] then
  return {'absent'}
end
local head = {branch = kept[2], seq = tonumber(kept[3]), total = tonumber(kept[4])}
local _, fork = origin(branch)
if not fork then
  return {kept[1], '1', '0', {}}
end

first, last = math.max(tonumber(first), fork + 1), math.min(tonumber(last), tip(head, branch) or 0)
if limit ~= '' then
  if newest == '1' then
    first = math.max(first, last - tonumber(limit) + 1)
  else
    last = math.min(last, first + tonumber(limit) - 1)
  end
end
local spots = {}
for seq = first, math.min(last, first + tonumber(most_entries) - 1) do
  spots[#spots + 1] = place(branch, seq)
end
local rows = collect(spots, tonumber(most_bytes))
return {kept[1], int(first + #rows), int(last), rows}
