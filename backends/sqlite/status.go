package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/lockrun/lockrun/backends"
)

// Status reads all rows in two statements where no keys are named.
func (b *backend) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	return read(ctx, b, "status", func(c *conn, now instant) ([]backends.State, error) {
		var all []backends.State
		if len(keys) == 0 && c != nil {
			return b.statusAll(c, now)
		}
		for _, key := range keys {
			k := keyRow{key: key}
			var rows []lease
			if c != nil {
				var err error
				if k, err = loadKey(c, key); err != nil {
					return nil, err
				}
				if rows, err = leases(c, key); err != nil {
					return nil, err
				}
			}
			all = append(all, b.states(&k, rows, now)...)
		}
		return all, nil
	})
}

func (b *backend) statusAll(c *conn, now instant) ([]backends.State, error) {
	rows, err := leases(c, "")
	if err != nil {
		return nil, err
	}
	byKey := map[string][]lease{}
	for _, l := range rows {
		byKey[l.key] = append(byKey[l.key], l)
	}
	var all []backends.State
	err = c.query(func(row []driver.Value) error {
		k, err := scanKey(row)
		if err == nil {
			all = append(all, b.states(&k, byKey[k.key], now)...)
		}
		return err
	}, `SELECT `+keyColumns+` FROM keys ORDER BY key`)
	return all, err
}

// states is one State for each taken slot, or one for a key that is free or paused.
func (b *backend) states(k *keyRow, rows []lease, now instant) []backends.State {
	waiters := b.watch.waiters(k.key)
	var all []backends.State
	for i := range rows {
		valid := b.valid(&rows[i], now)
		if valid || rows[i].holding(now) {
			s := rows[i].state(now, valid)
			s.Waiters = waiters
			if k.paused(now) {
				s.AlsoPaused(k.pausedError(now))
			}
			all = append(all, s)
		}
	}
	if all != nil {
		return all
	}
	s := backends.State{Key: k.key, State: backends.Free, Token: k.token, Waiters: waiters}
	if k.paused(now) {
		p := k.pausedError(now)
		s.State, s.Holder, s.Reason, s.AcquiredAt = backends.Paused, p.Holder, p.Reason, &p.Since
		if !p.Until.IsZero() {
			s.ExpiresAt, s.ExpiresIn = &p.Until, &p.Left
		}
	}
	return []backends.State{s}
}

func (l *lease) state(now instant, valid bool) backends.State {
	slot, acquired, renewed, left := l.slot, fromMicros(l.acquired), fromMicros(l.renewed), l.left(now, valid)
	expires := until(now, left)
	s := backends.State{Key: l.key, State: backends.Held, Holder: l.holder, Host: l.host, PID: l.pid, Token: l.token, Slot: &slot,
		AcquiredAt: &acquired, RenewedAt: &renewed, ExpiresAt: &expires, ExpiresIn: &left, RunID: l.runID, Attempt: l.attempt}
	if !valid {
		s.Reason = backends.MinimumHold
	}
	return s
}

// Break ends leases and minimum holds, and leaves the rest.
func (b *backend) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	broken, err := change(ctx, b, "unlock", changing, true, func(c *conn, now instant) ([]backends.State, error) {
		if c == nil {
			return nil, backends.ErrNotHeld
		}
		rows, err := leases(c, key)
		if err != nil {
			return nil, err
		}
		k, err := loadKey(c, key)
		if err != nil {
			return nil, err
		}
		var broken []backends.State
		for i := range rows {
			l := &rows[i]
			if token != 0 && l.token != token || !b.taken(l, now) {
				continue
			}
			broken = append(broken, l.state(now, b.valid(l, now)))
			if err := b.breakOne(c, &k, l, by, now); err != nil {
				return nil, err
			}
		}
		if broken == nil {
			return nil, backends.ErrNotHeld
		}
		return broken, k.save(c)
	})
	return broken, err
}

func (b *backend) breakOne(c *conn, k *keyRow, l *lease, by string, now instant) error {
	if !l.recorded {
		rec := l.record(backends.Unlocked, now.wall)
		rec.Reason = by
		if err := b.insertRecord(c, k, rec, now); err != nil {
			return err
		}
	}
	return l.delete(c)
}

// Pause and Resume wait for the disk: an operator's word outlives a power cut.
func (b *backend) Pause(ctx context.Context, key string, p backends.Pause) error {
	if err := backends.CheckKey(key); err != nil {
		return err
	}
	_, err := change(ctx, b, "pause", creating, true, func(c *conn, now instant) (struct{}, error) {
		k, err := loadKey(c, key)
		if err != nil {
			return struct{}{}, err
		}
		k.pause = &pauseRow{by: p.By, reason: p.Reason, at: now.micros()}
		if p.For > 0 {
			k.pause.until = now.plus(p.For)
		}
		return struct{}{}, k.save(c)
	})
	return err
}

func (b *backend) Resume(ctx context.Context, key string) error {
	_, err := change(ctx, b, "resume", changing, true, func(c *conn, now instant) (struct{}, error) {
		if c == nil {
			return struct{}{}, backends.ErrNotHeld
		}
		k, err := loadKey(c, key)
		if err == nil && !k.paused(now) {
			err = backends.ErrNotHeld
		}
		if err != nil {
			return struct{}{}, err
		}
		k.pause = nil
		return struct{}{}, k.save(c)
	})
	return err
}
