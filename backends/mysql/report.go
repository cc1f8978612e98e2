package mysql

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// stateSelect begins what readStates reads: a row for each taken slot, or one for a key without.
const stateSelect = `SELECT {now}, k.job_name, k.token, k.pause_by, k.pause_reason, k.pause_time, k.pause_until,
  l.slot, l.token, l.holder, l.host, l.pid, l.run_id, l.attempt_count, l.acquire_time, l.renew_time, l.expire_time, l.hold_time,
  l.released, {waiting}`

// Status reads without a lock.
func (b *backend) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	for _, key := range keys {
		if err := backends.CheckKey(key); err != nil {
			return nil, err
		}
	}
	text := b.t.status(keys...)
	var all []backends.State
	err := b.do(ctx, "status", repeatable, func(ctx context.Context, c *conn) error {
		sets, err := c.query(ctx, text)
		if err == nil {
			all, err = readStates(sets)
		}
		return err
	})
	if err != nil || len(keys) == 0 {
		return all, err
	}
	return asAsked(all, keys), nil
}

// status asks for the states of the keys, or of all where none is named.
func (t tables) status(keys ...string) string {
	f := t.fields("")
	f["gone"] = before(goneAfter)
	f["waiting"] = f.fill(countWaiters)
	which := ""
	if len(keys) > 0 {
		list := make([]string, len(keys))
		for i, key := range keys {
			list[i] = text(key)
		}
		which = " WHERE k.job_name IN (" + strings.Join(list, ", ") + ")"
	}
	return f.fill(stateSelect+` FROM {keys} k LEFT JOIN {leases} l ON l.job_name = k.job_name AND {taken}`) + which +
		" ORDER BY k.job_name, l.slot"
}

// asAsked puts the states into the order of the keys; a key that the store has never seen is free.
func asAsked(all []backends.State, keys []string) []backends.State {
	found := map[string][]backends.State{}
	for _, s := range all {
		found[s.Key] = append(found[s.Key], s)
	}
	var out []backends.State
	for _, key := range keys {
		if len(found[key]) == 0 {
			nobody := 0
			out = append(out, backends.State{Key: key, State: backends.Free, Waiters: &nobody})
		}
		out = append(out, found[key]...)
	}
	return out
}

// readStates reads what stateSelect selects, in the first set.
func readStates(sets sets) ([]backends.State, error) {
	if len(sets) == 0 {
		return nil, errNoAnswer
	}
	var all []backends.State
	for _, r := range sets[0].rows {
		now, err := r.time(0)
		if err != nil {
			return nil, err
		}
		read := freeState
		if !r.null(7) {
			read = heldState
		}
		s, err := read(r, now)
		if err != nil {
			return nil, err
		}
		if !r.null(19) {
			n := int(r.num(19))
			s.Waiters = &n
		}
		all = append(all, s)
	}
	return all, nil
}

func freeState(r row, now time.Time) (backends.State, error) {
	s := backends.State{Key: r.str(1), State: backends.Free, Token: r.num(2)}
	p, err := pauseOf(r, now)
	if err != nil || p == nil {
		return s, err
	}
	s.State, s.Holder, s.Reason, s.AcquiredAt = backends.Paused, p.Holder, p.Reason, &p.Since
	if !p.Until.IsZero() {
		s.ExpiresAt, s.ExpiresIn = &p.Until, &p.Left
	}
	return s, nil
}

// pauseOf is the pause that the row's key is under, nil for none.
func pauseOf(r row, now time.Time) (*backends.HeldError, error) {
	p := &backends.HeldError{Key: r.str(1), Holder: r.str(3), Reason: r.str(4), Paused: true}
	if err := r.times(map[int]*time.Time{5: &p.Since, 6: &p.Until}); err != nil {
		return nil, err
	}
	if p.Since.IsZero() || !p.Until.IsZero() && !now.Before(p.Until) {
		return nil, nil
	}
	if !p.Until.IsZero() {
		p.Left = p.Until.Sub(now)
	}
	return p, nil
}

