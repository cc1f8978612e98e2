package backendtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// ErrFault is the error of an injected fault: an answer that is not known.
var ErrFault = errors.New("injected fault")

// Fault is what happens to one call. The zero value lets it pass.
type Fault struct {
	Before bool          // the request never arrives: ErrFault, and nothing is done
	After  bool          // the reply is lost: it is done, and the caller gets ErrFault
	Delay  time.Duration // before the request is handed on; it ends early with the call's context
}

// Hang is a delay that only the context ends.
const Hang = time.Duration(1<<63 - 1)

// Plan says what happens to the nth call (from 1) of an operation: "acquire", "abandon", "attach", "renew", "release",
// "status", "history", "record", "break", "pause", "resume", "now" or "wait". It may be called by several goroutines at
// once.
type Plan func(op string, n int) Fault

// Faulty puts faults between a caller and a real backend, and its leases. It is a Waiter where b is one.
func Faulty(b backends.Backend, plan Plan) backends.Backend {
	f := &faulty{Backend: b, plan: plan, calls: map[string]int{}}
	if w, ok := b.(backends.Waiter); ok {
		return &faultyWaiter{f, w}
	}
	return f
}

type faulty struct {
	backends.Backend
	plan  Plan
	mu    sync.Mutex
	calls map[string]int
}

type faultyWaiter struct {
	*faulty
	w backends.Waiter
}

func (f *faulty) next(op string) Fault {
	f.mu.Lock()
	f.calls[op]++
	n := f.calls[op]
	f.mu.Unlock()
	return f.plan(op, n)
}

// through hands one call on, or not. Where the reply is lost the value is dropped with it.
func through[T any](ctx context.Context, f *faulty, op string, call func() (T, error)) (T, error) {
	var none T
	fault := f.next(op)
	if fault.Delay > 0 {
		t := time.NewTimer(fault.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return none, &backends.Error{Op: op, Backend: f.Name(), Err: ctx.Err()}
		}
	}
	lost := &backends.Error{Op: op, Backend: f.Name(), Err: ErrFault}
	if fault.Before {
		return none, lost
	}
	v, err := call()
	if fault.After {
		return none, lost
	}
	return v, err
}

// nothing is the value of calls that return only an error.
type nothing struct{}

func throughErr(ctx context.Context, f *faulty, op string, call func() error) error {
	_, err := through(ctx, f, op, func() (nothing, error) { return nothing{}, call() })
	return err
}

func (f *faulty) lease(l backends.Lease, err error) (backends.Lease, error) {
	if err != nil {
		return nil, err
	}
	fl := &faultyLease{l, f}
	if live, ok := l.(backends.Liveness); ok {
		return &faultyLive{fl, live}, nil
	}
	return fl, nil
}

func (f *faulty) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	return f.lease(through(ctx, f, "acquire", func() (backends.Lease, error) { return f.Backend.Acquire(ctx, r) }))
}

func (f *faulty) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	return f.lease(through(ctx, f, "attach", func() (backends.Lease, error) { return f.Backend.Attach(ctx, key, token) }))
}

func (f *faulty) Abandon(ctx context.Context, r backends.Request) error {
	return throughErr(ctx, f, "abandon", func() error { return f.Backend.Abandon(ctx, r) })
}

func (f *faulty) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	return through(ctx, f, "status", func() ([]backends.State, error) { return f.Backend.Status(ctx, keys...) })
}

func (f *faulty) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	return through(ctx, f, "history", func() ([]backends.Record, error) { return f.Backend.History(ctx, q) })
}

func (f *faulty) Record(ctx context.Context, r backends.Record) error {
	return throughErr(ctx, f, "record", func() error { return f.Backend.Record(ctx, r) })
}

func (f *faulty) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	return through(ctx, f, "break", func() ([]backends.State, error) { return f.Backend.Break(ctx, key, token, by) })
}

func (f *faulty) Pause(ctx context.Context, key string, p backends.Pause) error {
	return throughErr(ctx, f, "pause", func() error { return f.Backend.Pause(ctx, key, p) })
}

func (f *faulty) Resume(ctx context.Context, key string) error {
	return throughErr(ctx, f, "resume", func() error { return f.Backend.Resume(ctx, key) })
}

func (f *faulty) Now(ctx context.Context) (time.Time, error) {
	return through(ctx, f, "now", func() (time.Time, error) { return f.Backend.Now(ctx) })
}

func (f *faultyWaiter) Wait(ctx context.Context, r backends.Request) error {
	return throughErr(ctx, f.faulty, "wait", func() error { return f.w.Wait(ctx, r) })
}

type faultyLease struct {
	backends.Lease
	f *faulty
}

// faultyLive keeps the descriptors of a lease that has some.
type faultyLive struct {
	*faultyLease
	backends.Liveness
}

func (l *faultyLease) Renew(ctx context.Context, ttl time.Duration) error {
	return throughErr(ctx, l.f, "renew", func() error { return l.Lease.Renew(ctx, ttl) })
}

func (l *faultyLease) Release(ctx context.Context, end backends.End) error {
	return throughErr(ctx, l.f, "release", func() error { return l.Lease.Release(ctx, end) })
}
