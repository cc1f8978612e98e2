package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"slices"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

const recordColumns = `key, token, run_id, attempt, holder, host, pid, slot, outcome, reason, exit_code, started, ended, waited, duration, backend`

const recordTypes = "TitittiiTtiiIIit"

func scanRecord(row []driver.Value) (backends.Record, error) {
	if err := checkTypes(row, recordTypes); err != nil {
		return backends.Record{}, err
	}
	n := func(i int) int64 { return get[int64](row[i]) }
	r := backends.Record{Key: text(row[0]), Token: n(1), RunID: text(row[2]), Attempt: int(n(3)), Holder: text(row[4]),
		Host: text(row[5]), PID: int(n(6)), Outcome: backends.Outcome(text(row[8])), Reason: text(row[9]),
		StartedAt: fromMicros(n(11)), EndedAt: fromMicros(n(12)), Waited: time.Duration(n(13)), Backend: text(row[15])}
	if row[7] != nil {
		slot := int(n(7))
		r.Slot = &slot
	}
	if row[10] != nil {
		code := int(n(10))
		r.ExitCode = &code
	}
	if row[14] != nil {
		d := time.Duration(n(14))
		r.Duration = &d
	}
	return r, nil
}

// recordValues are the columns after key.
func (b *backend) recordValues(r backends.Record) []any {
	var slot, code, duration, backend any
	if r.Slot != nil {
		slot = *r.Slot
	}
	if r.ExitCode != nil {
		code = *r.ExitCode
	}
	if r.Duration != nil {
		duration = int64(*r.Duration)
	}
	if r.Backend != "" && r.Backend != b.Name() {
		backend = r.Backend
	}
	return []any{r.Token, r.RunID, r.Attempt, r.Holder, r.Host, r.PID, slot, string(r.Outcome), r.Reason, code,
		r.StartedAt.UnixMicro(), r.EndedAt.UnixMicro(), int64(r.Waited), duration, backend}
}