func heldState(r row, now time.Time) (backends.State, error) {
	slot := int(r.num(7))
	s := backends.State{Key: r.str(1), State: backends.Held, Slot: &slot, Token: r.num(8), Holder: r.str(9), Host: r.str(10),
		PID: int(r.num(11)), RunID: r.str(12), Attempt: int(r.num(13))}
	var acquired, renewed time.Time
	l := answerLease{released: r.num(18) != 0}
	if err := r.times(map[int]*time.Time{14: &acquired, 15: &renewed, 16: &l.expires, 17: &l.holding}); err != nil {
		return s, err
	}
	until := l.until(now)
	left := until.Sub(now)
	s.AcquiredAt, s.RenewedAt, s.ExpiresAt, s.ExpiresIn = &acquired, &renewed, &until, &left
	if !l.live(now) {
		s.Reason = backends.MinimumHold
	}
	p, err := pauseOf(r, now)
	if p != nil {
		s.AlsoPaused(p)
	}
	return s, err
}

// History reads the records and the leases that ran out and that nobody took since, so that a crash shows without
// another run. Both are read in one transaction, so that a taker between them does not hide a crash.
func (b *backend) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	if q.Key != "" {
		if err := backends.CheckKey(q.Key); err != nil {
			return nil, err
		}
	}
	all, err := b.records(ctx, b.t.historyText(q, b.keep, "", ""))
	slices.SortStableFunc(all, func(x, y backends.Record) int {
		return cmp.Or(y.EndedAt.Compare(x.EndedAt), cmp.Compare(y.Token, x.Token))
	})
	return q.Select(all), err
}

// records are what a text asks for that historyText made.
func (b *backend) records(ctx context.Context, text string) (all []backends.Record, err error) {
	err = b.do(ctx, "history", repeatable, func(ctx context.Context, c *conn) error {
		all = nil
		sets, err := c.query(ctx, text)
		if err != nil {
			return err
		}
		for _, s := range sets {
			for _, r := range s.rows {
				rec, err := b.readRecord(r)
				if err != nil {
					return err
				}
				all = append(all, rec)
			}
		}
		return nil
	})
	return all, err
}

// historyText asks for what q selects, but for its limit of leases that ran out; first and last bound the keys where they are
// not empty.
func (t tables) historyText(q backends.Query, keep backends.Keep, first, last string) string {
	f := t.fields(q.Key)
	f["age"], f["of_h"], f["of_l"], f["limit"] = before(keep.Age), "", "", ""
	if q.Key != "" {
		f["of_h"], f["of_l"] = f.fill(" AND h.job_name = {key}"), f.fill(" AND l.job_name = {key}")
	}
	if q.Key == "" && first != "" {
		f["of_h"] = " AND h.job_name BETWEEN " + text(first) + " AND " + text(last)
		f["of_l"] = " AND l.job_name BETWEEN " + text(first) + " AND " + text(last)
	}
	if !q.Since.IsZero() {
		f["of_h"] += " AND h.end_time >= " + instant(q.Since)
		f["of_l"] += " AND l.expire_time >= " + instant(q.Since)
	}
	if q.Outcomes != nil {
		f["of_h"] += " AND h.outcome IN (" + outcomeList(q.Outcomes) + ")"
	}
	if q.Limit > 0 {
		f["limit"] = " LIMIT " + number(q.Limit)
	}
	return "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;\n" + transaction(
		f.fill(`SELECT `+recordSelect+` FROM {history} h WHERE h.end_time >= {age}{of_h}
ORDER BY h.end_time DESC, h.job_name DESC, h.kind DESC, h.seq DESC{limit}`),
		f.fill(`SELECT l.job_name, l.run_id, l.attempt_count, l.holder, l.host, l.pid, l.token, l.slot, 'crashed', '',
  NULL, l.acquire_time, l.expire_time, l.waited_us, NULL, '' FROM {leases} l
WHERE l.released = 0 AND l.expire_time <= {now} AND l.expire_time >= {age}{of_l}
  AND NOT EXISTS (SELECT 1 FROM {history} p WHERE p.job_name = l.job_name AND p.token = l.token)`),
	)
}

// outcomeList is never empty, which SQL has no way to write.
func outcomeList(all []backends.Outcome) string {
	list := "''"
	for _, o := range all {
		list += ", " + text(string(o))
	}
	return list
}
