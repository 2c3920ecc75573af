#!lua flags=no-writes
-- Which of these are not members of a list.
local found = {}
for i, member in ipairs(ARGV) do
  if not redis.call('ZSCORE', KEYS[1], member) then
    found[#found + 1] = i - 1
  end
end
return found
