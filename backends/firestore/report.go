package firestore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// queriesAtOnce bounds how many keys' histories are asked for at one time.
const queriesAtOnce = 8

// Status reads two documents for each key that is named, and who waits.
func (b *backend) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	all, err := b.status(ctx, keys)
	return all, b.fail(ctx, "status", err)
}

func (b *backend) status(ctx context.Context, keys []string) ([]backends.State, error) {
	var waiters map[string]int
	var snapshots map[string]*snapshot
	err := together(
		func() (err error) { waiters, err = b.waiting(ctx); return },
		func() (err error) { snapshots, err = b.snapshots(ctx, keys); return },
	)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		keys = slices.Sorted(maps.Keys(snapshots))
	}
	var all []backends.State
	for _, key := range keys {
		for _, st := range snapshots[key].states(key) {
			n := waiters[key]
			st.Waiters = &n
			all = append(all, st)
		}
	}
	return all, nil
}

// together runs some requests at the same time and gives one of their errors.
func together(fs ...func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// snapshots reads the named keys, or all where none is named.
func (b *backend) snapshots(ctx context.Context, keys []string) (map[string]*snapshot, error) {
	if len(keys) == 0 {
		return b.allSnapshots(ctx)
	}
	var list []string
	for _, key := range slices.Compact(slices.Sorted(slices.Values(keys))) {
		list = append(list, b.names.lease(key), b.names.key(key))
	}
	all := map[string]*snapshot{}
	found, now, err := b.client.read(ctx, list...)
	for _, key := range keys {
		if err != nil {
			return nil, err
		}
		all[key], err = newSnapshot(key, now, found[b.names.lease(key)], found[b.names.key(key)])
	}
	return all, err
}

// allSnapshots puts together what two queries find; a key that comes or goes between them is free.
func (b *backend) allSnapshots(ctx context.Context) (map[string]*snapshot, error) {
	var leases, keys []*document
	var at time.Time
	err := together(
		func() (err error) {
			leases, at, err = b.find(ctx, "", query{From: []from{{b.names.collection}}})
			return
		},
		func() (err error) { keys, _, err = b.find(ctx, "", query{From: []from{{b.names.keys()}}}); return },
	)
	if err != nil {
		return nil, err
	}
	byKey := map[string]*document{}
	for _, d := range leases {
		byKey[d.Fields.str("key")] = d
	}
	all := map[string]*snapshot{}
	for _, d := range keys {
		key := d.Fields.str("key")
		if d.Name != b.names.key(key) { // somebody else's
			continue
		}
		if s, err := newSnapshot(key, at, byKey[key], d); err == nil { // else somebody else's as well
			all[key] = s
		}
	}
	return all, nil
}

// states is one State for each taken slot, or one for a key that is free or paused.
func (s *snapshot) states(key string) []backends.State {
	var all []backends.State
	for _, n := range slices.Sorted(maps.Keys(s.lease.slots)) {
		if own := s.lease.slots[n]; own.taken(s.now) {
			st := own.state(key, s.now)
			if s.lease.pause.active(s.now) {
				st.AlsoPaused(s.lease.pausedError(s.now))
			}
			all = append(all, st)
		}
	}
	if all != nil {
		return all
	}
	st := backends.State{Key: key, State: backends.Free, Token: s.last}
	if p := s.lease.pause; p.active(s.now) {
		st.State, st.Holder, st.Reason = backends.Paused, p.by, p.reason
		st.AcquiredAt = &p.at
		if !p.until.IsZero() {
			left := p.until.Sub(s.now)
			st.ExpiresAt, st.ExpiresIn = &p.until, &left
		}
	}
	return []backends.State{st}
}

func (s *slot) state(key string, now time.Time) backends.State {
	until := s.until(now)
	left := until.Sub(now)
	st := backends.State{Key: key, State: backends.Held, Holder: s.holder, Host: s.host, PID: s.pid, Token: s.token, Slot: &s.number,
		RunID: s.run, Attempt: s.attempt, AcquiredAt: &s.acquired, RenewedAt: &s.renewed, ExpiresAt: &until, ExpiresIn: &left}
	if !s.live(now) {
		st.Reason = backends.MinimumHold
	}
	return st
}

// History asks for each key's records by itself, newest first. One query over all keys would need an index that somebody
// has to create.
func (b *backend) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	all, err := b.history(ctx, q)
	return all, b.fail(ctx, "history", err)
}

func (b *backend) history(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	var named []string
	if q.Key != "" {
		named = []string{q.Key}
	}
	snapshots, err := b.snapshots(ctx, named)
	if err != nil {
		return nil, err
	}
	keys := slices.Collect(maps.Keys(snapshots))
	parts, errs := make([][]backends.Record, len(keys)), make([]error, len(keys))
	limit := make(chan struct{}, queriesAtOnce/2)
	var wg sync.WaitGroup
	for i, key := range keys {
		limit <- struct{}{}
		wg.Go(func() {
			parts[i], errs[i] = b.keyHistory(ctx, key, snapshots[key], q)
			<-limit
		})
	}
	wg.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	all := slices.Concat(parts...)
	slices.SortStableFunc(all, newestFirst)
	return q.Select(all), nil
}

func newestFirst(x, y backends.Record) int {
	return cmp.Or(y.EndedAt.Compare(x.EndedAt), cmp.Compare(y.Token, x.Token), strings.Compare(x.Key, y.Key))
}

// keyHistory is what the store has of one key, and who ran out without a record. Nothing older than has to be kept is
// told, though it may not have been cleaned up yet.
func (b *backend) keyHistory(ctx context.Context, key string, s *snapshot, q backends.Query) ([]backends.Record, error) {
	var runs, skips []backends.Record
	oldest := s.now.Add(-b.keep.Age)
	err := together(
		func() (err error) { runs, err = b.page(ctx, key, b.names.runs(), q, false, oldest); return },
		func() (err error) { skips, err = b.page(ctx, key, b.names.skips(), q, true, oldest); return },
	)
	all := slices.Concat(runs, skips)
	for _, own := range s.lease.slots {
		if !own.recorded && !own.live(s.now) {
			r := own.crashed(key, s.now)
			r.Backend = b.name
			all = append(all, r)
		}
	}
	return all, err
}
