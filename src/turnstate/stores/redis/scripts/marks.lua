-- include collecting
-- The place of the newest entry of a kind in a stretch of a branch; messages have no index.
local function newest_mark(kind, branch, first, last)
  local prefix = 'k' .. named(kind) .. moment(branch)
  local top, bottom = '[' .. prefix .. moment(last), '[' .. prefix .. moment(first)
  local found = call('ZREVRANGEBYLEX', OWN, top, bottom, 'LIMIT', 0, 1)[1]
  return found and place(branch, tonumber(string.sub(found, -16)))
end
