-- KEYS lease runs done tries waiters wake
-- ARGV owner token slot outcome exit duration reason runid keep age doneage
local lease, err = load(KEYS[1])
if err then return err end
local now, slot = time(), tonumber(ARGV[3])
local r = lease.rows[slot]
if not r or r.owner ~= ARGV[1] or not live(r, now) then
  local text = find(KEYS[2], ARGV[2])
  local o = text and record(text).outcome
  if o == 'succeeded' or o == 'failed' or o == 'timeout' or o == 'not-started' then return {'ok'} end
  onMaster(KEYS[1])
  return {'lost'}
end
local rec = recordOf(slot, r, ARGV[4], now)
rec.token, rec.exit, rec.duration, rec.reason = ARGV[2], ARGV[5], ARGV[6], ARGV[7]
put(KEYS[2], rec, tonumber(ARGV[9]), tonumber(ARGV[10]), now)
count(KEYS[1], lease, KEYS[3], KEYS[4], ARGV[8], ARGV[4], now)
if ARGV[8] ~= '' then forget(KEYS[3], KEYS[4], tonumber(ARGV[11]), now) end
if ARGV[4] ~= 'not-started' and now < r.hold then
  r.state = 'R'
  redis.call('HSET', KEYS[1], 's' .. slot, rowText(r))
else
  redis.call('HDEL', KEYS[1], 's' .. slot)
end
wakeForSlot(lease, KEYS[5], KEYS[6])
return {'ok'}
