-- Run records: "token slot attempt outcome started ended exit duration\nwho\nreason", in a sorted set by token.
local function record(text)
  local r = {}
  r.token, r.slot, r.attempt, r.outcome, r.started, r.ended, r.exit, r.duration, r.who, r.reason =
    string.match(text, '^(%d+) (%S+) (%d+) (%S+) (%d+) (%d+) (%S+) (%S+)\n([^\n]*)\n(.*)$')
  return r
end

local function recordText(r)
  return table.concat({r.token, r.slot, r.attempt, r.outcome, r.started, r.ended, r.exit, r.duration}, ' ')
    .. '\n' .. r.who .. '\n' .. r.reason
end

-- The record of a row that ended now in some way.
local function recordOf(slot, r, outcome, ended)
  return {token = int(r.token), slot = int(slot), attempt = int(r.attempt), outcome = outcome, started = int(r.at),
    ended = int(ended), exit = '-', duration = '-', who = r.who, reason = ''}
end

local function find(runs, token)
  return redis.call('ZRANGEBYSCORE', runs, token, token, 'LIMIT', 0, 1)[1]
end

-- backends.Complete: only what was written without asking the run itself is open to correction.
local function complete(old, new)
  if old.outcome == 'crashed' or old.outcome == 'lost' then
    old.outcome, old.reason = new.outcome, new.reason
  elseif old.outcome ~= 'unlocked' then
    return old
  end
  if new.exit ~= '-' then old.exit = new.exit end
  if new.duration ~= '-' then old.duration = new.duration end
  old.ended = new.ended
  return old
end

-- Records older than age leave from the old end, a few with each write, so that no write pays for all of them.
local function trim(runs, keep, age, now)
  redis.call('ZREMRANGEBYRANK', runs, 0, -keep - 1)
  for _, text in ipairs(redis.call('ZRANGE', runs, 0, 1)) do
    if tonumber(record(text).ended) < now - age then redis.call('ZREM', runs, text) end
  end
  redis.call('PEXPIRE', runs, int(age / 1000 + 1))
end

local function put(runs, r, keep, age, now)
  local text = r.token ~= '0' and find(runs, r.token)
  if text then
    r = complete(record(text), r)
    redis.call('ZREM', runs, text)
  end
  -- Without a token the moment takes its place in the order; such a score finds no record, as the token inside is 0.
  redis.call('ZADD', runs, r.token ~= '0' and r.token or int(now), recordText(r))
  trim(runs, keep, age, now)
end

-- Refusals are kept apart, newest first.
local function putSkip(skips, text, keep, age, now)
  redis.call('LPUSH', skips, text)
  redis.call('LTRIM', skips, 0, keep - 1)
  for _ = 1, 2 do
    local last = redis.call('LINDEX', skips, -1)
    if not last or tonumber(record(last).ended) >= now - age then break end
    redis.call('RPOP', skips)
  end
  redis.call('PEXPIRE', skips, int(age / 1000 + 1))
end
