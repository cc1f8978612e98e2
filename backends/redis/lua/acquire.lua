-- KEYS lease runs skips done tries index waiters
-- ARGV owner ttl hold runid slots want last waited who key keep age doneage round state token
local lease, err = load(KEYS[1])
if err then return err end
local now = time()
local owner, ttl, hold, id, slots, want = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local keep, age, doneAge = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])

if ARGV[8] == '1' then redis.call('ZREM', KEYS[7], owner) end

-- A quorum compares what its servers knew before.
local function granted(slot, r, takeover)
  local reply = {'granted', int(now), int(r.token), slot, r.attempt, int(r.at), takeover, r.state}
  if ARGV[15] == 'P' then
    reply[9], reply[10] = int(lease.by), lease.flat
  end
  return reply
end

-- The reply to an earlier request of this owner was lost.
for slot, r in pairs(lease.rows) do
  if r.owner == owner and r.state ~= 'R' then
    if r.round > tonumber(ARGV[14]) then return {'stale'} end
    r.renewed, r.expires, r.round = now, now + ttl, tonumber(ARGV[14])
    redis.call('HSET', KEYS[1], 's' .. slot, rowText(r))
    return granted(slot, r, 0)
  end
end

-- Whether this request's refusal is among the newest ones: the answer to it was lost, and it is asked again.
local function told()
  for _, text in ipairs(redis.call('LRANGE', KEYS[3], 0, 15)) do
    if string.find(text, '"id":"' .. string.sub(owner, 1, 16) .. '"', 1, true) then return true end
  end
  return false
end

-- A refusal is recorded with what stood in the way, as it is stored; who reads the history puts it into words. It stands
-- whether it can be written down or not.
local function refused(outcome, why)
  onMaster(KEYS[1])
  if ARGV[7] ~= '1' then return end
  pcall(function()
    if told() then return end
    redis.call('SADD', KEYS[6], ARGV[10])
    putSkip(KEYS[3], recordText({token = '0', slot = '-', attempt = '0', outcome = outcome, started = int(now), ended = int(now),
      exit = '-', duration = '-', who = ARGV[9], reason = '\1' .. why}), keep, age, now)
  end)
end

local doneAt = id ~= '' and redis.call('ZSCORE', KEYS[4], id)
if doneAt then
  refused('done', 'D' .. doneAt)
  return {'done', int(now), doneAt}
end

local same = running(lease, id, owner, now)
if same then
  refused('skipped', 'S' .. int(now) .. '\n' .. rowText(same))
  return {'held', int(now), lease.flat}
end
local n, first = occupied(lease, now)
local mine = want >= 0 and lease.rows[want]
if n >= slots or (mine and taken(mine, now)) then
  refused('skipped', 'H' .. int(now) .. '\n' .. rowText(first))
  return {'held', int(now), lease.flat}
end
if paused(lease, now) then
  refused('skipped', 'P' .. lease.pause.text)
  return {'held', int(now), lease.flat}
end

local slot = math.max(want, 0)
while lease.rows[slot] and taken(lease.rows[slot], now) do slot = slot + 1 end
local old, takeover = lease.rows[slot], 0

-- What other programs may have put under the names of the lesser keys fails here, before the lease is written.
redis.call('SADD', KEYS[6], ARGV[10])
if old and old.state ~= 'R' and old.state ~= 'P' then
  takeover = 1
  if old.state == 'L' and not find(KEYS[2], int(old.token)) then
    put(KEYS[2], recordOf(slot, old, 'crashed', old.expires), keep, age, now)
  end
end
local attempt
if id == '' then
  attempt = lease.starts + 1
else
  attempt = tried(KEYS[5], id) + 1
  if ARGV[15] ~= 'P' then setTries(KEYS[5], id, attempt, now) end
  forget(KEYS[4], KEYS[5], doneAge, now)
end
local r = {owner = owner, token = nextToken(lease, ARGV[16] ~= '0' and tonumber(ARGV[16]) or now), attempt = attempt, state = ARGV[15], at = now, renewed = now,
  expires = now + ttl, hold = hold > 0 and now + hold or 0, round = tonumber(ARGV[14]), who = ARGV[9]}
redis.call('HSET', KEYS[1], 'lockrun', '1', 'token', int(r.token), 's' .. slot, rowText(r))
-- A quorum counts an attempt when it is known to be one.
if id == '' and ARGV[15] ~= 'P' then redis.call('HSET', KEYS[1], 'starts', int(attempt), 'startsby', int(r.token)) end
return granted(slot, r, takeover)
