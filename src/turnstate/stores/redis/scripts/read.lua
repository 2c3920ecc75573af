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
-- Entries of some kinds: all but messages have an index.
if ARGV[9] then
  local seqs = {}
  for i = 10, #ARGV do
    local prefix = '[k' .. named(ARGV[i]) .. moment(branch)
    local found = last >= first and call('ZRANGEBYLEX', OWN, prefix .. moment(first), prefix .. moment(last)) or {}
    for _, member in ipairs(found) do
      seqs[#seqs + 1] = tonumber(string.sub(member, -16))
    end
  end
  table.sort(seqs)
  local from, till = 1, #seqs
  if limit ~= '' and newest == '1' then
    from = math.max(from, till - tonumber(limit) + 1)
  elseif limit ~= '' then
    till = math.min(till, tonumber(limit))
  end
  local spots = {}
  for i = from, math.min(till, from + tonumber(most_entries) - 1) do
    spots[#spots + 1] = place(branch, seqs[i])
  end
  local rows = collect(spots, tonumber(most_bytes))
  local following = from + #rows
  if following > till then
    return {kept[1], '1', '0', rows}
  end
  return {kept[1], int(seqs[following]), int(seqs[till]), rows}
end

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
