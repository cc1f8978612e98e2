// Package paired takes, beside each lease of one store, the lease of the same key in a second store, for as long as the
// first is held. The second is the one that runs fall back to when the first store does not answer: a run that has the
// first store's lease and one that fell back would otherwise not know of each other.
//
// The first store decides about everything: it is asked first, its grant is what the holder is told, and its lease alone is
// relied on. The second can do one thing: refuse. A second store that does not answer, or loses its lease, is told of in a
// warning, and the run goes on, as it would have without.
//
// What the second store keeps is what falls back to it later: run ids that are done, a minimum hold, who holds now.
package paired

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Beside begins the reason of a run that the second store has a record of although its lease was the first store's.
const Beside = "beside the lease of "

// bound is what the second store may cost an acquire or a release.
const bound = time.Second

// Options are what Decorate needs to know beside the stores.
type Options struct {
	// Timeout bounds each exchange with the second store that has no context of the caller's.
	Timeout time.Duration

	// Warn is told what the second store could not do, in one line without secrets. It is called from any goroutine, and
	// must not block.
	Warn func(text string)
}

// Decorate returns a backend whose leases are first's, each with one beside it in the store that open opens. open is called
// when the store is needed, which is after first has granted a lease, and again while it fails.
func Decorate(first backends.Backend, open func(context.Context) (backends.Backend, error), o Options) backends.Backend {
	return &backend{Backend: first, open: open, o: o, bySecond: map[string]bool{}}
}

type backend struct {
	backends.Backend // the first store
	open             func(context.Context) (backends.Backend, error)
	o                Options

	mu       sync.Mutex
	second   backends.Backend // nil until it could be opened
	bySecond map[string]bool  // by owner, while it asks: whether the second store has refused it last
}

var (
	_ backends.Backend = (*backend)(nil)
	_ backends.Waiter  = (*backend)(nil)
)

// Historian is the first store.
func (b *backend) Historian() backends.Backend { return b.Backend }

// store is the second store, opened if it has not been.
func (b *backend) store(ctx context.Context) (backends.Backend, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.second != nil {
		return b.second, nil
	}
	s, err := b.open(ctx)
	if err == nil && s.Name() == b.Name() {
		_ = s.Close()
		err = &backends.UsageError{What: "--fallback " + s.Name(), Why: "it is the backend itself", Remedy: "name another store"}
	}
	if err != nil {
		return nil, err
	}
	b.second = s
	return s, nil
}

// known is the second store where it has been opened, else nil.
func (b *backend) known() backends.Backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.second
}

// beside is r as the second store is asked it, for the run that has the grant. The token is the first store's, so that the
// two can be found to belong together.
func beside(r backends.Request, g backends.Grant) backends.Request {
	r.Token, r.TTL, r.Last = g.Token, g.TTL, false
	return r
}

// Acquire takes the first store's lease, and then the second's. A refusal of the second gives the first back.
func (b *backend) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	l, err := b.Backend.Acquire(ctx, r)
	if err != nil {
		b.remember(r.Owner, false)
		return nil, err
	}
	second, err := b.takeSecond(ctx, r, l.Grant())
	if backends.Positive(err) {
		b.giveBack(ctx, r)
		return nil, b.refused(ctx, r, err)
	}
	b.remember(r.Owner, false)
	if err != nil {
		b.o.Warn("the fallback does not answer, so a run that falls back to it is not kept apart from this one: " + err.Error())
	}
	return &lease{Lease: l, b: b, second: second, renewing: backends.NewAside()}, nil
}

// passing is how long a refusal of the second store is asked about again: a lease is given back in the first store before
// it is in the second, and so may be granted by the first a moment too early.
const passing = 250 * time.Millisecond

// takeSecond takes the second store's lease, within a part of the time there is. After an answer that is not known nothing
// is left behind there, as far as it can be reached.
func (b *backend) takeSecond(ctx context.Context, r backends.Request, g backends.Grant) (backends.Lease, error) {
	left := min(bound, max((g.TTL-g.Drift)/4, time.Millisecond))
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	s, err := b.store(ctx)
	if err != nil {
		return nil, err
	}
	r = beside(r, g)
	for over := time.Now().Add(min(passing, left/2)); ; {
		most, stop := context.WithTimeout(ctx, left*3/4) // the rest is for giving it back
		l, err := s.Acquire(most, r)
		stop()
		var held *backends.HeldError
		switch {
		case err == nil:
			return l, nil
		case errors.As(err, &held) && !held.Paused && held.Reason != backends.MinimumHold && time.Now().Before(over) && backends.Sleep(ctx, 20*time.Millisecond):
		case backends.Positive(err):
			return nil, err
		default:
			_ = s.Abandon(ctx, r)
			return nil, err
		}
	}
}

