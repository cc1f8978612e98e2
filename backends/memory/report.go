package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

func (b *backend) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	now, err := b.enter(ctx, "status")
	if err != nil {
		return nil, err
	}
	defer b.leave()
	if len(keys) == 0 {
		keys = slices.Sorted(maps.Keys(b.s.keys))
	}
	var all []backends.State
	for _, key := range keys {
		all = append(all, b.s.entry(key, false).states(key, now)...)
	}
	return all, nil
}

// states is one State for each taken slot, or one for a key that is free or paused.
func (e *entry) states(key string, now time.Time) []backends.State {
	var all []backends.State
	waiters := e.waiters
	for _, slot := range slices.Sorted(maps.Keys(e.slots)) {
		if l := e.slots[slot]; l.taken(now) {
			s := l.state(now)
			s.Waiters = &waiters
			if e.paused(now) {
				s.AlsoPaused(e.pausedError(key, now))
			}
			all = append(all, s)
		}
	}
	if all != nil {
		return all
	}
	s := backends.State{Key: key, State: backends.Free, Token: e.token, Waiters: &waiters}
	if e.paused(now) {
		s.State, s.Holder, s.Reason = backends.Paused, e.pause.By, e.pause.Reason
		s.AcquiredAt = instant(e.pause.at)
		if until := e.pause.until; !until.IsZero() {
			s.ExpiresAt, s.ExpiresIn = instant(until), length(until.Sub(now))
		}
	}
	return []backends.State{s}
}

func (l *lease) state(now time.Time) backends.State {
	s := backends.State{Key: l.req.Key, State: backends.Held, Holder: l.req.Holder, Host: l.req.Host, PID: l.req.PID,
		Token: l.grant.Token, Slot: &[]int{l.grant.Slot}[0], RunID: l.req.RunID, Attempt: l.grant.Attempt,
		AcquiredAt: instant(l.grant.AcquiredAt), RenewedAt: instant(l.renewed),
		ExpiresAt: instant(l.until(now)), ExpiresIn: length(l.until(now).Sub(now))}
	if !l.live(now) {
		s.Reason = backends.MinimumHold
	}
	return s
}

func instant(t time.Time) *time.Time        { return &t }
func length(d time.Duration) *time.Duration { return &d }
func newest(a, b backends.Record) int       { return b.EndedAt.Compare(a.EndedAt) }
func at(r backends.Record) time.Time        { return cmp.Or(r.EndedAt, r.StartedAt) }
func old(t time.Time, age time.Duration) func(backends.Record) bool {
	return func(r backends.Record) bool { return at(r).Before(t.Add(-age)) }
}

// History adds leases that ran out and that nobody took since, so that a crash shows without another run.
func (b *backend) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	now, err := b.enter(ctx, "history")
	if err != nil {
		return nil, err
	}
	defer b.leave()
	var all []backends.Record
	for key, e := range b.s.keys {
		if q.Key != "" && q.Key != key {
			continue
		}
		all = append(append(all, e.ended...), e.refused...)
		for _, l := range e.slots {
			if !l.recorded && !l.live(now) {
				all = append(all, l.crashed(now))
			}
		}
	}
	slices.Reverse(all)
	slices.SortStableFunc(all, newest)
	return q.Select(all), nil
}

func (b *backend) Record(ctx context.Context, r backends.Record) error {
	if err := backends.CheckKey(r.Key); err != nil {
		return err
	}
	now, err := b.enter(ctx, "record")
	if err != nil {
		return err
	}
	defer b.leave()
	if r.StartedAt.IsZero() {
		r.StartedAt = now
	}
	if r.EndedAt.IsZero() {
		r.EndedAt = now
	}
	e := b.s.entry(r.Key, true)
	for _, l := range e.slots {
		if r.Token != 0 && l.grant.Token == r.Token && !l.recorded {
			l.recorded = true
			e.ended = append(e.ended, l.crashed(now))
		}
	}
	b.remember(e, r, now)
	return nil
}

// remember adds a record, or completes the one of the same token, and cleans up.
func (b *backend) remember(e *entry, r backends.Record, now time.Time) {
	r.Backend = cmp.Or(r.Backend, "memory:")
	list := &e.ended
	if r.Outcome.Refusal() {
		list = &e.refused
	}
	i := slices.IndexFunc(*list, func(o backends.Record) bool { return r.Token != 0 && o.Token == r.Token })
	if i >= 0 {
		(*list)[i] = backends.Complete((*list)[i], r)
	} else {
		*list = append(*list, r)
	}
	*list = slices.DeleteFunc(*list, old(now, b.keep.Age))
	if n := len(*list) - b.keep.Runs; n > 0 {
		*list = slices.Delete(*list, 0, n)
	}
	maps.DeleteFunc(e.runs, func(_ string, r *run) bool { return r.at.Before(now.Add(-b.keep.DoneAge)) })
}
