-- KEYS lease tries   ARGV owner token attempt runid at
-- Quorum: writes what the majority agreed on. Token counter and attempts are written whether or not the lease is here.
local lease, err = load(KEYS[1])
if err then return err end
local token = tonumber(ARGV[2])
if token > lease.token then redis.call('HSET', KEYS[1], 'lockrun', '1', 'token', ARGV[2]) end
for slot, r in pairs(lease.rows) do
  if r.owner == ARGV[1] and (r.state == 'L' or r.state == 'P') then
    r.token, r.attempt, r.at, r.state = token, tonumber(ARGV[3]), tonumber(ARGV[5]), 'L'
    redis.call('HSET', KEYS[1], 's' .. slot, rowText(r))
  end
end
if ARGV[4] ~= '' then
  setTries(KEYS[2], ARGV[4], tonumber(ARGV[3]), time())
elseif token >= lease.by or not lease.format then
  redis.call('HSET', KEYS[1], 'lockrun', '1', 'starts', ARGV[3], 'startsby', ARGV[2])
end
return {'ok'}
