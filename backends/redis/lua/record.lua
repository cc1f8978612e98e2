-- KEYS lease runs skips index   ARGV refusal token slot attempt outcome started ended exit duration who reason key keep age
local lease, err = load(KEYS[1])
if err then return err end
local now, keep, age = time(), tonumber(ARGV[13]), tonumber(ARGV[14])
local r = {token = ARGV[2], slot = ARGV[3], attempt = ARGV[4], outcome = ARGV[5], started = ARGV[6], ended = ARGV[7],
  exit = ARGV[8], duration = ARGV[9], who = ARGV[10], reason = ARGV[11]}
if r.started == '0' then r.started = int(now) end
if r.ended == '0' then r.ended = int(now) end
redis.call('SADD', KEYS[4], ARGV[12])
if ARGV[1] == '1' then
  putSkip(KEYS[3], recordText(r), keep, age, now)
  return {'ok'}
end
-- A lease that ran out is now told of: neither its taker nor the history calls it crashed any more.
for slot, held in pairs(lease.rows) do
  if r.token ~= '0' and int(held.token) == r.token and held.state == 'L' then
    local crashed = recordOf(slot, held, 'crashed', math.min(now, held.expires))
    r = complete(crashed, r)
    held.state = 'C'
    put(KEYS[2], r, keep, age, now)
    redis.call('HSET', KEYS[1], 's' .. slot, rowText(held))
    return {'ok'}
  end
end
put(KEYS[2], r, keep, age, now)
return {'ok'}
