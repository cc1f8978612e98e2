-- KEYS lease runs waiters wake   ARGV token owner by keep age
-- An owner is named where the caller has already found out whose lease it is; else the token decides, 0 for all.
local lease, err = load(KEYS[1])
if err then return err end
local now, broken = time(), {}
for slot, r in pairs(lease.rows) do
  local hit = ARGV[1] == '0' or int(r.token) == ARGV[1]
  if ARGV[2] ~= '' then hit = r.owner == ARGV[2] end
  if hit and taken(r, now) then
    if r.state == 'L' or r.state == 'P' then
      local rec = recordOf(slot, r, 'unlocked', now)
      rec.reason = ARGV[3]
      if ARGV[2] ~= '' then rec.token = ARGV[1] end
      put(KEYS[2], rec, tonumber(ARGV[4]), tonumber(ARGV[5]), now)
    end
    redis.call('HDEL', KEYS[1], 's' .. slot)
    broken[#broken + 1] = slot
  end
end
if #broken > 0 then wake(KEYS[3], KEYS[4], math.min(32, redis.call('ZCARD', KEYS[3]))) end
return {int(now), lease.flat, broken}