func (b *backend) giveBack(ctx context.Context, r backends.Request) {
	ctx, cancel := backends.GivingBack(ctx, b.o.Timeout)
	defer cancel()
	_ = backends.UntilAnswered(ctx, func() error { return b.Backend.Abandon(ctx, r) })
}

// refused says where the request was refused, and has the first store record it if that ends the request.
func (b *backend) refused(ctx context.Context, r backends.Request, err error) error {
	var held *backends.HeldError
	var done *backends.DoneError
	isHeld := errors.As(err, &held)
	b.remember(r.Owner, isHeld && !r.Last)
	if isHeld {
		where := *held
		where.Reason = strings.TrimPrefix(where.Reason+"; on the fallback "+b.known().Name(), "; ")
		err = &where
	}
	if r.Last && isHeld || errors.As(err, &done) {
		_ = b.Backend.Record(ctx, r.Refused(err, time.Time{})) // the refusal stands, whether it can be written down or not
	}
	return err
}

func (b *backend) remember(owner string, bySecond bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if bySecond {
		b.bySecond[owner] = true
	} else {
		delete(b.bySecond, owner)
	}
}

// Wait waits where the request was refused last.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	b.mu.Lock()
	refusedBy := b.Backend
	if b.bySecond[r.Owner] {
		refusedBy = b.second
		r = beside(r, backends.Grant{TTL: r.TTL})
	}
	b.mu.Unlock()
	return backends.WaitOn(ctx, refusedBy, r)
}

// Abandon gives back what either store may have granted, at the same time. The answer is the first store's.
func (b *backend) Abandon(ctx context.Context, r backends.Request) error {
	b.remember(r.Owner, false)
	var both sync.WaitGroup
	if s := b.known(); s != nil {
		both.Go(func() { _ = s.Abandon(ctx, r) })
	}
	err := b.Backend.Abandon(ctx, r)
	both.Wait()
	return err
}

// Break breaks the lease that has this token in the first store, and the one beside it; with token 0 whatever is held in
// either. What the second store does not answer is told of in a warning: what had to be broken is broken.
func (b *backend) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	half, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	s, unanswered := b.store(half)
	var second []backends.State
	if unanswered == nil {
		second, unanswered = b.besideOf(half, s, key, token)
	}
	broken, err := b.Backend.Break(ctx, key, token, by)
	if err != nil && !(token == 0 && errors.Is(err, backends.ErrNotHeld)) {
		return nil, err
	}
	for _, st := range second {
		also, refused := s.Break(half, key, st.Token, by)
		if refused != nil && !errors.Is(refused, backends.ErrNotHeld) {
			unanswered = refused
		}
		if len(broken) == 0 && len(also) > 0 {
			broken, err = also, nil
		}
	}
	if unanswered != nil {
		b.o.Warn("what the fallback holds is not broken: " + unanswered.Error())
	}
	return broken, err
}

// besideOf is what the second store s holds beside the lease of key that has this token in the first; all for token 0.
func (b *backend) besideOf(ctx context.Context, s backends.Backend, key string, token int64) ([]backends.State, error) {
	states, err := s.Status(ctx, key)
	if err != nil {
		return nil, err
	}
	held := slices.DeleteFunc(states, func(st backends.State) bool { return st.State != backends.Held })
	if token == 0 || len(held) == 0 {
		return held, nil
	}
	mine, err := b.Backend.Status(ctx, key)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(mine, func(st backends.State) bool { return st.State == backends.Held && st.Token == token }); i >= 0 {
		if st := backends.OfSameRun(held, mine[i]); st != nil {
			return []backends.State{*st}, nil
		}
	}
	return nil, nil
}

// Close closes both stores.
func (b *backend) Close() error {
	var err error
	if s := b.known(); s != nil {
		err = s.Close()
	}
	return errors.Join(b.Backend.Close(), err)
}
