-- KEYS lease waiters wake   ARGV owner slots life
-- Registers a waiter and tells how long the key stays taken if nothing happens; 0: nobody knows.
local lease, err = load(KEYS[1])
if err then return err end
local now, life = time(), tonumber(ARGV[3])
local n, first = occupied(lease, now)
local left = 0
if n >= tonumber(ARGV[2]) then
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
