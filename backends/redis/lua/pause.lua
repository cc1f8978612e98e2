-- KEYS lease index   ARGV for words key
local lease, err = load(KEYS[1])
if err then return err end
local now, length = time(), tonumber(ARGV[1])
redis.call('SADD', KEYS[2], ARGV[3])
redis.call('HSET', KEYS[1], 'lockrun', '1', 'pause', int(now) .. ' ' .. int(length > 0 and now + length or 0) .. '\n' .. ARGV[2])
return {'ok'}
