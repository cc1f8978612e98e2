package redis

import (
	"context"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Wait blocks in all servers at once, until more than half say that a slot may be free. A release reaches the servers one
// after the other, so whoever is woken by one of them waits a moment for the others; if they stay silent the key is worth
// asking for all the same, since it was really released there.
func (q *quorum) Wait(ctx context.Context, r backends.Request) error {
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := make(chan signal, len(q.nodes))
	for _, n := range q.nodes {
		go func() {
			woken, err := waitOn(work, n, r)
			ch <- signal{woken, err}
		}()
	}
	err := q.await(ctx, ch)
	if err != nil && ctx.Err() != nil {
		q.leave(ctx, r)
		return ctx.Err()
	}
	return err
}

// signal is what waiting on one server ended with: free, woken by a release, or an error.
type signal struct {
	woken bool
	err   error
}

func (q *quorum) await(ctx context.Context, ch <-chan signal) error {
	var moment <-chan time.Time
	var errs []error
	for free := 0; free < q.need; {
		select {
		case s := <-ch:
			if s.err != nil {
				errs = append(errs, s.err)
			} else if free++; s.woken && moment == nil {
				moment = time.After(20 * time.Millisecond)
			}
			if len(errs) > q.spare() {
				return q.none("wait", errs)
			}
		case <-moment:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (q *quorum) leave(ctx context.Context, r backends.Request) {
	for _, n := range q.nodes {
		q.bg.do(ctx, courtesy, func(ctx context.Context) { _ = n.unregisterWaiter(ctx, r.Key, r.Owner) })
	}
}
