package mysql

import (
	"context"

	"github.com/lockrun/lockrun/backends"
)

// Break judges by one moment throughout, so that it deletes exactly what it tells.
func (b *backend) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	if err := backends.CheckKey(key); err != nil {
		return nil, err
	}
	text := b.t.breakText(key, token, by, b.keep)
	var broken []backends.State
	err := b.do(ctx, "unlock", once, func(ctx context.Context, c *conn) error {
		sets, err := c.query(ctx, text)
		if err != nil {
			return err
		}
		broken, err = readStates(sets)
		if err == nil && len(broken) == 0 {
			return backends.ErrNotHeld
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return broken, nil
}

func (t tables) breakText(key string, token int64, by string, keep backends.Keep) string {
	const at = "CAST(@lr_now AS DATETIME(6))"
	f := t.fields(key)
	f["now"], f["taken"], f["token"], f["by"] = at, taken(at), number(token), words(by, backends.MaxReason)
	f["kind"], f["limit"], f["waiting"] = kindRun, number(keep.Runs), "NULL"
	f["which"] = f.fill(`l.job_name = {key} AND {taken}`)
	f["before"] = f.fill(`l2.job_name = {key} AND l2.released = 0 AND (l2.expire_time > {now} OR l2.hold_time > {now})`)
	if token != 0 {
		f["which"] += f.fill(` AND l.token = {token}`)
		f["before"] += f.fill(` AND l2.token = {token}`)
	}
	return transaction(
		f.fill(lockKey),
		`SET @lr_now = UTC_TIMESTAMP(6)`,
		f.fill(stateSelect+` FROM {keys} k JOIN {leases} l ON {which} WHERE k.job_name = {key} ORDER BY l.slot FOR UPDATE`),
		f.fill(unlocked),
		f.fill(`DELETE l FROM {leases} l WHERE {which}`),
		f.fill(numberRuns),
		f.fill(prune),
	)
}

// unlocked numbers the records of several slots one after the other. A lease that only its minimum hold kept has its
// record already.
const unlocked = `INSERT INTO {history} ` + historyColumns + `
SELECT l.job_name, 0, ` + lastRun + ` + (SELECT COUNT(*) FROM {leases} l2 WHERE {before} AND l2.slot <= l.slot),
  l.token, l.run_id, l.attempt_count, l.holder, l.host, l.pid, l.slot, 'unlocked', {by}, NULL,
  l.acquire_time, {now}, l.waited_us, NULL, ''
FROM {leases} l WHERE {which} AND l.released = 0 AND ` + unrecorded

// Pause is one statement.
func (b *backend) Pause(ctx context.Context, key string, p backends.Pause) error {
	if err := backends.CheckKey(key); err != nil {
		return err
	}
	f := b.t.fields(key)
	f["by"], f["reason"], f["until"] = words(p.By, backends.MaxHolder), words(p.Reason, backends.MaxReason), "NULL"
	if p.For > 0 {
		f["until"] = after(ttl(p.For))
	}
	pause := f.fill(`INSERT INTO {keys} (job_name, pause_by, pause_reason, pause_time, pause_until)
VALUES ({key}, {by}, {reason}, {now}, {until})
ON DUPLICATE KEY UPDATE pause_by = {by}, pause_reason = {reason}, pause_time = {now}, pause_until = {until}`)
	return b.do(ctx, "pause", repeatable, func(ctx context.Context, c *conn) error {
		_, err := c.exec(ctx, pause)
		return err
	})
}

// Resume is one statement. It is not repeated by itself: the second one would find nothing to resume.
func (b *backend) Resume(ctx context.Context, key string) error {
	if err := backends.CheckKey(key); err != nil {
		return err
	}
	f := b.t.fields(key)
	resume := f.fill(`UPDATE {keys} k SET k.pause_by = NULL, k.pause_reason = NULL, k.pause_time = NULL, k.pause_until = NULL
WHERE k.job_name = {key} AND {paused}`)
	return b.do(ctx, "resume", once, func(ctx context.Context, c *conn) error {
		found, err := c.exec(ctx, resume)
		if err == nil && found == 0 {
			return backends.ErrNotHeld
		}
		return err
	})
}
