package multi

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// mostPause bounds the pauses of two requests that refuse each other.
const mostPause = 500 * time.Millisecond

// Wait waits where the request was refused last.
//
// Where that was not the first store, the rival may be a run that asks in another order, holds for a moment what we want,
// and is refused by what we have held for a moment. Both would come again at once, together, and without end; hence a
// pause that chance chooses, from a range that grows.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	b.mu.Lock()
	met := b.refusals[r.Owner]
	b.mu.Unlock()
	if err := backends.WaitOn(ctx, b.all[met.by], part(r, met.by, 0)); err != nil {
		return err
	}
	if met.by > 0 && !backends.Sleep(ctx, rand.N(min(10*time.Millisecond<<min(met.late, 10), mostPause))) {
		return ctx.Err()
	}
	return nil
}

// Status is the first store's. A key that is free there, and not in another store, is shown as it is there, since no run
// would be granted it. What another store cannot answer is left out.
func (b *backend) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	answers := make([][]backends.State, len(b.all))
	errs := make([]error, len(b.all))
	_ = b.each(b.all, func(i int, s backends.Backend) error {
		answers[i], errs[i] = s.Status(ctx, keys...)
		return nil
	})
	if errs[0] != nil {
		return nil, errs[0]
	}
	states := answers[0]
	for i := range states {
		if states[i].State != backends.Free {
			continue
		}
		for n, others := range answers[1:] {
			if o := taken(others, states[i].Key); o != nil {
				states[i] = *o
				states[i].Reason = strings.TrimPrefix(o.Reason+"; on "+b.all[n+1].Name(), "; ")
				break
			}
		}
	}
	return states, nil
}

// taken is the first state of key that is not free.
func taken(states []backends.State, key string) *backends.State {
	for i := range states {
		if states[i].Key == key && states[i].State != backends.Free {
			return &states[i]
		}
	}
	return nil
}

// History is the first store's.
func (b *backend) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	return b.all[0].History(ctx, q)
}

// Record writes into the first store.
func (b *backend) Record(ctx context.Context, r backends.Record) error {
	return b.all[0].Record(ctx, r)
}

// Now is the first store's clock.
func (b *backend) Now(ctx context.Context) (time.Time, error) { return b.all[0].Now(ctx) }

// Break breaks the lease that has this token in the first store, and its parts in the others; with token 0 whatever is
// held in any of them.
func (b *backend) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	if token == 0 {
		return b.breakAll(ctx, key, by)
	}
	var broken []backends.State // as the first store shows them before they are gone
	states, err := b.all[0].Status(ctx, key)
	if err != nil {
		return nil, err
	}
	parts := make([]*backends.State, len(b.all))
	for _, st := range states {
		if st.State == backends.Held && st.Token == token {
			err = b.each(b.all[1:], func(i int, s backends.Backend) (err error) {
				parts[i+1], err = b.find(ctx, s, st)
				return err
			})
		}
	}
	if err != nil {
		return nil, err
	}
	if broken, err = b.all[0].Break(ctx, key, token, by); err != nil {
		return nil, err
	}
	return broken, b.each(b.all[1:], func(i int, s backends.Backend) error {
		if parts[i+1] == nil {
			return nil
		}
		_, err := s.Break(ctx, key, parts[i+1].Token, by)
		return b.brokenElsewhere(err)
	})
}

// brokenElsewhere is the error of breaking a part, after the first store's was broken.
func (b *backend) brokenElsewhere(err error) error {
	var e *backends.Error
	if errors.Is(err, backends.ErrNotHeld) {
		return nil
	}
	if errors.As(err, &e) {
		return &backends.Error{Op: e.Op, Backend: e.Backend, Err: e.Err, Permanent: e.Permanent,
			Remedy: "on " + b.all[0].Name() + " it is broken; use --force for what is left"}
	}
	return err
}

func (b *backend) breakAll(ctx context.Context, key, by string) ([]backends.State, error) {
	broken := make([][]backends.State, len(b.all))
	held := make([]bool, len(b.all))
	err := b.each(b.all, func(i int, s backends.Backend) (err error) {
		broken[i], err = s.Break(ctx, key, 0, by)
		held[i] = err == nil
		if errors.Is(err, backends.ErrNotHeld) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := range held {
		if held[i] {
			return broken[i], nil
		}
	}
	return nil, backends.ErrNotHeld
}

// Pause pauses the key in all stores, so that it also holds for runs that name only one of them.
func (b *backend) Pause(ctx context.Context, key string, p backends.Pause) error {
	return b.each(b.all, func(_ int, s backends.Backend) error { return s.Pause(ctx, key, p) })
}

// Resume ends the pause in all stores; ErrNotHeld means that the key was paused in none.
func (b *backend) Resume(ctx context.Context, key string) error {
	paused := make([]bool, len(b.all))
	err := b.each(b.all, func(i int, s backends.Backend) error {
		err := s.Resume(ctx, key)
		paused[i] = err == nil
		if errors.Is(err, backends.ErrNotHeld) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, p := range paused {
		if p {
			return nil
		}
	}
	return backends.ErrNotHeld
}

// Init creates what is missing in each store that needs it.
func (b *backend) Init(ctx context.Context) error {
	for _, s := range b.all {
		if in, ok := s.(backends.Initer); ok {
			if err := in.Init(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// InitPlan is what Init would do in each store.
func (b *backend) InitPlan() string {
	var plan strings.Builder
	for _, s := range b.all {
		if in, ok := s.(backends.Initer); ok {
			plan.WriteString("-- " + s.Name() + "\n" + strings.TrimSuffix(in.InitPlan(), "\n") + "\n")
		} else {
			plan.WriteString("-- " + s.Name() + " needs nothing to be created\n")
		}
	}
	return plan.String()
}
