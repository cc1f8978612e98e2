package mysql

import (
	"time"

	"github.com/lockrun/lockrun/backends"
)

// quickAcquire is the text that takes the only slot of a key whose row is there and which has no lease, not even a dead
// one. What it cannot tell or do is left to acquire.
//
// The first statement locks the key, so that what the others read is the last word about its leases and run ids. Read in
// the same statement it would not be: the server looks at sub-queries before it waits for a lock. Where it finds no key there
// is no lock, and nothing may be taken, although somebody may make the key before the statement that takes.
func (t tables) quickAcquire(r backends.Request, keep backends.Keep, giveUp time.Time, bells bool) string {
	f := t.request(r, keep, giveUp, bells)
	f["verb"], f["slot"], f["takeover"] = "INSERT", "0", "0"
	f["go"] = f.fill(`@lr_token IS NOT NULL AND @lr_leases = 0 AND NOT {paused}{not_done}`)
	return transaction(f.fill(lockKey), f.fill(`SET @lr_leases = (SELECT COUNT(*) FROM {leases} l WHERE l.job_name = {key})`),
		f.fill(take), f.fill(granted), f.fill(countToken), f.fill(countRun(r))) + separator + f.fill(look)
}

// acquire is the text that does everything: it makes the key's row, finds a slot, records a predecessor who died.
//
// @lr_go is the decision. It is read under locks on the key's row and on the rows of its leases, so that neither another
// Acquire nor a renewal comes between it and what follows. Its clock may be that of a moment before the locks were had,
// when a lease that has run out meanwhile still counts as live: a wrong refusal is noticed by look, and a wrong grant
// cannot come of it.
func (t tables) acquire(r backends.Request, keep backends.Keep, giveUp time.Time, bells bool) string {
	f := t.request(r, keep, giveUp, bells)
	choose := ""
	f["slot"] = "0"
	if r.Slots > 1 {
		f["slot"] = "@lr_slot"
		choose = f.fill(chooseSlot)
	}
	f["verb"], f["takeover"], f["go"] = "REPLACE", f.fill(takeover), "@lr_go"
	return transaction(f.fill(makeKey), f.fill(decide), choose, f.fill(buryPredecessor), f.fill(numberRuns), f.fill(prune),
		f.fill(take), f.fill(granted), f.fill(countToken), f.fill(countRun(r))) + separator + f.fill(look)
}

// request are the literals of r. giveUp is when its sender gives up, by the server's clock. With bells the lease gets one,
// unless it is one of several: whoever waits for any of them listens to none.
func (t tables) request(r backends.Request, keep backends.Keep, giveUp time.Time, bells bool) statement {
	f := t.fields(r.Key)
	f["give_up"] = instant(giveUp)
	f["owner"], f["slots"], f["holder"], f["host"] = text(r.Owner), number(r.Slots), text(r.Holder), text(r.Host)
	f["pid"], f["run"], f["waited"], f["ttl"] = number(r.PID), text(r.RunID), micros(r.Waited), micros(ttl(r.TTL))
	f["expire"], f["hold"], f["since"] = after(ttl(r.TTL)), after(r.HoldAtLeast), before(keep.DoneAge)
	f["kind"], f["limit"] = kindRun, number(keep.Runs)
	f["loose"], f["not_running"] = flag(r.Loose), ""
	f["attempt"], f["start"], f["done"], f["not_done"] = "k.starts + 1", ", starts = starts + 1", "NULL", ""
	f["next_token"], f["new_token"] = "k.token + 1", "@lr_token + 1"
	if r.Token != 0 { // of a lease in another store
		least := number(r.Token)
		f["next_token"], f["new_token"] = "GREATEST(k.token + 1, "+least+")", "GREATEST(@lr_token + 1, "+least+")"
	}
	if r.RunID != "" {
		f["attempt"], f["start"] = f.fill(runAttempt), ""
		f["done"] = f.fill(doneTime)
		f["not_done"] = " AND " + f["done"] + " IS NULL"
		f["not_running"] = f.fill(notRunning)
	}
	f["bell"], f["hang"] = t.bell(r.Key), ""
	if bells && r.Slots == 1 {
		f["hang"] = f.fill(hangBell)
	}
	return f
}

