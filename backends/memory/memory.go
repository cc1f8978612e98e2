// Package memory keeps leases in the memory of one process. It is the reference for what the contract of package
// backends means, and the store that tests of package main run against: small enough to be read as a specification.
// It is not offered to users, since it keeps two runs apart only inside one process.
package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// Store is the memory that any number of backends share, as many hosts share a server.
type Store struct {
	mu   sync.Mutex
	now  func() time.Time
	keep backends.Keep
	keys map[string]*entry
}

// entry is all that is known of one key.
type entry struct {
	token   int64 // the last one handed out
	starts  int   // without a run id, since the last success
	pause   *pause
	runs    map[string]*run
	slots   map[int]*lease
	ended   []backends.Record // oldest first
	refused []backends.Record
	changed chan struct{} // closed when a slot may have become free
	waiters int
}

type pause struct {
	backends.Pause
	at, until time.Time
}

// run is what is known of a run id.
type run struct {
	attempts int
	at, done time.Time // done is zero until it succeeded
}

// lease is one taken slot: held, or kept by its minimum hold, or run out and not taken since.
type lease struct {
	req                         backends.Request
	grant                       backends.Grant
	renewed, expires, holdUntil time.Time
	released                    bool // only the minimum hold keeps the slot
	recorded                    bool // the run's record has been written
}

func (l *lease) live(now time.Time) bool  { return !l.released && now.Before(l.expires) }
func (l *lease) taken(now time.Time) bool { return l.live(now) || now.Before(l.holdUntil) }

// until is when the slot will be free unless somebody renews.
func (l *lease) until(now time.Time) time.Time {
	if l.live(now) && l.expires.After(l.holdUntil) {
		return l.expires
	}
	return l.holdUntil
}

// New returns an empty store whose clock is now; nil stands for time.Now.
func New(now func() time.Time, keep backends.Keep) *Store {
	if now == nil {
		now = time.Now
	}
	return &Store{now: now, keep: backends.Options{Keep: keep}.WithDefaults().Keep, keys: map[string]*entry{}}
}

// Open returns one host's way to the store.
func (s *Store) Open() backends.Backend { return s.OpenWith(backends.Options{Keep: s.keep}) }

// OpenWith is Open with limits of the host's own.
func (s *Store) OpenWith(o backends.Options) backends.Backend {
	return &backend{s: s, keep: o.WithDefaults().Keep}
}

type backend struct {
	s      *Store
	keep   backends.Keep
	mu     sync.Mutex
	closed bool
}

var (
	_ backends.Backend = (*backend)(nil)
	_ backends.Waiter  = (*backend)(nil)
)

func (b *backend) Name() string { return "memory:" }

// enter locks the store for one operation and returns its time.
func (b *backend) enter(ctx context.Context, op string) (time.Time, error) {
	err := ctx.Err()
	b.mu.Lock()
	if b.closed {
		err = errors.New("it is closed")
	}
	b.mu.Unlock()
	if err != nil {
		return time.Time{}, &backends.Error{Op: op, Backend: b.Name(), Err: err}
	}
	b.s.mu.Lock()
	return b.s.time(), nil
}

// time is the store's clock, no finer than other stores keep it.
func (s *Store) time() time.Time { return s.now().UTC().Truncate(time.Microsecond) }

func (b *backend) leave() { b.s.mu.Unlock() }

// entry returns what is known of key, and makes the key known where make says so.
func (s *Store) entry(key string, create bool) *entry {
	e := s.keys[key]
	if e == nil {
		e = &entry{runs: map[string]*run{}, slots: map[int]*lease{}, changed: make(chan struct{})}
		if create {
			s.keys[key] = e
		}
	}
	return e
}

// wake lets waiters look again.
func (e *entry) wake() {
	close(e.changed)
	e.changed = make(chan struct{})
}

func (b *backend) Pause(ctx context.Context, key string, p backends.Pause) error {
	if err := backends.CheckKey(key); err != nil {
		return err
	}
	now, err := b.enter(ctx, "pause")
	if err != nil {
		return err
	}
	defer b.leave()
	e := b.s.entry(key, true)
	e.pause = &pause{Pause: p, at: now}
	if p.For > 0 {
		e.pause.until = now.Add(p.For)
	}
	return nil
}

func (b *backend) Resume(ctx context.Context, key string) error {
	now, err := b.enter(ctx, "resume")
	if err != nil {
		return err
	}
	defer b.leave()
	e := b.s.entry(key, false)
	if !e.paused(now) {
		return backends.ErrNotHeld
	}
	e.pause = nil
	e.wake()
	return nil
}

func (e *entry) paused(now time.Time) bool {
	return e.pause != nil && (e.pause.until.IsZero() || now.Before(e.pause.until))
}

func (b *backend) Now(ctx context.Context) (time.Time, error) {
	now, err := b.enter(ctx, "read the clock")
	if err != nil {
		return time.Time{}, err
	}
	defer b.leave()
	return now, nil
}

func (b *backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}

// Wait wakes when the key changes or its lease or pause runs out.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	now, err := b.enter(ctx, "wait")
	if err != nil {
		return err
	}
	e := b.s.entry(r.Key, true)
	e.waiters++
	defer func() {
		b.s.mu.Lock()
		e.waiters--
		b.s.mu.Unlock()
	}()
	for {
		var held *backends.HeldError
		inTheWay := errors.As(e.refuse(r, now), &held) // and not that the run is done, which is for Acquire to tell
		changed := e.changed
		b.leave()
		if !inTheWay || held.Left <= 0 && !held.Until.IsZero() {
			return nil
		}
		if err := pauseFor(ctx, changed, held.Left); err != nil {
			return err
		}
		b.s.mu.Lock()
		now = b.s.time()
	}
}

// pauseFor returns at the first of: the key changed, left has passed (0: never), a tenth of a second. The last is for
// stores with a clock that does not run by itself.
func pauseFor(ctx context.Context, changed <-chan struct{}, left time.Duration) error {
	d := 100 * time.Millisecond
	if left > 0 {
		d = min(d, left)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-t.C:
	}
	return nil
}

// Expire makes every live lease of key run out now, for tests.
func (s *Store) Expire(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.entry(key, false).slots {
		l.expires = s.time()
	}
	s.entry(key, false).wake()
}

// Remove takes the leases of key out of the store without a trace, as an administrator's DELETE would, for tests.
func (s *Store) Remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.entry(key, false).slots)
}

// Dump is everything the store has of key's leases, for tests that compare it before and after.
func (s *Store) Dump(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(key, false)
	text := fmt.Sprintf("token %d starts %d\n", e.token, e.starts)
	for _, i := range slices.Sorted(maps.Keys(e.slots)) {
		text += fmt.Sprintf("%d: %+v\n", i, *e.slots[i])
	}
	return text
}
