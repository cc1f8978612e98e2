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
	round int64

	// mu orders what is written back to single servers with the release: a lease must not be restored after it.
	mu    sync.Mutex
	ended bool
}

func (l *quorumLease) Grant() backends.Grant { return l.g }

func (l *quorumLease) asGranted() granted {
	return granted{token: l.g.Token, attempt: l.g.Attempt, slot: l.g.Slot, at: l.g.AcquiredAt}
}

// adopt takes in a server that granted the lease late: in the same slot it is confirmed, in another it is given back.
func (l *quorumLease) adopt(ctx context.Context, late reply[answer]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || late.v.granted.slot != l.g.Slot {
		return late.node.abandon(ctx, l.r, l.round)
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
	var mu sync.Mutex
	var without []*node
	yes, err := l.q.count(ctx, "release", func(ctx context.Context, n *node) (bool, error) {
		had, err := n.release(ctx, ending{l.r.Key, l.r.Owner, l.r.RunID, l.g.Token, l.g.Slot}, end)
		if err == nil && !had {
			mu.Lock()
			defer mu.Unlock()
			without = append(without, n)
		}
		return had, err
	})
	if err != nil {
		return err
	}
	if yes < l.q.need {
		return backends.ErrLost
	}
	mu.Lock()
	defer mu.Unlock()
	for _, n := range without {
		l.q.bg.do(ctx, courtesy, func(ctx context.Context) { _ = n.record(ctx, l.record(end), l.r.Owner[:16]) })
	}
	return nil
}

// record is the run record, for servers that did not have the lease and so cannot write it themselves.
func (l *quorumLease) record(end backends.End) backends.Record {
	return backends.Record{Key: l.r.Key, RunID: l.r.RunID, Attempt: l.g.Attempt, Holder: l.r.Holder, Host: l.r.Host, PID: l.r.PID,
		Token: l.g.Token, Slot: &l.g.Slot, Outcome: end.Outcome, Reason: end.Reason, ExitCode: end.ExitCode, StartedAt: l.g.AcquiredAt,
		Waited: l.r.Waited, Duration: &end.Duration}
}

// anySlots stands for the number of slots that a lease was asked with, where it is not known: the slot itself is.
const anySlots = 1 << 20
