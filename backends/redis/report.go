package redis

import (
	"context"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

func (b *backend) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	if len(keys) == 0 {
		var err error
		if keys, err = b.node.keys(ctx); err != nil {
			return nil, err
		}
	}
	dumps, err := b.node.dumps(ctx, "status", keys)
	if err != nil {
		return nil, err
	}
	var all []backends.State
	for _, d := range dumps {
		all = append(all, d.states()...)
	}
	return all, nil
}

// states is one State for each taken slot, or one for a key that is free or paused.
func (d dump) states() (all []backends.State) {
	for _, l := range d.taken() {
		s := d.state(l)
		if d.paused() {
			s.AlsoPaused(&backends.HeldError{Holder: d.pause.who.Holder, Until: d.pause.until, Paused: true, Reason: d.pause.who.Reason})
		}
		all = append(all, s)
	}
	if all != nil {
		return all
	}
	s := backends.State{Key: d.key, State: backends.Free, Token: d.token, Waiters: d.waiters}
	if d.paused() {
		s.State, s.Holder, s.Reason, s.AcquiredAt = backends.Paused, d.pause.who.Holder, d.pause.who.Reason, &d.pause.at
		if until := d.pause.until; !until.IsZero() {
			left := until.Sub(d.now)
			s.ExpiresAt, s.ExpiresIn = &until, &left
		}
	}
	return []backends.State{s}
}

func (d dump) state(l row) backends.State {
	until := l.until(d.now)
	left := until.Sub(d.now)
	s := backends.State{Key: d.key, State: backends.Held, Holder: l.who.Holder, Host: l.who.Host, PID: l.who.PID, Token: l.token,
		Slot: &l.slot, AcquiredAt: &l.acquired, RenewedAt: &l.renewed, ExpiresAt: &until, ExpiresIn: &left,
		RunID: l.who.RunID, Attempt: l.attempt, Waiters: d.waiters}
	if !l.live(d.now) {
		s.Reason = backends.MinimumHold
	}
	return s
}

func (b *backend) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	keys := []string{q.Key}
	if q.Key == "" {
		var err error
		if keys, err = b.node.keys(ctx); err != nil {
			return nil, err
		}
	}
	all, err := b.node.records(ctx, keys)
	if err != nil {
		return nil, err
	}
	return newest(all, q), nil
}

// sortNewest puts the newest first.
func sortNewest(all []stored) {
	// Of what ended in the same microsecond the later token is the newer; the sort of what is equal has to be stable.
	slices.SortStableFunc(all, func(a, b stored) int {
		if c := b.EndedAt.Compare(a.EndedAt); c != 0 {
			return c
		}
		return int(min(1, max(-1, b.Token-a.Token)))
	})
}

// newest are the records that q asks for, newest first. Scripts hand out all that a key has, at most a few thousand: a
// filter in them would have to take each text apart on the server, which has less time for that than whoever asks.
func newest(all []stored, q backends.Query) []backends.Record {
	all = slices.DeleteFunc(all, func(r stored) bool { return !q.Matches(r.Record) })
	sortNewest(all)
	if q.Limit > 0 && len(all) > q.Limit {
		all = all[:q.Limit]
	}
	list := make([]backends.Record, len(all))
	for i, r := range all {
		list[i] = r.Record
	}
	return list
}

// waiterLife is how long a waiter counts as one after it was last heard of.
const waiterLife = 10 * time.Second
