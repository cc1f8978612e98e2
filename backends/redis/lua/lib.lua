-- What every script begins with. Numbers that may pass 14 digits never go through tostring, which would round them.
local function int(x) return string.format('%.0f', x) end

-- The server's clock in microseconds; below 2^53 until the year 2255.
local function time()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- One slot of the lease hash. State: L held, P held on this server but not yet known to be on the majority of a quorum,
-- R released but kept by its minimum hold, C run out and told of by Record. Round: of a quorum's acquire, else 0.
local function row(text)
  local r = {}
  r.owner, r.token, r.attempt, r.state, r.at, r.renewed, r.expires, r.hold, r.round, r.who =
    string.match(text, '^(%x+) (%d+) (%d+) (%a) (%d+) (%d+) (%d+) (%d+) (%d+)\n(.*)$')
  if not r.owner then return nil end
  r.token, r.attempt, r.at = tonumber(r.token), tonumber(r.attempt), tonumber(r.at)
  r.renewed, r.expires, r.hold, r.round = tonumber(r.renewed), tonumber(r.expires), tonumber(r.hold), tonumber(r.round)
  return r
end

local function rowText(r)
  return string.format('%s %.0f %d %s %.0f %.0f %.0f %.0f %.0f\n%s',
    r.owner, r.token, r.attempt, r.state, r.at, r.renewed, r.expires, r.hold, r.round, r.who)
end

local function live(r, now) return r.state ~= 'R' and now < r.expires end
local function taken(r, now) return live(r, now) or now < r.hold end
local function freeAt(r, now)
  if live(r, now) and r.expires > r.hold then return r.expires end
  return r.hold
end

-- The lease hash, or an error reply where the hash is somebody else's: nothing of it is touched then.
local function foreign()
  return redis.error_reply('LOCKRUNFOREIGN the hash under this key was not written by this version of lockrun')
end
local function load(key)
  local h = {flat = redis.call('HGETALL', key), token = 0, starts = 0, by = 0, rows = {}}
  for i = 1, #h.flat, 2 do
    local name, value = h.flat[i], h.flat[i + 1]
    local slot = string.match(name, '^s(%d+)$')
    if slot then
      h.rows[tonumber(slot)] = row(value)
      if not h.rows[tonumber(slot)] then return nil, foreign() end
    elseif name == 'lockrun' then h.format = value
    elseif name == 'token' then h.token = tonumber(value)
    elseif name == 'starts' then h.starts = tonumber(value)
    elseif name == 'startsby' then h.by = tonumber(value)
    elseif name == 'pause' then
      h.pause = {text = value}
      h.pause.till = tonumber(string.match(value, '^%d+ (%d+)\n'))
    end
  end
  if #h.flat > 0 and h.format ~= '1' then return nil, foreign() end
  return h
end

-- Fails on a replica, which may lag behind: only a master may say that a lease is lost or a key held. The write changes
-- nothing, so nothing of it is replicated.
local function onMaster(key) redis.call('HDEL', key, '-') end

local function paused(h, now) return h.pause and (h.pause.till == 0 or now < h.pause.till) end

-- How many slots are taken, and of those the one that will be free first.
local function occupied(h, now)
  local n, first = 0, nil
  for _, r in pairs(h.rows) do
    if taken(r, now) then
      n = n + 1
      if not first or freeAt(r, now) < freeAt(first, now) then first = r end
    end
  end
  return n, first
end

-- The live lease of another owner that runs this run id, if there is one. The id is in the part that people see.
local function running(h, id, owner, now)
  if id == '' then return nil end
  for _, r in pairs(h.rows) do
    if r.owner ~= owner and live(r, now) and cjson.decode(r.who).run_id == id then return r end
  end
  return nil
end

-- Another token, above all that were handed out. It is the time, so that this holds also where the counter itself was
-- evicted or lost in a failover; or the token that a lease has in another store, of which this one keeps the record.
local function nextToken(h, wanted) return math.max(h.token + 1, wanted) end

-- Waiters block on a list. One element wakes the one that has waited longest, so that a release makes no herd; elements
-- that nobody fetches expire by themselves.
local function wake(waiters, list, n)
  if redis.call('EXISTS', waiters) == 0 then return end
  for _ = 1, n do redis.call('LPUSH', list, '1') end
  redis.call('LTRIM', list, 0, 31)
  redis.call('PEXPIRE', list, 5000)
end

-- Wakes for one slot that became free. Where run ids are about, whoever has waited longest may have to go on waiting for
-- the run of its id, and others for the end of this one: all are woken then.
local function wakeForSlot(h, waiters, list)
  local n = 1
  for _, r in pairs(h.rows) do
    if string.find(r.who, '"run_id":', 1, true) then n = math.min(32, redis.call('ZCARD', waiters)) end
  end
  wake(waiters, list, n)
end
