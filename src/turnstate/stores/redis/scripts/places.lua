#!lua flags=no-writes
-- include collecting
local most_bytes = tonumber(ARGV[1])
if call('EXISTS', ROW) == 0 then
  return {'absent'}
end
local spots = {}
for i = 2, #ARGV do
  spots[i - 1] = ARGV[i]
end
return {'there', collect(spots, most_bytes)}
