package zookeeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/internal/boottime"
)

// clock is what is known of the servers' time. Only what is written bears it: the leader stamps each transaction. So it is
// read by writing the node clock, and from then on the time that has passed here is added, on a clock that goes on in
// suspend; each later write sets it again. Ages and holds are judged by it. That a lease is over is not: sessions end by
// the leader's own clock, without any of this.
type clock struct {
	mu   sync.Mutex
	at   time.Time     // the servers' time, not later than it was
	boot time.Duration // when that was learnt
}

// fresh is how long a reading is good for. Two clocks part by less than a millisecond meanwhile, unless one is set.
const fresh = 15 * time.Second

// stepped is a difference that no network explains: the leader's clock was set, or another leads.
const stepped = time.Second

// observe takes the time, in ms, of a write that was just answered.
func (c *clock) observe(mtime int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, boot := time.UnixMilli(mtime).UTC(), boottime.Now()
	// A reading that came quicker says more than one that was long on its way.
	if guess := c.at.Add(boot - c.boot); !c.at.IsZero() && guess.After(at) && guess.Sub(at) < stepped {
		at = guess
	}
	c.at, c.boot = at, boot
}

// read gives the servers' time where it is known well enough.
func (c *clock) read() (now time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := boottime.Now() - c.boot
	return c.at.Add(passed).Truncate(time.Microsecond), !c.at.IsZero() && passed < fresh
}

// nowOrHost is now for what is shown to people: who may not write is given this host's time. It may be off by as much as
// its clock, and nothing is decided by it.
func (b *backend) nowOrHost(ctx context.Context, s *session) (time.Time, error) {
	now, err := b.now(ctx, s)
	if errors.Is(err, zk.ErrNoAuth) && b.c.readOnly {
		return time.Now().UTC().Truncate(time.Microsecond), nil
	}
	return now, err
}

// now is the servers' time, asked for where it is not known.
func (b *backend) now(ctx context.Context, s *session) (time.Time, error) {
	if now, ok := b.clock.read(); ok {
		return now, nil
	}
	if err := b.confirm(ctx, s); err != nil {
		return time.Time{}, err
	}
	now, _ := b.clock.read()
	return now, nil
}
