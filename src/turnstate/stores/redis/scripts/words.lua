#!lua
-- Write the words of entries, each with its stamp, unless an entry is gone or is another one by now.
-- include session
for i = 1, #ARGV, 3 do
  local spot, stamp, words = unpack(ARGV, i, i + 2)
  local line = call('HGET', ENTRIES, spot) or ''
  local kept = string.match(line, '^%d+ %d+ %-?%d+ %-?%d+ %d+ %d+ (%d+) ')
  if kept and moment(kept) == stamp then
    call('HSET', WORDS, spot, stamp .. words)
  end
end
return 'done'
