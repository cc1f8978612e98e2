package mysql

import (
	"context"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// lease is a holder's view of its row.
type lease struct {
	b     *backend
	key   string
	owner string
	run   string
	hold  bool // it has a minimum hold
	grant backends.Grant
}

func (l *lease) Grant() backends.Grant { return l.grant }

// fields names the row, by all that makes it ours.
func (l *lease) fields() statement {
	f := l.b.t.fields(l.key)
	f["slot"], f["token"], f["owner"], f["run"] = number(l.grant.Slot), number(l.grant.Token), text(l.owner), text(l.run)
	return f
}

const mine = `l.job_name = {key} AND l.slot = {slot} AND l.token = {token} AND l.instance_id = {owner}`

// Renew is one statement, and so one transaction. It needs no lock on the key: whoever takes the slot locks this row too.
func (l *lease) Renew(ctx context.Context, d time.Duration) error {
	renew := l.renew(d)
	return l.b.do(ctx, "renew", repeatable, func(ctx context.Context, c *conn) error {
		found, err := c.exec(ctx, renew)
		if err == nil && found == 0 {
			return backends.ErrLost
		}
		return err
	})
}

func (l *lease) renew(d time.Duration) string {
	f := l.fields()
	f["expire"], f["ttl"] = after(ttl(d)), micros(ttl(d))
	return f.fill(`UPDATE {leases} l SET l.renew_time = {now}, l.expire_time = {expire}, l.ttl_us = {ttl}
WHERE ` + mine + ` AND {live}`)
}

// Release writes the record where the lease is still ours, and does everything else where that was done.
func (l *lease) Release(ctx context.Context, end backends.End) error {
	quick, whole := l.release(end, quickRecord, quickDone), l.release(end, wholeRecord, wholeDone)
	var seen row
	err := l.b.do(ctx, "release", repeatable, func(ctx context.Context, c *conn) error {
		sets, err := c.query(ctx, quick+c.ring())
		if mysqlCode(err) == errDuplicate { // it has a record already: assumed to be lost or crashed
			if err = c.rollback(ctx); err == nil {
				sets, err = c.query(ctx, whole+c.ring())
			}
		}
		switch seen = sets.only(); {
		case err != nil:
			return err
		case seen.num(0) == 0:
			return l.before(ctx, c)
		case seen.num(3) != 0:
			return errRolledBack
		}
		return nil
	})
	if err == nil {
		l.b.clean(ctx, seen)
	}
	return err
}

// before tells whether a release was carried out before this one, whose answer was lost then.
func (l *lease) before(ctx context.Context, c *conn) error {
	sets, err := c.query(ctx, l.fields().fill(`SELECT h.outcome FROM {history} h WHERE h.job_name = {key} AND h.token = {token}`))
	if err == nil && !backends.Outcome(sets.only().str(0)).Released() {
		return backends.ErrLost
	}
	return err
}

func (l *lease) release(end backends.End, record, done string) string {
	f := l.fields()
	for k, v := range recordFields(backends.Record{Outcome: end.Outcome, ExitCode: end.ExitCode, Duration: &end.Duration,
		Reason: end.Reason}, "") {
		if _, known := f[k]; !known {
			f[k] = v
		}
	}
	f["limit"] = number(l.b.keep.Runs)
	f["reset"] = ""
	switch {
	case end.Outcome == backends.Succeeded:
		f["reset"] = ", starts = 0"
	case end.Outcome == backends.NotStarted && l.run == "":
		f["reset"] = ", starts = GREATEST(starts - 1, 0)"
	}
	return transaction(
		f.fill(`SELECT k.run_seq + 1 INTO @lr_seq FROM {keys} k WHERE k.job_name = {key} FOR UPDATE`),
		f.fill(record),
		f.fill(`SET @lr_go = `+done),
		l.free(f, end.Outcome),
		f.fill(`UPDATE {keys} SET run_seq = @lr_seq{reset} WHERE job_name = {key} AND @lr_go`),
		f.fill(l.count(end.Outcome)),
		l.prune(f),
	) + separator + l.b.t.old("@lr_go", l.b.keep) + f.fill(stillThere)
}

// stillThere looks, after COMMIT, whether the lease is gone indeed.
const stillThere = `, EXISTS (SELECT 1 FROM {leases} l WHERE ` + mine + ` AND l.released = 0)`

// quickRecord takes its number from the key's row and so need not look into the history. wholeRecord does, and completes
// a record that is there.
const (
	quickRecord = `INSERT INTO {history} ` + historyColumns + `
SELECT {key}, 0, @lr_seq` + releasedColumns

	wholeRecord = `SET @lr_seq = ` + lastRun + ` + 1` + separator + quickRecord + complete

	// Whether the record was written, seen from what is there; see granted for why not from ROW_COUNT().
	quickDone = `EXISTS (SELECT 1 FROM {history} h WHERE h.job_name = {key} AND h.kind = 0 AND h.seq = @lr_seq AND h.token = {token})`
	wholeDone = `EXISTS (SELECT 1 FROM {leases} l WHERE ` + mine + ` AND l.released = 0) AND EXISTS
  (SELECT 1 FROM {history} h WHERE h.job_name = {key} AND h.token = {token} AND h.outcome NOT IN ('crashed', 'lost'))`

	releasedColumns = `, l.token, l.run_id, l.attempt_count, l.holder, l.host, l.pid, l.slot, {outcome}, {reason}, {code},
  l.acquire_time, {now}, l.waited_us, {duration}, ''
FROM {leases} l WHERE ` + mine + ` AND {live}`
)

// free ends the lease: it deletes the row, or leaves it to the minimum hold.
func (l *lease) free(f statement, o backends.Outcome) string {
	gone := f.fill(`DELETE FROM {leases} WHERE job_name = {key} AND slot = {slot} AND token = {token} AND @lr_go`)
	if !l.hold || o == backends.NotStarted {
		return gone
	}
	return f.fill(`UPDATE {leases} SET released = 1 WHERE job_name = {key} AND slot = {slot} AND token = {token} AND @lr_go`) +
		separator + gone + f.fill(` AND hold_time <= {now}`)
}

// count keeps the run id's attempts and done-mark.
func (l *lease) count(o backends.Outcome) string {
	const runs = `UPDATE {runs} SET `
	const which = ` WHERE job_name = {key} AND run_id = {run} AND @lr_go`
	switch {
	case l.run == "":
		return ""
	case o == backends.Succeeded:
		return runs + `done_time = {now}, used_time = {now}` + which
	case o == backends.NotStarted:
		return runs + `attempts = GREATEST(attempts - 1, 0)` + which
	}
	return ""
}

// prune deletes what is too much, at every hundredth part of what is kept, so that a key has up to one in a hundred more. A
// key of which fewer tokens were handed out than records are kept has nothing to delete.
func (l *lease) prune(f statement) string {
	keep := int64(l.b.keep.Runs)
	if l.grant.Token <= keep || l.grant.Token%max(1, keep/100) != 0 {
		return ""
	}
	return f.fill(prune)
}

// Abandon undoes an Acquire that nobody learnt of, its attempt included; only the token stays used up.
func (b *backend) Abandon(ctx context.Context, r backends.Request) error {
	f := b.t.fields(r.Key)
	f["owner"], f["run"] = text(r.Owner), text(r.RunID)
	const own = ` l.job_name = {key} AND l.instance_id = {owner} AND l.released = 0`
	undo := transaction(
		f.fill(lockKey),
		f.fill(`SET @lr_run = (SELECT l.run_id FROM {leases} l WHERE`+own+` LIMIT 1)`),
		f.fill(`UPDATE {keys} SET starts = GREATEST(starts - 1, 0) WHERE job_name = {key} AND @lr_run = ''`),
		f.fill(`UPDATE {runs} SET attempts = GREATEST(attempts - 1, 0) WHERE job_name = {key} AND run_id = {run} AND @lr_run <> ''`),
		f.fill(`DELETE l FROM {leases} l WHERE`+own),
	)
	return b.do(ctx, "give back", repeatable, func(ctx context.Context, c *conn) error {
		_, err := c.query(ctx, undo)
		return err
	})
}

// Attach finds a live lease by its token, and tells whose it is where it is not for everybody who knows that.
func (b *backend) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	if err := backends.CheckKey(key); err != nil {
		return nil, err
	}
	f := b.t.fields(key)
	f["token"] = number(token)
	find := f.fill(`SELECT l.slot, l.instance_id, l.attempt_count, l.acquire_time, l.ttl_us, l.takeover, l.run_id,
  l.hold_time > l.acquire_time, l.loose, l.holder, l.host, l.pid, l.expire_time, l.hold_time, {now} FROM {leases} l WHERE l.job_name = {key} AND l.token = {token} AND {live}`)
	found := &lease{b: b, key: key}
	err := b.do(ctx, "attach", repeatable, func(ctx context.Context, c *conn) error {
		sets, err := c.query(ctx, find)
		if err != nil {
			return err
		}
		r := sets.only()
		if r == nil {
			return backends.ErrLost
		}
		own := answerLease{slot: int(r.num(0)), token: token, attempt: int(r.num(2)), takeover: r.num(5) != 0}
		var at time.Time
		if err = r.times(map[int]*time.Time{3: &own.acquired, 12: &own.expires, 13: &own.holding, 14: &at}); err != nil {
			return err
		}
		if r.num(8) == 0 {
			own.holder, own.host, own.pid = r.str(9), r.str(10), int(r.num(11))
			return own.held(key, backends.NotLoose, own.until(at), at)
		}
		found.owner, found.run, found.hold, found.grant = r.str(1), r.str(6), r.num(7) != 0, *own.grant(duration(r.num(4)))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
