-- KEYS lease tries   ARGV owner token attempt runid
-- Quorum: writes the token that the majority agreed on, and raises the counter to it whether or not the lease is here.
local lease, err = load(KEYS[1])
if err then return err end
local token = tonumber(ARGV[2])
if token > lease.token then redis.call('HSET', KEYS[1], 'lockrun', '1', 'token', ARGV[2]) end
for slot, r in pairs(lease.rows) do
  if r.owner == ARGV[1] and r.state == 'L' then
    r.token, r.attempt = token, tonumber(ARGV[3])
    redis.call('HSET', KEYS[1], 's' .. slot, rowText(r))
    if ARGV[4] == '' then redis.call('HSET', KEYS[1], 'starts', ARGV[3])
    else setTries(KEYS[2], ARGV[4], r.attempt, time()) end
  end
end
return {'ok'}
