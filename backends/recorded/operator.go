package recorded

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Status is the lease's store's, with run ids and attempts from the record store where that answers in half of the time.
// Without keys it also shows those of which only the record store knows: a run whose lease has been forgotten, or a lease
// that somebody has there, is shown as held, with a reason that says where.
func (b *backend) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	states, err := b.lease.Status(ctx, keys...)
	if err != nil {
		return nil, err
	}
	ask := keys
	if len(keys) > 0 {
		if ask = heldOf(states); ask == nil {
			return states, nil
		}
	}
	half, cancel := b.half(ctx)
	defer cancel()
	s, err := b.store(half)
	if err != nil {
		return states, nil
	}
	runs, err := s.Status(half, ask...)
	if err != nil {
		return states, nil
	}
	for i := range states {
		if run := backends.OfSameRun(runs, states[i]); run != nil && states[i].State == backends.Held {
			states[i].RunID, states[i].Attempt = run.RunID, run.Attempt
		}
	}
	if len(keys) == 0 {
		states = withRecorded(states, runs, s.Name())
	}
	return states, nil
}

// heldOf are the keys that are held, nil where none is.
func heldOf(states []backends.State) (keys []string) {
	for _, s := range states {
		if s.State == backends.Held {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// withRecorded adds the keys that only the record store knows, in the order of bytes.
func withRecorded(states, runs []backends.State, where string) []backends.State {
	known := map[string]bool{}
	for _, s := range states {
		known[s.Key] = true
	}
	for _, r := range runs {
		switch {
		case known[r.Key]:
		case r.State == backends.Held:
			r.Reason = strings.TrimPrefix(r.Reason+"; only in "+where, "; ")
			states = append(states, r)
		default:
			known[r.Key] = true
			states = append(states, backends.State{Key: r.Key, State: backends.Free, Token: r.Token})
		}
	}
	slices.SortStableFunc(states, func(a, b backends.State) int { return strings.Compare(a.Key, b.Key) })
	return states
}

// History is the record store's.
func (b *backend) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	s, err := b.store(ctx)
	if err != nil {
		return nil, err
	}
	records, err := s.History(ctx, q)
	return records, fromRecord(err)
}

// Record writes into the record store.
func (b *backend) Record(ctx context.Context, r backends.Record) error {
	s, err := b.store(ctx)
	if err != nil {
		return err
	}
	r.Token = b.shownAs(r.Token)
	return fromRecord(s.Record(ctx, r))
}

// Now is the lease's store's clock.
func (b *backend) Now(ctx context.Context) (time.Time, error) { return b.lease.Now(ctx) }

// Pause pauses the key where leases are.
func (b *backend) Pause(ctx context.Context, key string, p backends.Pause) error {
	return b.lease.Pause(ctx, key, p)
}

// Resume ends such a pause.
func (b *backend) Resume(ctx context.Context, key string) error { return b.lease.Resume(ctx, key) }

// Break breaks the lease, and has its record say so. A record whose lease is not there any more, because its store forgot
// it, keeps its run id from being run until it runs out; so it is broken as well, and shown where there was nothing else.
func (b *backend) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	of := backends.State{Key: key, Token: token}
	if token != 0 {
		if states, err := b.lease.Status(ctx, key); err == nil {
			for _, s := range states {
				if s.State == backends.Held && s.Token == token {
					of = s
				}
			}
		}
	}
	broken, err := b.lease.Break(ctx, key, token, by)
	if err != nil && !errors.Is(err, backends.ErrNotHeld) {
		return broken, err
	}
	records, recErr := b.breakRecord(ctx, of, by)
	if err != nil {
		return records, recErr
	}
	if recErr == nil || errors.Is(recErr, backends.ErrNotHeld) {
		recErr = b.sayUnlocked(ctx, broken, records, by)
	}
	if recErr != nil {
		b.o.Warn("the lease is broken, but its record does not say so: " + recErr.Error())
	}
	return broken, nil
}

// sayUnlocked records the leases that were broken and whose records were not: a holder who was quick has found its lease
// lost, and said so, before it could be said why.
func (b *backend) sayUnlocked(ctx context.Context, broken, records []backends.State, by string) error {
	for _, l := range broken {
		if backends.OfSameRun(records, l) != nil || l.Reason == backends.MinimumHold {
			continue
		}
		r := backends.Record{Key: l.Key, Token: b.shownAs(l.Token), Slot: l.Slot, Holder: l.Holder, Host: l.Host, PID: l.PID,
			Outcome: backends.Unlocked, Reason: by}
		if l.AcquiredAt != nil {
			r.StartedAt = *l.AcquiredAt
		}
		if err := b.Record(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// breakRecord breaks the records that belong to the lease shown as of, or with token 0 all of the key.
func (b *backend) breakRecord(ctx context.Context, of backends.State, by string) ([]backends.State, error) {
	s, err := b.store(ctx)
	if err != nil || of.Token == 0 {
		if err == nil {
			return s.Break(ctx, of.Key, 0, by)
		}
		return nil, err
	}
	states, err := s.Status(ctx, of.Key)
	if err != nil {
		return nil, err
	}
	record := backends.OfSameRun(states, of)
	if record == nil {
		return nil, backends.ErrNotHeld
	}
	return s.Break(ctx, of.Key, record.Token, by)
}

// Init creates what is missing in either store.
func (b *backend) Init(ctx context.Context) error {
	s, err := b.store(ctx)
	if err != nil {
		return err
	}
	if in, ok := b.lease.(backends.Initer); ok {
		if err := in.Init(ctx); err != nil {
			return err
		}
	}
	if in, ok := s.(backends.Initer); ok {
		return fromRecord(in.Init(ctx))
	}
	return nil
}

// InitPlan is what Init would do in either store.
func (b *backend) InitPlan() string {
	var plan strings.Builder
	for _, s := range []backends.Backend{b.lease, b.known()} {
		if s == nil {
			continue
		}
		if in, ok := s.(backends.Initer); ok {
			plan.WriteString("-- " + s.Name() + "\n" + strings.TrimSuffix(in.InitPlan(), "\n") + "\n")
		} else {
			plan.WriteString("-- " + s.Name() + " needs nothing to be created\n")
		}
	}
	return plan.String()
}
