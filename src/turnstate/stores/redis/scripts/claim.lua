#!lua
-- Claim the parcels of a bucket that are due, the oldest first.
-- include parcel
local INDEX, PARCELS = unpack(KEYS)
local tenant, now, until_, limit = unpack(ARGV)
local list = tenant == '' and 'o' or 'p' .. tenant
local over = '(' .. list .. moment(now + 1)
local claimed = {}
for _, member in ipairs(call('ZRANGEBYLEX', INDEX, '[' .. list, over, 'LIMIT', 0, limit)) do
  local id = string.sub(member, #list + 17)
  local state = standing(PARCELS, id)
  if state then
    local due = state.due
    set_state(INDEX, PARCELS, id, state, {due = until_, tries = state.tries + 1})
    claimed[#claimed + 1] = {due, id, state.packed, int(state.tries), state.error}
  end
end
return claimed
