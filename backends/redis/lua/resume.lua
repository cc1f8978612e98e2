-- KEYS lease waiters wake
local lease, err = load(KEYS[1])
if err then return err end
if not paused(lease, time()) then return {'lost'} end
redis.call('HDEL', KEYS[1], 'pause')
wake(KEYS[2], KEYS[3], math.min(32, redis.call('ZCARD', KEYS[2])))
return {'ok'}
