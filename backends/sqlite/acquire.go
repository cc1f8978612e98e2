package sqlite

import (
	"cmp"
	"context"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Acquire looks first and takes the write lock only if a slot seems free: at one instant 200 starts of one key cost one
// grant and 199 looks, and none of these waits for another.
func (b *backend) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	g, err := do(ctx, b, "acquire", creating, func(c *conn) (granted, error) {
		refused, err := within(c, "BEGIN", func() (error, error) { return b.look(c, r, b.now()) })
		if err != nil || refused != nil {
			return granted{refused: refused}, err
		}
		return commit(b, c, r.HoldAtLeast > 0, func(c *conn, now instant) (granted, error) { return b.take(c, r, now) })
	})
	switch {
	case err != nil:
		return nil, err
	case g.refused != nil:
		if r.Last && !g.noted {
			b.noteRefusal(ctx, r, g.refused)
		}
		return nil, g.refused
	}
	return &handle{b: b, key: r.Key, slot: g.l.slot, owner: r.Owner, runID: r.RunID, g: g.l.grant()}, nil
}

// look is why r would be refused now, nil if it would not.
func (b *backend) look(c *conn, r backends.Request, now instant) (error, error) {
	rows, err := leases(c, r.Key)
	if err != nil {
		return nil, err
	}
	if owned(rows, r.Owner) != nil {
		return nil, nil
	}
	k, err := loadKey(c, r.Key)
	if err != nil {
		return nil, err
	}
	return b.refusal(c, r, rows, &k, now)
}

// refusal decides about a request whose owner has no lease: done before held, since a run that is done need not wait,
// and held before paused.
func (b *backend) refusal(c *conn, r backends.Request, rows []lease, k *keyRow, now instant) (error, error) {
	if r.RunID != "" {
		if done, err := doneAt(c, r.Key, r.RunID); err != nil {
			return nil, err
		} else if done != 0 {
			return &backends.DoneError{Key: r.Key, RunID: r.RunID, At: fromMicros(done)}, nil
		}
	}
	if h := b.inTheWay(rows, r, now); h != nil {
		return h, nil
	}
	if k.paused(now) {
		return k.pausedError(now), nil
	}
	return nil, nil
}

// inTheWay names the lease that keeps r from a slot: of the same run id, or of those that take all slots.
func (b *backend) inTheWay(rows []lease, r backends.Request, now instant) *backends.HeldError {
	for i := range rows {
		if l := &rows[i]; r.RunID != "" && l.runID == r.RunID && b.valid(l, now) {
			return l.held(backends.SameRun, l.expires.left(now), now)
		}
	}
	return b.crowd(rows, r.Slots, now)
}

// crowd names the lease that will be free first where all slots are taken. Leases in slots beyond the number asked for
// count as well: "at most N holders at once" says nothing about which.
func (b *backend) crowd(rows []lease, slots int, now instant) *backends.HeldError {
	var first *backends.HeldError
	n := 0
	for i := range rows {
		valid := b.valid(&rows[i], now)
		if !valid && !rows[i].holding(now) {
			continue
		}
		n++
		if h := rows[i].heldError(now, valid); first == nil || h.Left < first.Left {
			first = h
		}
	}
	if n < slots {
		return nil
	}
	return first
}

func owned(rows []lease, owner string) *lease {
	for i := range rows {
		if rows[i].owner == owner && !rows[i].released {
			return &rows[i]
		}
	}
	return nil
}

// noteTime bounds the record of a refusal, which must not make a skip wait long for other writers.
const noteTime = 500 * time.Millisecond

// noteRefusal writes a refusal into the history; failing changes nothing.
func (b *backend) noteRefusal(ctx context.Context, r backends.Request, refused error) {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	change(ctx, b, "record", creating, false, func(c *conn, now instant) (struct{}, error) {
		k, err := loadKey(c, r.Key)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, b.write(c, &k, r.Refused(refused, now.wall), now)
	})
}

// granted is what an attempt to take a slot came to.
type granted struct {
	l       lease
	refused error
	noted   bool // the refusal is in the history
}

// take asks again under the write lock and fills a slot. The kernel lock is there before the row can be seen, else
// another process could take the new holder for a dead one.
func (b *backend) take(c *conn, r backends.Request, now instant) (granted, error) {
	if err := b.reserve(); err != nil {
		return granted{}, fmt.Errorf("reserving room for its renewals: %w", err)
	}
	live, fresh, err := b.lockFor(r)
	if err != nil {
		return granted{}, err
	}
	g, err := b.grant(c, r, live, now)
	if fresh && (err != nil || g.refused != nil) {
		b.dropLock(r.Owner)
	}
	return g, err
}

// lockFor takes the kernel lock of a holder that will live as long as its lease. It returns the number of its file, 0
// where the lease is left to its expiry, and whether an earlier attempt had not taken the lock already.
func (b *backend) lockFor(r backends.Request) (ino int64, fresh bool, err error) {
	if r.Detached || !haveLocks {
		return 0, false, nil
	}
	if err := b.ensureLive(); err != nil {
		return 0, false, err
	}
	l, fresh := b.keepLock(r.Owner)
	if l == nil { // a file system without such locks
		return 0, false, nil
	}
	return l.ino, fresh, nil
}

