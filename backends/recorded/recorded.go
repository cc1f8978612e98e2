// Package recorded takes leases from one store and keeps the records of runs in another: a lease in Redis, the record in
// the database that is backed up.
//
// The record store knows nothing of leases. It is asked for a lease of its own that excludes nothing but another run of the
// same run id: with so many slots that they never run out, for as long as the lease itself, renewed with it. So it counts
// attempts, keeps done-marks, and calls a run crashed, by the rules that it has anyway. And where the lease's store forgot a
// lease that it had granted, and granted it again, the record store still refuses a second run of the id.
//
// The lease decides about everything else: it is taken first, given back first, and lost or kept without a word of the
// record store, which may be slow, or down. Its store is not told the run id, and so has no done-mark of its own.
//
// A run without a run id goes on where the record store does not answer: it is there to write down, not to decide.
package recorded

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/boottime"
)

// manySlots is a number of slots that never run out.
const manySlots = 1 << 30

// Options are what Decorate needs to know beside the stores.
type Options struct {
	// Record is the record store where it is open already.
	Record backends.Backend

	// Timeout bounds each exchange with the record store that has no context of the caller's.
	Timeout time.Duration

	// Warn is told what could not be recorded, in one line without secrets. It is called at most once for each operation,
	// from any goroutine, and must not block.
	Warn func(text string)
}

// Decorate returns a backend whose leases are lease's, and whose run records, attempts and done-marks are those of the
// store that open opens. Unless it is open already, open is called when the store is needed, and again while it fails.
func Decorate(lease backends.Backend, open func(context.Context) (backends.Backend, error), o Options) backends.Backend {
	return &backend{lease: lease, open: open, o: o, opened: o.Record, opening: make(chan struct{}, 1),
		shown: map[int64]int64{}, refusedByRecord: map[string]bool{}}
}

type backend struct {
	lease   backends.Backend
	open    func(context.Context) (backends.Backend, error)
	o       Options
	opening chan struct{} // held by whoever opens the record store

	mu              sync.Mutex
	opened          backends.Backend // nil until it could be opened
	shown           map[int64]int64  // what the record store calls the tokens of leases, where it had to differ
	refusedByRecord map[string]bool  // by owner, while it asks
}

var (
	_ backends.Backend = (*backend)(nil)
	_ backends.Waiter  = (*backend)(nil)
	_ backends.Initer  = (*backend)(nil)
)

// Name is that of the lease's store: what a run waits for and loses is there.
func (b *backend) Name() string { return b.lease.Name() }

// store is the record store, opened if it has not been.
func (b *backend) store(ctx context.Context) (backends.Backend, error) {
	if s := b.known(); s != nil {
		return s, nil
	}
	select {
	case b.opening <- struct{}{}:
		defer func() { <-b.opening }()
	case <-ctx.Done():
		return nil, fromRecord(ctx.Err())
	}
	if s := b.known(); s != nil {
		return s, nil
	}
	s, err := b.open(ctx)
	if err == nil {
		b.mu.Lock()
		b.opened = s
		b.mu.Unlock()
	}
	return s, fromRecord(err)
}

// fromRecord says that it is the record store which does not answer, or whose URL is wrong: a person who sees the name of one
// store looks for the lease there. What the store positively says of a run says so by itself.
func fromRecord(err error) error {
	var wrong *backends.UsageError
	if err == nil || backends.Positive(err) && !errors.As(err, &wrong) {
		return err
	}
	return fmt.Errorf("the record store (--record): %w", err)
}

// known is the record store where it has been opened, else nil.
func (b *backend) known() backends.Backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// Historian is the record store.
func (b *backend) Historian() backends.Backend { return b.known() }

// leaseOnly is r as the lease's store is asked it.
func leaseOnly(r backends.Request) backends.Request {
	r.RunID, r.Last = "", false
	return r
}

// recordOnly is r as the record store is asked it, for the run that has the grant.
func recordOnly(r backends.Request, g backends.Grant) backends.Request {
	r.Slots, r.HoldAtLeast, r.Token, r.TTL = manySlots, 0, g.Token, g.TTL
	return r
}

// Acquire takes the lease, and then has the start recorded. A refusal of either gives back what the other granted. Where it
// is not known whether the start was recorded, a run with an id has no answer either, and is asked for again; another one
// goes on with a warning.
func (b *backend) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	asked := boottime.Now()
	l, err := b.lease.Acquire(ctx, leaseOnly(r))
	if err != nil {
		return nil, b.refused(ctx, r, err)
	}
	rec, err := b.start(ctx, r, l.Grant())
	switch {
	case err == nil:
	case backends.Positive(err):
		b.giveBack(ctx, r)
		var held *backends.HeldError
		b.remember(r.Owner, errors.As(err, &held) && !r.Last)
		return nil, err
	case r.RunID != "":
		return nil, err
	default:
		b.o.Warn("the start is not recorded, and the run goes on: " + err.Error())
	}
	b.remember(r.Owner, false)
	n := b.newLease(r, l, rec)
	n.asked = asked
	return n, nil
}

