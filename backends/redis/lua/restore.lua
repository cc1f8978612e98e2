-- KEYS lease runs index   ARGV owner token slot attempt ttl hold at slots who key keep age round
-- Quorum: writes a lease that the majority still has into a server that forgot it, unless somebody else is there, or
-- runs its run id in another slot.
local lease, err = load(KEYS[1])
if err then return err end
local now, slot, token = time(), tonumber(ARGV[3]), tonumber(ARGV[2])
local old = lease.rows[slot]
if old and old.owner ~= ARGV[1] and taken(old, now) then return {'held'} end
if running(lease, cjson.decode(ARGV[9]).run_id or '', ARGV[1], now) then return {'held'} end
local others = occupied(lease, now)
if old and taken(old, now) then others = others - 1 end
if others >= tonumber(ARGV[8]) then return {'held'} end
redis.call('SADD', KEYS[3], ARGV[10])
if old and old.owner ~= ARGV[1] and old.state == 'L' and not find(KEYS[2], int(old.token)) then
  put(KEYS[2], recordOf(slot, old, 'crashed', old.expires), tonumber(ARGV[11]), tonumber(ARGV[12]), now)
end
local hold = tonumber(ARGV[6])
local r = {owner = ARGV[1], token = token, attempt = tonumber(ARGV[4]), state = 'L', at = tonumber(ARGV[7]), renewed = now,
  expires = now + tonumber(ARGV[5]), hold = hold > 0 and now + hold or 0,
  round = tonumber(ARGV[13]), who = ARGV[9]}
redis.call('HSET', KEYS[1], 'lockrun', '1', 'token', int(math.max(token, lease.token)), 's' .. slot, rowText(r))
return {'ok'}
