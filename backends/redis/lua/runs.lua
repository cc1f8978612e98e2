-- Attempts and done-marks of run ids: two sorted sets that are cleaned by score. The score of an attempt is the second of
-- the last one and, in its low 20 bits, how many there were: both in one number, so that one structure is enough.
local bits = 1048576

local function tried(tries, id)
  local score = redis.call('ZSCORE', tries, id)
  return score and tonumber(score) % bits or 0
end

local function setTries(tries, id, n, now)
  redis.call('ZADD', tries, int(math.floor(now / 1000000) * bits + math.min(n, bits - 1)), id)
end

local function forget(done, tries, age, now)
  redis.call('ZREMRANGEBYSCORE', done, '-inf', int(now - age))
  redis.call('ZREMRANGEBYSCORE', tries, '-inf', int(math.floor((now - age) / 1000000) * bits))
end

-- What an outcome does to the counts. The lease hash has to be there already: this must not bring it into being.
local function count(lease, h, done, tries, id, outcome, now)
  if outcome == 'succeeded' then
    redis.call('HSET', lease, 'starts', '0')
    if id ~= '' then
      redis.call('ZADD', done, int(now), id)
      redis.call('ZREM', tries, id)
    end
  elseif outcome == 'not-started' and id ~= '' then
    setTries(tries, id, math.max(0, tried(tries, id) - 1), now)
  elseif outcome == 'not-started' then
    redis.call('HSET', lease, 'starts', int(math.max(0, h.starts - 1)))
  end
end
