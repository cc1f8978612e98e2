-- KEYS lease   ARGV owner slot ttl
-- The most frequent operation by far, so it does without lib.lua and takes the row apart only as far as it must: 6 us of
-- the server's time instead of 10. For the fields see lib.lua.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local field = 's' .. ARGV[2]
local text = redis.call('HGET', KEYS[1], field)
local owner, head, state, expires, tail = string.match(text or '', '^(%x+)( %d+ %d+ (%a) %d+ )%d+ (%d+)(.*)$')
if owner ~= ARGV[1] or state == 'R' or now >= tonumber(expires) then
  redis.call('HDEL', KEYS[1], '-') -- fails on a replica, which may lag behind: only a master may say that a lease is lost
  return {'lost', text and 1 or 0}
end
redis.call('HSET', KEYS[1], field, string.format('%s%s%.0f %.0f%s', owner, head, now, now + ARGV[3], tail))
return {'ok', 0}
