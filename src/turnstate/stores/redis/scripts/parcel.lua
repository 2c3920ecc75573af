-- include basics
-- A parcel is two fields: its immutable part, and its state. One that is damaged is passed over, since an error in
-- the middle of a script would leave half of its writes, and one parcel would keep all others from being delivered.
local function whose(packed)
  local length, from = string.match(packed, '^(%d+):()')
  local rest = length and from + length
  local more, start = string.match(packed, '^(%d+):()', rest)
  if not rest or not more then
    return nil
  end
  return string.sub(packed, 1, rest - 1), string.sub(packed, rest, start + more - 1)
end

local function standing(parcels, id)
  local kept = call('HMGET', parcels, 'b' .. id, 's' .. id)
  if not kept[1] or not kept[2] then
    return nil
  end
  local due, tries, parked, error = string.match(kept[2], '^(%d+) (%d+) ([01]) (.*)$')
  if not due or not whose(kept[1]) then
    return nil
  end
  return {packed = kept[1], due = due, tries = tonumber(tries), parked = parked == '1', error = error}
end

local function lists(id, state)
  local tenant = whose(state.packed)
  local rest = moment(state.due) .. id
  if state.parked then
    return 'q' .. rest, 'r' .. tenant .. rest
  end
  return 'o' .. rest, 'p' .. tenant .. rest
end

local function set_state(index, parcels, id, state, change)
  call('ZREM', index, lists(id, state))
  for name, value in pairs(change) do
    state[name] = value
  end
  local all, own = lists(id, state)
  call('ZADD', index, 0, all, 0, own)
  local words = {state.due, int(state.tries), state.parked and '1' or '0', state.error}
  call('HSET', parcels, 's' .. id, table.concat(words, ' '))
end

local function discard(index, parcels, id, packed)
  local state = standing(parcels, id)
  local tenant, session = whose(packed)
  if state then
    call('ZREM', index, lists(id, state))
  end
  if tenant then
    call('ZREM', index, 's' .. tenant .. session .. id)
  end
  call('HDEL', parcels, 'b' .. id, 's' .. id)
end
