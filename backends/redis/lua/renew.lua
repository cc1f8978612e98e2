-- KEYS lease   ARGV owner slot ttl
local text = redis.call('HGET', KEYS[1], 's' .. ARGV[2])
local r = text and row(text)
local now = time()
if not r or r.owner ~= ARGV[1] or not live(r, now) then
  onMaster(KEYS[1])
  return {'lost', text and 1 or 0}
end
r.renewed, r.expires = now, now + tonumber(ARGV[3])
redis.call('HSET', KEYS[1], 's' .. ARGV[2], rowText(r))
return {'ok', 0}
