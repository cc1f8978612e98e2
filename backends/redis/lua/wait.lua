-- KEYS lease waiters wake done   ARGV owner slots life runid
-- Registers a waiter and tells how long the key stays taken if nothing happens; 0: nobody knows. A run id that is done is
-- not waited for.
local lease, err = load(KEYS[1])
if err then return err end
local now, life = time(), tonumber(ARGV[3])
if ARGV[4] ~= '' and redis.call('ZSCORE', KEYS[4], ARGV[4]) then return {'free', 0} end
local n, first = occupied(lease, now)
local same, left = running(lease, ARGV[4], ARGV[1], now), 0
if same then
  left = same.expires - now
elseif n >= tonumber(ARGV[2]) then
  left = freeAt(first, now) - now
elseif not paused(lease, now) then
  return {'free', 0}
elseif lease.pause.till > 0 then
  left = lease.pause.till - now
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', int(now))
-- What earlier waiters were sent and did not fetch would wake the first of the next ones for nothing.
if redis.call('ZCARD', KEYS[2]) == 0 then redis.call('DEL', KEYS[3]) end
redis.call('ZADD', KEYS[2], int(now + life), ARGV[1])
redis.call('PEXPIRE', KEYS[2], int(life / 1000))
return {'wait', int(left)}
