#!lua flags=no-writes
-- The next members of a list in several buckets, each after its own member.
local order, limit, far = ARGV[1], ARGV[2], ARGV[3]
local command = order == 'newest' and 'ZREVRANGEBYLEX' or 'ZRANGEBYLEX'
local found = {}
for i, index in ipairs(KEYS) do
  local members = redis.call(command, index, ARGV[i + 3], far, 'LIMIT', 0, limit)
  if #members > 0 then
    found[#found + 1] = {i, members}
  end
end
return found
