#!lua flags=no-writes
-- Which of these buckets have a parcel.
local found = {}
for i, parcels in ipairs(KEYS) do
  if redis.call('HEXISTS', parcels, 's' .. ARGV[1]) == 1 then
    found[#found + 1] = i
  end
end
return found
