#!lua flags=no-writes
-- The branches of a session with their ends, the head, and how many branches and entries it has.
-- include session
local kept = call('HMGET', ROW, 'born', 'branch', 'seq', 'branches')
if not kept[1] then
  return {'absent'}
end
return {'there', kept[2] or '', kept[3] or '', kept[4] or '', call('HLEN', ENTRIES), call('HGETALL', BRANCHES)}