func (b *backend) grant(c *conn, r backends.Request, live int64, now instant) (granted, error) {
	rows, err := leases(c, r.Key)
	if err != nil {
		return granted{}, err
	}
	if l := owned(rows, r.Owner); l != nil {
		l.live = live
		return granted{l: *l}, l.extend(c, r.TTL, now)
	}
	k, err := loadKey(c, r.Key)
	if err != nil {
		return granted{}, err
	}
	refused, err := b.refusal(c, r, rows, &k, now)
	if err != nil {
		return granted{}, err
	}
	if refused != nil {
		if r.Last {
			err = b.write(c, &k, r.Refused(refused, now.wall), now)
		}
		return granted{refused: refused, noted: r.Last}, err
	}
	l, err := b.fill(c, r, rows, &k, live, now)
	return granted{l: l}, err
}

// extend counts the lease's time anew from now.
func (l *lease) extend(c *conn, ttl time.Duration, now instant) error {
	l.ttl, l.renewed, l.expires = ttl, now.micros(), now.plus(ttl)
	_, err := c.exec(`UPDATE leases SET ttl=?, renewed=?, expires=?, boot=?, expires_boot=?, live=? WHERE key=? AND slot=?`,
		int64(l.ttl), l.renewed, l.expires.wall, l.expires.boot, l.expires.mono, l.live, l.key, l.slot)
	return err
}

// fill writes the lease into the lowest slot that is not taken.
//
// Tokens follow the clock's microseconds and not a count, so that they rise even where a power cut took the last commits
// back, or the database was deleted. Where the clock was set back they count on from the last one. The token of a lease that
// is another store's takes the clock's place.
func (b *backend) fill(c *conn, r backends.Request, rows []lease, k *keyRow, live int64, now instant) (lease, error) {
	slot, old := b.freeSlot(rows, now)
	l := lease{key: r.Key, slot: slot, owner: r.Owner, holder: r.Holder, host: r.Host, pid: r.PID, runID: r.RunID,
		waited: r.Waited, ttl: r.TTL, loose: r.Loose, live: live, acquired: now.micros(), renewed: now.micros(), expires: now.plus(r.TTL)}
	if r.HoldAtLeast > 0 {
		l.hold = now.plus(r.HoldAtLeast)
	}
	if old != nil && !old.released {
		l.takeover = true
		if err := b.bury(c, k, old, now); err != nil {
			return l, err
		}
	}
	k.token = max(k.token+1, cmp.Or(r.Token, now.micros()))
	l.token = k.token
	var err error
	if l.attempt, err = k.start(c, r.RunID, now); err != nil {
		return l, err
	}
	if err := k.save(c); err != nil {
		return l, err
	}
	return l, l.insert(c)
}

// freeSlot returns the lowest slot that is not taken, and the dead lease that lies in it.
func (b *backend) freeSlot(rows []lease, now instant) (int, *lease) {
	slot := 0
	for i := range rows { // in the order of slots
		if rows[i].slot != slot {
			break
		}
		if !b.taken(&rows[i], now) {
			return slot, &rows[i]
		}
		slot++
	}
	return slot, nil
}

// bury writes the record of a lease that nobody released.
func (b *backend) bury(c *conn, k *keyRow, l *lease, now instant) error {
	if l.recorded {
		return nil
	}
	return b.insertRecord(c, k, l.crashed(now), now)
}

// start counts one more attempt.
func (k *keyRow) start(c *conn, runID string, now instant) (int, error) {
	if runID == "" {
		k.starts++
		return int(k.starts), nil
	}
	n := 0
	err := c.query(func(row []driver.Value) error {
		n = int(get[int64](row[0]))
		return nil
	}, `INSERT INTO runs (key, run_id, attempts, at) VALUES (?,?,1,?)
 ON CONFLICT (key, run_id) DO UPDATE SET attempts=attempts+1, at=excluded.at RETURNING attempts`, k.key, runID, now.micros())
	return n, err
}

// doneAt is when the run id succeeded, 0 if it did not.
func doneAt(c *conn, key, runID string) (int64, error) {
	var at int64
	err := c.query(func(row []driver.Value) error {
		at = get[int64](row[0])
		return checkTypes(row, "i")
	}, `SELECT done FROM runs WHERE key=? AND run_id=?`, key, runID)
	return at, err
}

// Abandon deletes what the owner has, its attempt included; only the token stays used up.
func (b *backend) Abandon(ctx context.Context, r backends.Request) error {
	_, err := change(ctx, b, "give back", changing, false, func(c *conn, now instant) (struct{}, error) {
		if c == nil {
			return struct{}{}, nil
		}
		rows, err := leases(c, r.Key)
		if err != nil {
			return struct{}{}, err
		}
		l := owned(rows, r.Owner)
		if l == nil {
			return struct{}{}, nil
		}
		if err := l.delete(c); err != nil {
			return struct{}{}, err
		}
		k, err := loadKey(c, r.Key)
		if err != nil {
			return struct{}{}, err
		}
		if err := k.count(c, l.runID, backends.NotStarted, now); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, k.save(c)
	})
	b.dropLock(r.Owner) // whatever came of it: without its lock the lease is dead to all others
	return err
}

// Attach finds the lease by its token. The kernel lock, if there is one, stays its holder's own.
func (b *backend) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	l, err := read(ctx, b, "attach", func(c *conn, now instant) (*lease, error) {
		if c == nil {
			return nil, backends.ErrLost
		}
		rows, err := leases(c, key)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			if l := &rows[i]; l.token == token && b.valid(l, now) {
				if !l.loose {
					return nil, l.held(backends.NotLoose, l.left(now, true), now)
				}
				return l, nil
			}
		}
		return nil, backends.ErrLost
	})
	if err != nil {
		return nil, err
	}
	return &handle{b: b, key: key, slot: l.slot, owner: l.owner, runID: l.runID, g: l.grant()}, nil
}
