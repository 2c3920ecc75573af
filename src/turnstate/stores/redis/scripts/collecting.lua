-- include session
-- Return entries by their places, each with its description and its bytes, up to the size of one reply.
local function collect(spots, most)
  local found, bytes, from = {}, 0, 1
  while from <= #spots and bytes < most do
    local till = math.min(from + 49, #spots)
    local metas = call('HMGET', ENTRIES, unpack(spots, from, till))
    for i, meta in ipairs(metas) do
      local length = tonumber(meta and string.match(meta, '^%d+ %d+ %-?%d+ %-?%d+ %d+ (%d+) ')) or 0
      if bytes > 0 and bytes + length > most then
        return found
      end
      bytes = bytes + length + 200
      local spot = spots[from + i - 1]
      found[#found + 1] = {spot, meta, call('HGET', BODIES, spot)}
    end
    from = till + 1
  end
  return found
end
