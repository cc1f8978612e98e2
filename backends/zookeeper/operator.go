package zookeeper

import (
	"context"
	"errors"

	"github.com/lockrun/lockrun/backends"
)

// Break ends live leases and minimum holds of a key; see backends.Backend.
func (b *backend) Break(ctx context.Context, key string, token int64, by string) ([]backends.State, error) {
	var broken []backends.State
	err := b.change(ctx, "unlock", key, false, func(s *session, v *view) (*edit, error) {
		before := broken
		broken = nil
		e := b.edit(v)
		for _, st := range v.states() {
			if st.State != backends.Held || token != 0 && st.Token != token || v.doubtful && !backends.HasToken(before, st.Token) {
				continue // the last case: who came after the lease that was broken, as an answer that was lost would have told
			}
			broken = append(broken, st)
			l := v.s.slotOf(*st.Slot)
			e.endLease(l)
			if !l.Recorded {
				rec := l.record(key, b.Name())
				rec.Outcome, rec.Reason, rec.EndedAt = backends.Unlocked, by, v.instant()
				e.remember(rec)
			}
			v.s.drop(l.Slot)
		}
		switch {
		case broken == nil && v.doubtful:
			broken = before
			return nil, nil
		case broken == nil:
			return nil, backends.ErrNotHeld
		}
		return e, nil
	})
	if err != nil {
		return nil, err
	}
	return broken, nil
}

// Pause keeps a key from being acquired.
func (b *backend) Pause(ctx context.Context, key string, p backends.Pause) error {
	if err := backends.CheckKey(key); err != nil {
		return err
	}
	return b.change(ctx, "pause", key, true, func(s *session, v *view) (*edit, error) {
		v.s.Pause = &pause{By: p.By, Reason: p.Reason, At: v.at()}
		if p.For > 0 {
			v.s.Pause.Until = v.at() + inMicros(p.For)
		}
		return b.edit(v), nil
	})
}

// Resume ends a pause.
func (b *backend) Resume(ctx context.Context, key string) error {
	return b.change(ctx, "resume", key, false, func(s *session, v *view) (*edit, error) {
		switch {
		case !v.paused() && v.doubtful:
			return nil, nil
		case !v.paused():
			return nil, backends.ErrNotHeld
		}
		v.s.Pause = nil
		return b.edit(v), nil
	})
}

// Record adds what no release tells; see backends.Backend.
func (b *backend) Record(ctx context.Context, r backends.Record) error {
	if err := backends.CheckKey(r.Key); err != nil {
		return err
	}
	if r.Backend == "" {
		r.Backend = b.Name()
	}
	if r.Outcome.Refusal() {
		return b.addKnownRefusal(ctx, r)
	}
	return b.change(ctx, "record", r.Key, true, func(s *session, v *view) (*edit, error) {
		if r.StartedAt.IsZero() {
			r.StartedAt = v.instant()
		}
		if r.EndedAt.IsZero() {
			r.EndedAt = v.instant()
		}
		e := b.edit(v)
		l := v.s.find(func(l *slot) bool { return r.Token != 0 && l.Token == r.Token && !l.Recorded })
		if l != nil { // what a taker would write down later is completed at once
			l.Recorded = true
			r = backends.Complete(v.crashed(l, b.Name()), r)
		}
		return e, e.rememberOrComplete(ctx, s, l == nil && r.Token != 0, r)
	})
}

// addKnownRefusal adds a refusal to a key, which it makes known.
func (b *backend) addKnownRefusal(ctx context.Context, r backends.Record) error {
	s, err := b.session(ctx)
	if err != nil {
		return b.fail(ctx, "record", err)
	}
	v, err := b.load(ctx, s, r.Key, query{}) // which fails where the key is not ours
	if err == nil && !v.found {
		err = b.ensureKey(ctx, s, r.Key)
	}
	if err == nil {
		if r.StartedAt.IsZero() {
			r.StartedAt = v.instant()
		}
		if r.EndedAt.IsZero() {
			r.EndedAt = v.instant()
		}
		err = b.addRefusal(ctx, s, v.path, r, v.instant())
	}
	if err != nil {
		return b.fail(ctx, "record", err)
	}
	return nil
}

// change is an operator's or a late run's change of a key, which create makes known.
func (b *backend) change(ctx context.Context, op, key string, create bool, f func(*session, *view) (*edit, error)) error {
	s, err := b.session(ctx)
	if err != nil {
		return b.fail(ctx, op, err)
	}
	do := func(v *view) (*edit, error) { return f(s, v) }
	if create {
		err = b.updateKnown(ctx, s, key, query{}, nil, do)
	} else {
		err = b.update(ctx, s, key, query{}, nil, do)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, backends.ErrNotHeld):
		return backends.ErrNotHeld
	}
	return b.fail(ctx, op, err)
}