// insertRecord adds a record, numbered in k, which the caller saves.
func (b *backend) insertRecord(c *conn, k *keyRow, r backends.Record, now instant) error {
	number, refused := &k.ended, 0
	if r.Outcome.Refusal() {
		number, refused = &k.refused, 1
	}
	*number++
	_, err := c.exec(`INSERT INTO history (key, refused, seq, token, run_id, attempt, holder, host, pid, slot, outcome, reason, exit_code,
 started, ended, waited, duration, backend) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		append([]any{k.key, refused, *number}, b.recordValues(r)...)...)
	if err != nil {
		return err
	}
	return b.prune(c, k.key, refused, *number, r.RunID != "", now)
}

// prune cleans up as part of writing, at a cost that does not depend on how much there is: the key's surplus is one
// range of an index, and of what is too old a few rows at the left edge are looked at, more than one write adds.
func (b *backend) prune(c *conn, key string, refused int, number int64, runs bool, now instant) error {
	if surplus := number - int64(b.o.Keep.Runs); surplus > 0 {
		if _, err := c.exec(`DELETE FROM history WHERE key=? AND refused=? AND seq<=?`, key, refused, surplus); err != nil {
			return err
		}
	}
	_, err := c.exec(`DELETE FROM history WHERE id IN (SELECT id FROM (SELECT id, ended FROM history ORDER BY id LIMIT 4) WHERE ended<?)`,
		now.wall.Add(-b.o.Keep.Age).UnixMicro())
	if err != nil || !runs {
		return err
	}
	_, err = c.exec(`DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE at<? ORDER BY at LIMIT 4)`,
		now.wall.Add(-b.o.Keep.DoneAge).UnixMicro())
	return err
}

// findRecord returns the run with this token. It looks through the key's records, of which only so many are kept, since
// it is asked only where something went wrong.
func findRecord(c *conn, key string, token int64) (id int64, rec *backends.Record, err error) {
	err = c.query(func(row []driver.Value) error {
		r, err := scanRecord(row[1:])
		id, rec = get[int64](row[0]), &r
		return err
	}, `SELECT id, `+recordColumns+` FROM history WHERE key=? AND refused=0 AND token=?`, key, token)
	return id, rec, err
}

// complete corrects the record of the same token, or adds one.
func (b *backend) complete(c *conn, k *keyRow, r backends.Record, now instant) error {
	id, old, err := findRecord(c, k.key, r.Token)
	if err != nil {
		return err
	}
	if old == nil {
		return b.insertRecord(c, k, r, now)
	}
	_, err = c.exec(`UPDATE history SET token=?, run_id=?, attempt=?, holder=?, host=?, pid=?, slot=?, outcome=?, reason=?, exit_code=?,
 started=?, ended=?, waited=?, duration=?, backend=? WHERE id=?`, append(b.recordValues(backends.Complete(*old, r)), id)...)
	return err
}

// write adds a record that needs no completing, and saves k.
func (b *backend) write(c *conn, k *keyRow, r backends.Record, now instant) error {
	if err := b.insertRecord(c, k, r, now); err != nil {
		return err
	}
	return k.save(c)
}

// Record: a lease that is still in the store, dead or alive, is marked, so that no taker calls it crashed.
func (b *backend) Record(ctx context.Context, r backends.Record) error {
	if err := backends.CheckKey(r.Key); err != nil {
		return err
	}
	_, err := change(ctx, b, "record", creating, false, func(c *conn, now instant) (struct{}, error) {
		if r.StartedAt.IsZero() {
			r.StartedAt = now.wall
		}
		if r.EndedAt.IsZero() {
			r.EndedAt = now.wall
		}
		k, err := loadKey(c, r.Key)
		if err != nil {
			return struct{}{}, err
		}
		if r.Token == 0 || r.Outcome.Refusal() {
			return struct{}{}, b.write(c, &k, r, now)
		}
		return struct{}{}, b.recordToken(c, &k, r, now)
	})
	return err
}

func (b *backend) recordToken(c *conn, k *keyRow, r backends.Record, now instant) error {
	rows, err := leases(c, k.key)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(rows, func(l lease) bool { return l.token == r.Token && !l.recorded })
	if i >= 0 { // what the taker would have written, for the caller's record to correct
		if err := b.insertRecord(c, k, rows[i].crashed(now), now); err != nil {
			return err
		}
		if _, err := c.exec(`UPDATE leases SET recorded=1 WHERE key=? AND slot=?`, k.key, rows[i].slot); err != nil {
			return err
		}
	}
	if err := b.complete(c, k, r, now); err != nil {
		return err
	}
	return k.save(c)
}

// History adds the leases that ran out and that nobody has taken since, so that a crash shows at once and without
// writing.
func (b *backend) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	return read(ctx, b, "history", func(c *conn, now instant) ([]backends.Record, error) {
		if c == nil {
			return nil, nil
		}
		all, err := b.crashes(c, q.Key, now)
		if err != nil {
			return nil, err
		}
		each := func(row []driver.Value) error {
			r, err := scanRecord(row)
			r.Backend = cmp.Or(r.Backend, b.Name())
			all = append(all, r)
			return err
		}
		where, values := which(q)
		order := `id DESC`
		if q.Key != "" {
			order = `ended DESC, id DESC`
		}
		err = c.query(each, `SELECT `+recordColumns+` FROM history WHERE `+where+` ORDER BY `+order+` LIMIT ?`,
			append(values, cmp.Or(max(0, q.Limit), -1))...)
		slices.SortStableFunc(all, func(x, y backends.Record) int { return y.EndedAt.Compare(x.EndedAt) })
		return q.Select(all), err
	})
}

// which is q as a condition, and the values in it.
func which(q backends.Query) (where string, values []any) {
	where = `1`
	if q.Key != "" {
		where, values = `key=?`, append(values, q.Key)
	}
	if !q.Since.IsZero() {
		where, values = where+` AND ended>=?`, append(values, q.Since.UnixMicro())
	}
	if q.Outcomes != nil {
		where += ` AND outcome IN (` + strings.TrimSuffix(strings.Repeat(`?,`, len(q.Outcomes)), `,`) + `)`
		for _, o := range q.Outcomes {
			values = append(values, string(o))
		}
	}
	return where, values
}

func (b *backend) crashes(c *conn, key string, now instant) ([]backends.Record, error) {
	rows, err := leases(c, key)
	if err != nil {
		return nil, err
	}
	var all []backends.Record
	for i := range rows {
		if l := &rows[i]; !l.recorded && !l.released && !b.valid(l, now) {
			rec := l.crashed(now)
			rec.Backend = b.Name()
			all = append(all, rec)
		}
	}
	return all, nil
}
