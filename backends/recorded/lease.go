package recorded

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/boottime"
)

// lease is a lease and the record of its run.
type lease struct {
	b     *backend
	lease backends.Lease
	r     backends.Request // empty where another process took the lease
	grant backends.Grant
	asked time.Duration // when the lease was asked for, on the boot clock; 0 where another process took it

	renewing backends.Aside // the record

	// find looks for the record of a lease that another process took; nil where there is nothing to look for.
	find func(context.Context) backends.Lease

	mu     sync.Mutex
	record backends.Lease // nil where the start is not recorded
	gone   bool           // the record ran out, or was broken, while the lease was held
	over   bool           // the record was told of the end
}

var (
	_ backends.Liveness = (*lease)(nil)
	_ backends.Fixed    = (*lease)(nil)
)

// newLease is a lease whose run has the record rec, or none. Attempts are counted by the record store.
func (b *backend) newLease(r backends.Request, l, rec backends.Lease) *lease {
	n := &lease{b: b, lease: l, r: r, grant: l.Grant(), record: rec, renewing: backends.NewAside()}
	if rec != nil {
		g := rec.Grant()
		n.grant.Attempt = g.Attempt
		b.mu.Lock()
		if g.Token != n.grant.Token {
			b.shown[n.grant.Token] = g.Token
		}
		b.mu.Unlock()
	}
	return n
}

// Grant is the lease's, with the record's count of attempts.
func (l *lease) Grant() backends.Grant { return l.grant }

// Files are those of both.
func (l *lease) Files() []*os.File { return backends.FilesOf(l.lease, l.recorded()) }

// FixedTTL is the lease's.
func (l *lease) FixedTTL() bool { return backends.AnyFixed(l.lease) }

func (l *lease) recorded() backends.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.record
}

// Renew renews the lease, whose answer it gives without waiting for that of the record. A lease that another process took
// is renewed by one that ends after this call, and would take an unfinished renewal of the record along: there the record
// is waited for, within ctx.
func (l *lease) Renew(ctx context.Context, ttl time.Duration) error {
	if l.r.Owner == "" {
		err := l.lease.Renew(ctx, ttl)
		if err == nil {
			l.renewRecord(ctx, ttl)
		}
		return err
	}
	l.renewing.Do(ctx, l.b.o.Timeout, func(ctx context.Context) { l.renewRecord(ctx, ttl) })
	return l.lease.Renew(ctx, ttl)
}

// look finds the record of a lease that another process took, before it is first needed: who only asks whether the lease is
// still there, as a minder does each second, need not ask two stores.
func (l *lease) look(ctx context.Context) {
	if l.find == nil || l.recorded() != nil {
		return
	}
	half, cancel := l.b.half(ctx)
	defer cancel()
	rec := l.find(half)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		l.record = rec
	}
}

// renewRecord renews the record, which changes nothing about the lease, whatever comes of it.
func (l *lease) renewRecord(ctx context.Context, ttl time.Duration) {
	l.look(ctx)
	l.mu.Lock()
	rec, idle := l.record, l.gone || l.over
	l.mu.Unlock()
	if rec == nil || idle {
		return
	}
	if err := rec.Renew(ctx, ttl); errors.Is(err, backends.ErrLost) {
		l.mu.Lock()
		l.gone = true
		l.mu.Unlock()
	}
}

// Release gives the lease back, and then tells the record how the run ended: as lost where the lease turned out to be.
//
// Half of the time there is belongs to the lease. Where it stays without an answer the record is told what the run itself
// says, and the caller that nobody knows. A record that does not answer is tried again for as long as ctx lasts; then it is
// left to run out, with a warning, and the run's own end stands.
func (l *lease) Release(ctx context.Context, end backends.End) error {
	if err := ctx.Err(); err != nil {
		return &backends.Error{Op: "release", Backend: l.b.Name(), Err: err}
	}
	held := boottime.Now() - l.asked
	half, cancel := l.b.half(ctx)
	l.look(half)
	err := backends.UntilAnswered(half, func() error { return l.lease.Release(half, end) })
	cancel()
	if errors.Is(err, backends.ErrLost) && end.Outcome != backends.Lost {
		end.Outcome, end.Reason = backends.Lost, "the lease was found gone at its release"
	}
	l.mu.Lock()
	over, rec, gone := l.over, l.record, l.gone
	l.over = true
	l.mu.Unlock()
	if !over {
		if ctx.Err() != nil { // whoever is told to hurry has waited for the lease only
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), min(lastTry, l.b.o.Timeout))
			defer cancel()
		}
		l.end(ctx, rec, gone, held, end)
	}
	return err
}

