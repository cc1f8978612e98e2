package backends

import (
	"context"
	"errors"
	"slices"
	"time"
)

// What decorators, backends made of other backends, need to know of those.

// OfSameRun finds, among the states of a key in one store, the lease of the run that has like in another store: the one with
// the same token, else the only one with the same holder, host and process. Nil means that there is none, or that nobody can
// tell which it is.
func OfSameRun(states []State, like State) *State {
	if i := slices.IndexFunc(states, func(s State) bool { return s.State == Held && s.Key == like.Key && s.Token == like.Token }); i >= 0 {
		return &states[i]
	}
	var found *State
	for i := range states {
		if s := &states[i]; s.State == Held && s.Key == like.Key && s.Holder == like.Holder && s.Host == like.Host && s.PID == like.PID {
			if found != nil {
				return nil
			}
			found = s
		}
	}
	return found
}

// Historian is the backend that answers b's History: b itself, or one behind it where b is made of several. It is the one
// to ask for Walker and Follower.
func Historian(b Backend) Backend {
	for {
		d, ok := b.(interface{ Historian() Backend })
		if !ok {
			return b
		}
		next := d.Historian()
		if next == nil || next == b {
			return b
		}
		b = next
	}
}

// ErrNoWaiter makes the caller of a Waiter wait in its own way.
var ErrNoWaiter = errors.New("the store that refused cannot tell when it would grant")

// WaitOn waits for b to grant r, where b can tell.
func WaitOn(ctx context.Context, b Backend, r Request) error {
	if w, ok := b.(Waiter); ok {
		return w.Wait(ctx, r)
	}
	return ErrNoWaiter
}

// giveBackTime bounds giving back. What cannot be given back in it runs out.
const giveBackTime = 700 * time.Millisecond

// GivingBack is the context for giving back what one store has granted and another refused: ctx may be over. timeout bounds
// an exchange.
func GivingBack(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), min(giveBackTime, timeout))
}

// Aside does something beside what its caller goes on with, never twice at the same time.
type Aside chan struct{}

// NewAside returns one that does nothing yet.
func NewAside() Aside { return make(Aside, 1) }

// Do has f done within timeout, also where ctx ends before, unless the one before is still waited for.
func (a Aside) Do(ctx context.Context, timeout time.Duration, f func(context.Context)) {
	select {
	case a <- struct{}{}:
		go func() {
			defer func() { <-a }()
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
			defer cancel()
			f(ctx)
		}()
	default:
	}
}
