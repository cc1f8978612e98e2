// Package multi makes one backend of several, all of which have to grant a lease: a lock on the host and one in the
// data centre, or two data centres. What a user is shown (token, slot, attempt, history, done-marks) is the first one's.
//
// The stores are asked one after the other, all or nothing: after a refusal everything that was granted before it is given
// back at once. So two runs that name the same stores in different orders cannot wait for each other while each holds what
// the other wants; they may refuse each other, and come again after pauses that chance makes unequal (see Wait).
//
// Run ids are the first store's alone. A done-mark that several stores wrote one after the other could not be taken back
// where the last of them says that the lease was lost; so hosts that share a run id have to name the same store first.
package multi

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// New makes one backend of all, in the order in which their leases are taken. timeout bounds what is done without a
// context of the caller's. One backend is returned as it is.
func New(all []backends.Backend, timeout time.Duration) backends.Backend {
	if len(all) == 1 {
		return all[0]
	}
	return &backend{all: all, timeout: timeout, refusals: map[string]refusals{}}
}

type backend struct {
	all     []backends.Backend
	timeout time.Duration

	mu       sync.Mutex
	refusals map[string]refusals // by owner, while it asks
}

// refusals are what a request has met so far.
type refusals struct {
	by   int // the store that refused it last
	late int // how often it had been granted by one store when another refused
}

var (
	_ backends.Backend = (*backend)(nil)
	_ backends.Waiter  = (*backend)(nil)
	_ backends.Initer  = (*backend)(nil)
)

// Name joins the names.
func (b *backend) Name() string {
	names := make([]string, len(b.all))
	for i, s := range b.all {
		names[i] = s.Name()
	}
	return strings.Join(names, " + ")
}

// Historian is the first store.
func (b *backend) Historian() backends.Backend { return b.all[0] }

// part is r as the store with this number is asked it. Only the first one knows of the run id. Where another store's token
// may be chosen it is the first one's, so that Attach and Break find the parts of a lease.
func part(r backends.Request, i int, token int64) backends.Request {
	if i > 0 {
		r.RunID, r.Last, r.Token = "", false, token
	}
	return r
}

// Acquire asks one store after the other, each within what is left of ctx.
//
// After an unknown answer nothing is given back here: the caller asks again with the same owner, which finds its leases
// again, or calls Abandon.
func (b *backend) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	l := &lease{b: b, parts: make([]backends.Lease, len(b.all)), ended: make([]bool, len(b.all))}
	var token int64
	for i, s := range b.all {
		p, err := s.Acquire(ctx, part(r, i, token))
		if err != nil {
			return nil, b.failed(ctx, r, i, err)
		}
		l.parts[i] = p
		token = l.parts[0].Grant().Token
	}
	b.forget(r.Owner)
	l.grant = combine(l.parts)
	return l, nil
}

// failed gives back what the stores before number i have granted, where that one positively refused.
func (b *backend) failed(ctx context.Context, r backends.Request, i int, err error) error {
	if !backends.Positive(err) {
		return err
	}
	if i > 0 {
		b.giveBack(ctx, r, b.all[:i])
	}
	var held *backends.HeldError
	if !errors.As(err, &held) || r.Last {
		b.forget(r.Owner)
	} else {
		b.remember(r.Owner, i)
	}
	if i == 0 {
		return err // that store has recorded it
	}
	if held != nil {
		where := *held
		where.Reason = strings.TrimPrefix(where.Reason+"; on "+b.all[i].Name(), "; ")
		err = &where
	}
	if r.Last {
		_ = b.all[0].Record(ctx, r.Refused(err, time.Time{})) // the refusal stands, whether it can be written down or not
	}
	return err
}

// giveBack gives back at once what the stores have granted; all at the same time, so that one which does not answer leaves
// the others free.
func (b *backend) giveBack(ctx context.Context, r backends.Request, stores []backends.Backend) {
	ctx, cancel := backends.GivingBack(ctx, b.timeout)
	defer cancel()
	_ = b.each(stores, func(i int, s backends.Backend) error {
		return backends.UntilAnswered(ctx, func() error { return s.Abandon(ctx, part(r, i, 0)) })
	})
}

// Abandon gives back at all stores at the same time.
func (b *backend) Abandon(ctx context.Context, r backends.Request) error {
	b.forget(r.Owner)
	return b.each(b.all, func(i int, s backends.Backend) error { return s.Abandon(ctx, part(r, i, 0)) })
}

// each calls f for all stores at the same time, and returns the error of the first in order that has one.
func (b *backend) each(stores []backends.Backend, f func(i int, s backends.Backend) error) error {
	errs := make([]error, len(stores))
	var all sync.WaitGroup
	for i, s := range stores {
		all.Go(func() { errs[i] = f(i, s) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *backend) remember(owner string, by int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.refusals[owner]
	r.by = by
	if by > 0 {
		r.late++
	}
	b.refusals[owner] = r
}

func (b *backend) forget(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.refusals, owner)
}

// Close closes all stores.
func (b *backend) Close() error {
	return b.each(b.all, func(_ int, s backends.Backend) error { return s.Close() })
}