// lastTry is what a record gets where the time was over before it could be told.
const lastTry = 250 * time.Millisecond

// half is the first half of what is left of ctx.
func (b *backend) half(ctx context.Context) (context.Context, context.CancelFunc) {
	left := b.o.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	return context.WithTimeout(ctx, left/2)
}

// end tells the record store how the run ended, whose lease was held for so long.
func (l *lease) end(ctx context.Context, rec backends.Lease, gone bool, held time.Duration, end backends.End) {
	err := backends.ErrLost
	if rec != nil && !gone {
		err = fromRecord(backends.UntilAnswered(ctx, func() error { return rec.Release(ctx, end) }))
	}
	if errors.Is(err, backends.ErrLost) {
		// It was never there, or is not any more. What became of a lost lease its holder will still tell (Record), which is
		// the only one who knows; else the record of the run can be told, its done-mark not.
		if end.Outcome == backends.Lost && rec != nil {
			return
		}
		err = l.tell(ctx, rec, held, end)
		if err == nil && l.r.RunID != "" && end.Outcome == backends.Succeeded {
			l.b.o.Warn("run " + strconv.Quote(l.r.RunID) + " is recorded, but not marked done, since its record had run out before its end; it may run again")
		}
	}
	if err != nil {
		l.b.o.Warn("the end is not recorded: " + err.Error())
	}
}

// tell writes the run record without a start.
func (l *lease) tell(ctx context.Context, rec backends.Lease, held time.Duration, end backends.End) error {
	r, g := l.r, l.grant
	if r.Owner == "" {
		return errors.New("the record of its start was not found")
	}
	s, err := l.b.store(ctx)
	if err != nil {
		return err
	}
	if rec == nil { // the start may have been recorded after all
		if err := backends.UntilAnswered(ctx, func() error { return s.Abandon(ctx, r) }); err != nil {
			return fromRecord(err)
		}
	}
	full := backends.Record{Key: r.Key, RunID: r.RunID, Attempt: g.Attempt, Holder: r.Holder, Host: r.Host, PID: r.PID,
		Token: l.b.shownAs(g.Token), Slot: &g.Slot, Outcome: end.Outcome, Reason: end.Reason, ExitCode: end.ExitCode,
		Waited: r.Waited, Duration: &end.Duration, StartedAt: g.AcquiredAt, EndedAt: g.AcquiredAt.Add(max(held, end.Duration))}
	return fromRecord(backends.UntilAnswered(ctx, func() error { return s.Record(ctx, full) }))
}

// shownAs is what the record store calls a token of the lease's store.
func (b *backend) shownAs(token int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own, ok := b.shown[token]; ok {
		return own
	}
	return token
}

// Attach finds the lease; its record is looked for when it is needed.
func (b *backend) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	l, err := b.lease.Attach(ctx, key, token)
	if err != nil {
		return nil, err
	}
	n := b.newLease(backends.Request{}, l, nil)
	n.find = func(ctx context.Context) backends.Lease { return b.attach(ctx, key, token) }
	return n, nil
}

// attach finds the record of the lease with this token: by the token, or where the record store had to choose another by
// who holds it. Nil: it cannot be found, or the store does not answer.
func (b *backend) attach(ctx context.Context, key string, token int64) backends.Lease {
	s, err := b.store(ctx)
	if err != nil {
		return nil
	}
	l, err := s.Attach(ctx, key, token)
	if err == nil {
		return l
	}
	if !backends.Positive(err) {
		return nil
	}
	mine, err := b.lease.Status(ctx, key)
	if err != nil {
		return nil
	}
	like := backends.OfSameRun(mine, backends.State{Key: key, Token: token})
	theirs, err := s.Status(ctx, key)
	if like == nil || err != nil {
		return nil
	}
	if found := backends.OfSameRun(theirs, *like); found != nil {
		if l, err = s.Attach(ctx, key, found.Token); err == nil {
			return l
		}
	}
	return nil
}
