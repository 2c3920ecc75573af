#!lua flags=allow-oom
-- What came of a parcel: it arrived, it failed (and is tried again or parked), or it is tried as if new.
-- include parcel
local INDEX, PARCELS = unpack(KEYS)
local deed, id, due, error = unpack(ARGV)
local state = standing(PARCELS, id)
if not state then
  return 0
end
if deed == 'delivered' then
  discard(INDEX, PARCELS, id, state.packed)
elseif deed == 'failed' then
  local later = due ~= '' and due or state.due
  set_state(INDEX, PARCELS, id, state, {due = later, parked = due == '', error = error})
else
  if not state.parked then
    return 0
  end
  set_state(INDEX, PARCELS, id, state, {due = due, parked = false, tries = 0})
end
return 1
