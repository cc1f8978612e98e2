package mysql

import (
	"context"
	"errors"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Templates for history rows. They are used under the lock on the key's row, which is what makes nextSeq free.
const (
	historyColumns = `(job_name, kind, seq, token, run_id, attempt_count, holder, host, pid, slot, outcome, reason, exit_code,
  start_time, end_time, waited_us, duration_us, backend)`

	nextSeq = `COALESCE((SELECT MAX(h.seq) FROM {history} h WHERE h.job_name = {key} AND h.kind = {kind}), 0) + 1`

	lastRun = `COALESCE((SELECT MAX(h.seq) FROM {history} h WHERE h.job_name = {key} AND h.kind = 0), 0)`

	// bury records the leases that its WHERE names as crashed.
	bury = `INSERT INTO {history} ` + historyColumns + `
SELECT l.job_name, 0, ` + lastRun + ` + 1, l.token, l.run_id, l.attempt_count, l.holder, l.host, l.pid, l.slot, 'crashed', '', NULL,
  l.acquire_time, LEAST(l.expire_time, {now}), l.waited_us, NULL, '' FROM {leases} l`

	unrecorded = `NOT EXISTS (SELECT 1 FROM {history} p WHERE p.job_name = {key} AND p.token = l.token)`

	// complete corrects a record that is there already, as backends.Complete does. Assignments see those before them,
	// so that outcome, by which all of them decide, comes last.
	complete = `
ON DUPLICATE KEY UPDATE
  exit_code = IF({history}.outcome IN ('crashed', 'lost', 'unlocked'), COALESCE({code}, {history}.exit_code), {history}.exit_code),
  end_time = IF({history}.outcome IN ('crashed', 'lost', 'unlocked'), {end}, {history}.end_time),
  duration_us = IF({history}.outcome IN ('crashed', 'lost', 'unlocked'), COALESCE({duration}, {history}.duration_us), {history}.duration_us),
  reason = IF({history}.outcome IN ('crashed', 'lost'), {reason}, {history}.reason),
  outcome = IF({history}.outcome IN ('crashed', 'lost'), {outcome}, {history}.outcome)`

	insertRecord = `INSERT INTO {history} ` + historyColumns + `
SELECT {key}, {kind}, ` + nextSeq + `, {token}, {run}, {attempt}, {holder}, {host}, {pid}, {slot}, {outcome}, {reason}, {code},
  {start}, {end}, {waited}, {duration}, {backend} FROM {keys} k WHERE k.job_name = {key}` + complete

	// numberRuns lets the key's row know the last number that was given to a run.
	numberRuns = `UPDATE {keys} SET run_seq = GREATEST(run_seq, ` + lastRun + `) WHERE job_name = {key}`

	// prune deletes what is too much of one key and kind: one range at the left edge of the primary key.
	prune = `SET @lr_cut = (SELECT MAX(h.seq) FROM {history} h WHERE h.job_name = {key} AND h.kind = {kind}) - {limit}` +
		separator + `DELETE FROM {history} WHERE job_name = {key} AND kind = {kind} AND seq <= @lr_cut`
)

// Record writes under the lock on the key's row.
func (b *backend) Record(ctx context.Context, r backends.Record) error {
	if err := backends.CheckKey(r.Key); err != nil {
		return err
	}
	return b.record(ctx, r)
}

func (b *backend) record(ctx context.Context, r backends.Record) error {
	again := r.Token != 0 // without one it would be there twice
	var seen row
	err := b.do(ctx, "record", again, func(ctx context.Context, c *conn) error {
		sets, err := c.query(ctx, b.t.record(r, b.keep, b.name))
		seen = sets.only()
		return err
	})
	if err == nil {
		b.clean(ctx, seen)
	}
	return err
}

// record is the text that adds a record or completes the one of its token. A lease that ran out, and that nobody has
// recorded yet, is recorded as crashed first, so that its record tells who that was.
func (t tables) record(r backends.Record, keep backends.Keep, name string) string {
	f := t.fields(r.Key)
	for k, v := range recordFields(r, name) {
		f[k] = v
	}
	f["limit"] = number(keep.Runs)
	base := ""
	if r.Token != 0 {
		base = f.fill(bury + ` WHERE l.job_name = {key} AND l.token = {token} AND ` + unrecorded)
	}
	return transaction(f.fill(makeKey), base, f.fill(insertRecord), f.fill(numberRuns), f.fill(prune)) +
		separator + t.old("1", keep)
}

// Cleaning is an exchange of its own, since nothing that goes wrong with it may look like an answer to the write before. It
// happens once something has been too old for a while, and then deletes up to cleanMost rows of each kind of whatever is too
// old by then: so it is rare, and yet the store shrinks faster than it can grow.
const cleanMost = 500

// slack is that while.
func slack(age time.Duration) time.Duration { return age + age/200 }

// old asks, beside what, whether there is something to clean: a look at the left ends of two indexes.
func (t tables) old(what string, keep backends.Keep) string {
	f := t.fields("")
	f["what"], f["age"], f["done"] = what, before(slack(keep.Age)), before(slack(keep.DoneAge))
	return f.fill(`SELECT {what}, (SELECT MIN(h.end_time) FROM {history} h) < {age}, (SELECT MIN(r.used_time) FROM {runs} r) < {done}`)
}

// clean deletes what is too old where seen, the answer to old, tells that it is time. It is not worth waiting for.
func (b *backend) clean(ctx context.Context, seen row) {
	if seen.num(1) == 0 && seen.num(2) == 0 {
		return
	}
	f := b.t.fields("")
	f["age"], f["done"], f["most"] = before(b.keep.Age), before(b.keep.DoneAge), number(cleanMost)
	text := f.fill(`DELETE FROM {history} WHERE end_time < {age} ORDER BY end_time LIMIT {most}` +
		separator + `DELETE FROM {runs} WHERE used_time < {done} ORDER BY used_time LIMIT {most}`)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = b.do(ctx, "clean up", repeatable, func(ctx context.Context, c *conn) error {
		_, err := c.query(ctx, text)
		return err
	})
}

// recordSelect are the columns that readRecord reads.
const recordSelect = `h.job_name, h.run_id, h.attempt_count, h.holder, h.host, h.pid, h.token, h.slot, h.outcome, h.reason,
  h.exit_code, h.start_time, h.end_time, h.waited_us, h.duration_us, h.backend`

func (b *backend) readRecord(r row) (backends.Record, error) {
	rec := backends.Record{Key: r.str(0), RunID: r.str(1), Attempt: int(r.num(2)), Holder: r.str(3), Host: r.str(4), PID: int(r.num(5)),
		Token: r.num(6), Outcome: backends.Outcome(r.str(8)), Reason: r.str(9), Waited: duration(r.num(13)), Backend: r.str(15)}
	if !r.null(7) {
		n := int(r.num(7))
		rec.Slot = &n
	}
	if !r.null(10) {
		n := int(r.num(10))
		rec.ExitCode = &n
	}
	if !r.null(14) {
		d := duration(r.num(14))
		rec.Duration = &d
	}
	if rec.Backend == "" {
		rec.Backend = b.name
	}
	return rec, r.times(map[int]*time.Time{11: &rec.StartedAt, 12: &rec.EndedAt})
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// errNoAnswer is a text that went through without what it should have shown.
var errNoAnswer = &fault{phase: "asking", err: errors.New("the server's answer is incomplete"),
	remedy: "something between may not pass on several statements in one text: connect to the server itself"}
