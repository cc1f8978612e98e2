package mysql

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockrun/lockrun/backends"
)

var _ backends.Waiter = (*backend)(nil)

// A waiter looks after firstLook, then after pauses that double up to mostLook.
const (
	firstLook = 20 * time.Millisecond
	mostLook  = 250 * time.Millisecond
)

// Wait looks, since the server has nothing to tell with. A look is one read by primary key, which takes no lock, so that
// however many wait, whoever renews or releases does not wait for them; asking for the lease instead would lock the key.
//
// A look without an answer ends the waiting: the caller then asks, and learns why.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	for pause := firstLook; ; pause = min(2*pause, mostLook) {
		left, err := b.left(ctx, r)
		if err != nil || left <= 0 {
			return err
		}
		if !sleep(ctx, min(left, pause/2+rand.N(pause/2+1))) {
			return ctx.Err()
		}
	}
}

// left is how long the key stays taken for r unless somebody renews or releases; 0 where it may be free.
func (b *backend) left(ctx context.Context, r backends.Request) (time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	states, err := b.Status(bounded, r.Key)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, err
	}
	taken, first := 0, forever
	for _, s := range states {
		if s.ExpiresIn != nil {
			first = min(first, *s.ExpiresIn)
		}
		if s.State == backends.Held {
			taken++
		}
	}
	if taken >= r.Slots || states[0].State == backends.Paused {
		return first, nil
	}
	return 0, nil
}

const forever = time.Duration(1<<63 - 1)