const (
	// MAX makes NULL of a key that is not there; without, the variable would keep what it had.
	lockKey = `SELECT MAX(k.token) INTO @lr_token FROM {keys} k WHERE k.job_name = {key} FOR UPDATE`

	makeKey = `INSERT INTO {keys} (job_name) VALUES ({key}) ON DUPLICATE KEY UPDATE job_name = {keys}.job_name`

	decide = `SELECT COUNT(IF(l.instance_id = {owner} AND l.released = 0, 1, NULL)) = 0 AND COUNT(IF({taken}, 1, NULL)) < {slots}
  AND COUNT(IF({paused}, 1, NULL)) = 0{not_running}{not_done}, MAX(k.token)
INTO @lr_go, @lr_token FROM {keys} k LEFT JOIN {leases} l ON l.job_name = {key} WHERE k.job_name = {key} FOR UPDATE`

	// Whatever slot it has: at most one run of an id succeeds.
	notRunning = ` AND COUNT(IF(l.run_id = {run} AND {live}, 1, NULL)) = 0`

	// A mark or a count that is too old is not known any more.
	knownRun   = ` FROM {runs} r WHERE r.job_name = {key} AND r.run_id = {run} AND r.used_time > {since}`
	doneTime   = `(SELECT r.done_time` + knownRun + `)`
	runAttempt = `COALESCE((SELECT r.attempts` + knownRun + `), 0) + 1`

	// The lowest slot that is not taken is 0 or the neighbour of one that is.
	chooseSlot = `SET @lr_slot = (SELECT MIN(c.slot) FROM
  (SELECT 0 AS slot UNION ALL SELECT l.slot + 1 FROM {leases} l WHERE l.job_name = {key} AND {taken}) c
  WHERE c.slot < {slots} AND NOT EXISTS (SELECT 1 FROM {leases} l WHERE l.job_name = {key} AND l.slot = c.slot AND {taken}))` +
		separator + `SET @lr_go = @lr_go AND @lr_slot IS NOT NULL`

	buryPredecessor = bury + ` WHERE @lr_go AND l.job_name = {key} AND l.slot = {slot} AND l.released = 0 AND ` + unrecorded

	takeover = `EXISTS (SELECT 1 FROM {leases} o WHERE o.job_name = {key} AND o.slot = {slot} AND o.released = 0)`

	// take does nothing once the sender has given up: a server that was frozen, or waited for a lock, would else grant a
	// lease to nobody, after Abandon found none.
	take = `{verb} INTO {leases} (job_name, slot, instance_id, token, holder, host, pid, run_id, attempt_count,
  acquire_time, renew_time, expire_time, hold_time, waited_us, ttl_us, released, takeover, loose)
SELECT {key}, {slot}, {owner}, {next_token}, {holder}, {host}, {pid}, {run}, {attempt},
  {now}, {now}, {expire}, {hold}, {waited}, {ttl}, 0, {takeover}, {loose}
FROM {keys} k WHERE k.job_name = {key} AND {now} < {give_up} AND {go}`

	// granted looks for what take wrote. ROW_COUNT() would tell it cheaper, but not always: where the client had gone
	// meanwhile, MariaDB was seen (10.11.19) to go on with a wrong one, to the COMMIT of a lease without its token counted.
	granted = `SET @lr_go = EXISTS (SELECT 1 FROM {leases} l
  WHERE l.job_name = {key} AND l.slot = {slot} AND l.instance_id = {owner} AND l.token = {new_token})`

	countToken = `UPDATE {keys} SET token = {new_token}{start} WHERE job_name = {key} AND @lr_go`

	// look shows the decision, the leases, and what else may stand in the way where none was granted. It comes after COMMIT,
	// so that a lease counts that is there, and not one that is said to be.
	look = `SELECT @lr_go, {now}{hang}` + separator + `SELECT l.slot, l.instance_id, l.token, l.holder, l.host, l.pid, l.attempt_count, l.acquire_time, l.expire_time, l.hold_time,
  l.released, l.takeover, l.run_id FROM {leases} l WHERE l.job_name = {key}` + separator +
		`SELECT k.pause_by, k.pause_reason, k.pause_time, k.pause_until, {done} FROM {keys} k WHERE k.job_name = {key} AND NOT @lr_go`
)

func countRun(r backends.Request) string {
	if r.RunID == "" {
		return ""
	}
	return `INSERT INTO {runs} (job_name, run_id, attempts, used_time)
SELECT k.job_name, {run}, 1, {now} FROM {keys} k WHERE k.job_name = {key} AND @lr_go
ON DUPLICATE KEY UPDATE attempts = IF({runs}.used_time > {since}, {runs}.attempts + 1, 1), used_time = {now}, done_time = NULL`
}
