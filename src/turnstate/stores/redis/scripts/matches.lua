#!lua flags=no-writes
-- Return which of these entries contain all the words, and which are not indexed yet. Words of a removed
-- session whose name was used again have another stamp, so they match nothing.
local count = tonumber(ARGV[1])
local function holds_all(text)
  for i = 2, count + 1 do
    if not string.find(text, ARGV[i], 1, true) then
      return false
    end
  end
  return true
end
local found, missing = {}, {}
for i = count + 2, #ARGV, 3 do
  local text = redis.call('HGET', KEYS[tonumber(ARGV[i])], ARGV[i + 1])
  local position = (i - count - 2) / 3
  if not text then
    missing[#missing + 1] = position
  elseif string.sub(text, 1, 16) == ARGV[i + 2] and holds_all(text) then
    found[#found + 1] = position
  end
end
return {found, missing}
