package paired

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// lease is the first store's lease, and the second's beside it.
type lease struct {
	backends.Lease // the first store's
	b              *backend
	renewing       backends.Aside // the second

	mu     sync.Mutex
	second backends.Lease // nil where there is none, or none any more
}

var _ backends.Liveness = (*lease)(nil)

// Files are those of both: the second has to last as long as the run as well.
func (l *lease) Files() []*os.File { return backends.FilesOf(l.Lease, l.current()) }

func (l *lease) current() backends.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.second
}

// take is the second lease, for the last time: nobody is given it again.
func (l *lease) take() backends.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.second
	l.second = nil
	return s
}

// Renew renews the first lease, whose answer it gives without waiting for the second's.
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	if l.current() != nil {
		l.renewing.Do(ctx, l.b.o.Timeout, func(ctx context.Context) { l.renewSecond(ctx, ttl) })
	}
	return l.Lease.Renew(ctx, ttl)
}

// renewSecond renews the second lease. That it is lost is told once, and stops nothing.
func (l *lease) renewSecond(ctx context.Context, ttl time.Duration) {
	s := l.current()
	if s == nil {
		return
	}
	if err := s.Renew(ctx, ttl); errors.Is(err, backends.ErrLost) && l.take() != nil {
		l.b.o.Warn("the lease on the fallback " + l.b.known().Name() + " is gone, so a run that falls back to it is not kept apart from this one; the lease itself is not concerned")
	}
}

// Release gives the first lease back, and then the second, with the outcome that the first store's answer leaves. Where the
// first store stays without an answer the second is told what the run itself says, since it may be the one that answers the
// next run.
func (l *lease) Release(ctx context.Context, end backends.End) error {
	first, cancel := l.firstPart(ctx)
	err := l.Lease.Release(first, end)
	if l.current() != nil && err != nil && !backends.Positive(err) {
		err = backends.UntilAnswered(first, func() error { return l.Lease.Release(first, end) })
	}
	cancel()
	second := l.take()
	if second == nil {
		return err
	}
	if errors.Is(err, backends.ErrLost) && end.Outcome != backends.Lost {
		end.Outcome, end.Reason = backends.Lost, "the lease was found gone at its release"
	}
	if end.Reason != "" {
		end.Reason += "; "
	}
	end.Reason += Beside + l.b.Name()
	if ctx.Err() != nil { // the time was over, or whoever ends the run is in a hurry
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lastTry)
	} else {
		ctx, cancel = context.WithTimeout(ctx, bound)
	}
	defer cancel()
	again := backends.UntilAnswered(ctx, func() error { return second.Release(ctx, end) })
	if again != nil && !errors.Is(again, backends.ErrLost) {
		l.b.o.Warn("the lease on the fallback was not given back, so who falls back to it is refused until it runs out: " + again.Error())
	}
	return err
}

// lastTry is what the second store gets where the time was over before it could be told.
const lastTry = 250 * time.Millisecond

// firstPart leaves a second of ctx, or half of it, for the second lease.
func (l *lease) firstPart(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok || l.current() == nil {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline)
	return context.WithTimeout(ctx, max(left-bound, left/2))
}