// start has the start recorded. Without a run id the record is not worth more than a part of the time there is.
func (b *backend) start(ctx context.Context, r backends.Request, g backends.Grant) (backends.Lease, error) {
	if r.RunID == "" {
		bound := max((g.TTL-g.Drift)/4, time.Millisecond)
		if deadline, ok := ctx.Deadline(); ok {
			bound = min(bound, time.Until(deadline)/2)
		}
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, bound)
		defer cancel()
	}
	s, err := b.store(ctx)
	if err != nil {
		return nil, err
	}
	l, err := s.Acquire(ctx, recordOnly(r, g))
	return l, fromRecord(err)
}

func (b *backend) giveBack(ctx context.Context, r backends.Request) {
	ctx, cancel := backends.GivingBack(ctx, b.o.Timeout)
	defer cancel()
	_ = backends.UntilAnswered(ctx, func() error { return b.lease.Abandon(ctx, leaseOnly(r)) })
}

// refused looks what the record store knows of a request that the lease's store refused, and records the refusal if it ends
// the request.
func (b *backend) refused(ctx context.Context, r backends.Request, err error) error {
	var held *backends.HeldError
	b.remember(r.Owner, false)
	if !errors.As(err, &held) || r.RunID == "" && !r.Last {
		return err
	}
	s, unopened := b.store(ctx)
	if unopened != nil {
		return err
	}
	if r.RunID != "" {
		if known := ofRun(ctx, s, r); known != nil {
			err = known
		}
	}
	if r.Last {
		_ = s.Record(ctx, r.Refused(err, time.Time{})) // the refusal stands, whether it can be written down or not
	}
	return err
}

// doneAmong is how many successes are looked through for one of a run id.
const doneAmong = 50

// ofRun is what the record store says about the run id of r: that it is done, or runs. Nil where it is not known to be either;
// the lease's store, which knows no run ids, has said that the key is held, and that is true as well.
func ofRun(ctx context.Context, s backends.Backend, r backends.Request) error {
	running := make(chan error, 1)
	go func() { running <- sameRun(ctx, s, r) }()
	runs, _ := s.History(ctx, backends.Query{Key: r.Key, Outcomes: []backends.Outcome{backends.Succeeded}, Limit: doneAmong})
	same := <-running
	for _, run := range runs {
		if run.RunID == r.RunID {
			return &backends.DoneError{Key: r.Key, RunID: r.RunID, At: run.EndedAt}
		}
	}
	return same
}

// sameRun names who runs the run id of r, nil where nobody is known to.
func sameRun(ctx context.Context, s backends.Backend, r backends.Request) error {
	states, _ := s.Status(ctx, r.Key)
	for _, st := range states {
		if st.State != backends.Held || st.RunID != r.RunID || st.Reason == backends.MinimumHold {
			continue
		}
		h := &backends.HeldError{Key: r.Key, Holder: st.Holder, Host: st.Host, PID: st.PID, Token: st.Token, Reason: backends.SameRun}
		if st.AcquiredAt != nil {
			h.Since = *st.AcquiredAt
		}
		if st.ExpiresAt != nil && st.ExpiresIn != nil {
			h.Until, h.Left = *st.ExpiresAt, *st.ExpiresIn
		}
		return h
	}
	return nil
}

func (b *backend) remember(owner string, byRecord bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if byRecord {
		b.refusedByRecord[owner] = true
	} else {
		delete(b.refusedByRecord, owner)
	}
}

// Wait waits for both stores: until the record store may grant, where a run id is asked for or it was that store which
// refused, and then until the lease's store may. A run that is done by then need not wait for a lease.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	b.mu.Lock()
	byRecord := b.refusedByRecord[r.Owner]
	b.mu.Unlock()
	if r.RunID != "" || byRecord {
		done, err := b.waitForRecord(ctx, r, byRecord)
		if done || err != nil && (byRecord || ctx.Err() != nil) {
			return err
		}
	}
	return backends.WaitOn(ctx, b.lease, leaseOnly(r))
}

// waitForRecord waits until the record store, which may have refused last, may grant. It tells whether the run is done.
func (b *backend) waitForRecord(ctx context.Context, r backends.Request, refused bool) (done bool, err error) {
	s, err := b.store(ctx)
	if err != nil {
		return false, err
	}
	if w, ok := s.(backends.Waiter); ok {
		err = w.Wait(ctx, recordOnly(r, backends.Grant{TTL: r.TTL}))
	} else if refused || sameRun(ctx, s, r) != nil {
		err = backends.ErrNoWaiter
	}
	if err != nil || r.RunID == "" {
		return false, err
	}
	is := (*backends.DoneError)(nil)
	return errors.As(ofRun(ctx, s, r), &is), nil
}

// Abandon gives back what either store may have granted, at the same time. Where no run id is asked for, only the lease's
// answer counts.
func (b *backend) Abandon(ctx context.Context, r backends.Request) error {
	b.remember(r.Owner, false)
	recorded := make(chan error, 1)
	go func() {
		s, err := b.store(ctx)
		if err == nil {
			err = fromRecord(s.Abandon(ctx, r))
		}
		recorded <- err
	}()
	err := b.lease.Abandon(ctx, leaseOnly(r))
	if e := <-recorded; err == nil && r.RunID != "" {
		err = e
	}
	return err
}

// Close closes both stores.
func (b *backend) Close() error {
	var err error
	if s := b.known(); s != nil {
		err = s.Close()
	}
	return errors.Join(b.lease.Close(), err)
}
