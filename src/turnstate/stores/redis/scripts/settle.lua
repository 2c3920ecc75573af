#!lua flags=allow-oom
-- Record the outcome of a parcel: delivered, failed (to be retried, or parked), or retried as if it were new.
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
