-- KEYS lease tries waiters wake   ARGV owner runid round
-- What a later round of the same owner has taken stays.
local lease, err = load(KEYS[1])
if err then return err end
local now = time()
redis.call('ZREM', KEYS[3], ARGV[1])
for slot, r in pairs(lease.rows) do
  if r.owner == ARGV[1] and r.state ~= 'R' and r.round <= tonumber(ARGV[3]) then
    if r.state ~= 'P' then count(KEYS[1], lease, '', KEYS[2], ARGV[2], 'not-started', now) end
    redis.call('HDEL', KEYS[1], 's' .. slot)
    wakeForSlot(lease, KEYS[3], KEYS[4])
  end
end
return {'ok'}
