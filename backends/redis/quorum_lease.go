package redis

import (
	"context"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// quorumLease is a lease that a majority has granted.
type quorumLease struct {
	q     *quorum
	r     backends.Request
	g     backends.Grant
	since time.Time // when it was asked for, by this host

	// mu orders what is written back to single servers with the release: a lease must not be restored after it.
	mu    sync.Mutex
	ended bool
}

func (l *quorumLease) Grant() backends.Grant { return l.g }

func (l *quorumLease) asGranted() granted {
	return granted{token: l.g.Token, attempt: l.g.Attempt, slot: l.g.Slot}
}

// adopt takes in a server that granted the lease late: in the same slot it is confirmed, in another it is given back.
func (l *quorumLease) adopt(ctx context.Context, late reply[answer]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || late.v.granted.slot != l.g.Slot {
		return late.node.abandon(ctx, l.r)
	}
	return late.node.confirm(ctx, l.r, l.asGranted())
}

// Renew succeeds where more than half of the servers still have the lease; it is then written again to those that have
// forgotten it. Where so many say that it is gone that the others are no majority, it is lost.
func (l *quorumLease) Renew(ctx context.Context, ttl time.Duration) error {
	ctx, cancel := l.q.c.bound(ctx)
	defer cancel()
	tally := func(all []reply[found]) (have, gone int) {
		for _, a := range good(all) {
			if a.v == ours {
				have++
			} else {
				gone++
			}
		}
		return have, gone
	}
	all := poll(ctx, l.q, func(ctx context.Context, n *node) (found, error) {
		return n.renew(ctx, l.r.Key, l.r.Owner, l.g.Slot, ttl)
	},
		func(all []reply[found]) bool {
			_, gone := tally(all)
			return len(all) == len(l.q.nodes) || gone > l.q.spare() || len(errorsOf(all)) > l.q.spare()
		}, nil)
	have, gone := tally(all)
	switch {
	case have >= l.q.need:
		l.restore(ctx, all, ttl)
		return nil
	case gone > l.q.spare():
		return backends.ErrLost
	}
	return l.q.none("renew", errorsOf(all))
}

// restore writes the lease again where it is missing. Only servers that have just answered are tried, so that it takes
// one more exchange; the others are left to the next beat.
func (l *quorumLease) restore(ctx context.Context, all []reply[found], ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, courtesy)
	defer cancel()
	var wg sync.WaitGroup
	for _, a := range good(all) {
		if a.v != ours {
			wg.Go(func() { _ = a.node.restore(ctx, l, ttl) })
		}
	}
	wg.Wait()
}

// Release is done when more than half of the servers have carried it out; the others are told, and not waited for.
func (l *quorumLease) Release(ctx context.Context, end backends.End) error {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	yes, err := l.q.count(ctx, "release", func(ctx context.Context, n *node) (bool, error) {
		return n.release(ctx, ending{l.r.Key, l.r.Owner, l.r.RunID, l.g.Token, l.g.Slot}, end)
	})
	if err == nil && yes < l.q.need {
		err = backends.ErrLost
	}
	return err
}

// anySlots stands for the number of slots that a lease was asked with, where it is not known: the slot itself is.
const anySlots = 1 << 20
