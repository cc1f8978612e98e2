package sqlite

import (
	"context"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// pollEvery is how often a waiter looks: a release is seen within 50 ms, at a fraction of a per cent of a processor.
const pollEvery = 20 * time.Millisecond

// view is what a waiter saw last, so that it reads rows only after somebody has written.
type view struct {
	version string
	writes  int64
	id      fileID
	rows    []lease
	key     keyRow
}

// Wait looks every 20 ms: at a counter of SQLite's in shared memory, at the holders' kernel locks and at the clock. It
// writes nothing; that there is a waiter shows by a kernel lock of its own.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	if l := lockByte(b.livePath(), waiterByte(r.Key, r.Owner)); l != nil {
		defer l.f.Close()
	}
	var v *view
	for {
		var left time.Duration
		var err error
		if v, left, err = b.peek(ctx, r, v); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		if left <= 0 {
			return nil
		}
		if err := sleep(ctx, min(left, pollEvery)); err != nil {
			return err
		}
	}
}

// peek returns how long r has to wait at most, 0 if it may ask again. v is the view before.
func (b *backend) peek(ctx context.Context, r backends.Request, v *view) (*view, time.Duration, error) {
	type answer struct {
		v    *view
		left time.Duration
	}
	ctx, cancel := context.WithTimeout(ctx, b.o.Timeout)
	defer cancel()
	a, err := do(ctx, b, "wait", reading, func(c *conn) (answer, error) {
		if c == nil {
			return answer{}, nil
		}
		v, err := b.refresh(c, r.Key, v)
		if err != nil {
			return answer{}, err
		}
		return answer{v, b.mustWait(r, v)}, nil
	})
	return a.v, a.left, err
}

func (b *backend) refresh(c *conn, key string, v *view) (*view, error) {
	writes := b.writes.Load()
	version, err := c.one("PRAGMA data_version")
	if err != nil || v != nil && v.version == version && v.writes == writes && v.id == b.id {
		return v, err
	}
	v = &view{version: version, writes: writes, id: b.id}
	if v.rows, err = leases(c, key); err == nil {
		v.key, err = loadKey(c, key)
	}
	return v, err
}

// mustWait is the time until the refusal that r would meet runs out by itself.
func (b *backend) mustWait(r backends.Request, v *view) time.Duration {
	now := b.now()
	if h := b.crowd(v.rows, r.Slots, now); h != nil {
		return h.Left
	}
	if !v.key.paused(now) {
		return 0
	}
	if left := v.key.pausedError(now).Left; left > 0 {
		return left
	}
	return pollEvery
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
