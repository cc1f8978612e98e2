package sqlite

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// fakeClock is a host whose clocks a test sets.
type fakeClock struct {
	mu sync.Mutex
	i  instant
}

func newFakeClock() *fakeClock {
	return &fakeClock{i: instant{"boot-1", time.Hour, time.Date(2026, 3, 29, 0, 59, 0, 0, time.UTC)}}
}

func (c *fakeClock) now() instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.i
}

// pass lets time pass, stepWall sets the wall clock, reboot starts the host anew after a while.
func (c *fakeClock) pass(d time.Duration)     { c.set(c.i.boot, c.i.since+d, c.i.wall.Add(d)) }
func (c *fakeClock) stepWall(d time.Duration) { c.set(c.i.boot, c.i.since, c.i.wall.Add(d)) }
func (c *fakeClock) reboot(boot string, d time.Duration) {
	c.set(boot, time.Minute, c.i.wall.Add(d))
}

func (c *fakeClock) set(boot string, since time.Duration, wall time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.i = instant{boot, since, wall}
}

func (s *store) openAt(c *fakeClock) backends.Backend {
	s.t.Helper()
	b, err := open(s.t.Context(), urlOf(s.path), backends.Options{}, s.d, c.now)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { b.Close() })
	return b
}

// detached leases have no living process to ask, so that time alone decides.
func detached(key string, ttl time.Duration) backends.Request {
	r := request(key)
	r.Detached, r.TTL = true, ttl
	return r
}

func TestTheWallClockEndsNoLeaseAndKeepsNone(t *testing.T) {
	for _, step := range []time.Duration{-48 * time.Hour, -time.Second, time.Second, 48 * time.Hour} {
		s, c := newStore(t, linked), newFakeClock()
		b := s.openAt(c)
		l, err := b.Acquire(t.Context(), detached("k", time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		c.stepWall(step)
		c.pass(59 * time.Second)
		_, err = b.Acquire(t.Context(), detached("k", time.Minute))
		var held *backends.HeldError
		if !errors.As(err, &held) || held.Left != time.Second || !held.Until.Equal(c.now().wall.Add(time.Second)) {
			t.Fatalf("step %v: one second before the expiry: %+v", step, err)
		}
		if err := l.Renew(t.Context(), time.Minute); err != nil {
			t.Fatalf("step %v: Renew = %v", step, err)
		}
		c.pass(time.Minute)
		next, err := b.Acquire(t.Context(), detached("k", time.Minute))
		if err != nil {
			t.Fatalf("step %v: after the expiry: %v", step, err)
		}
		if next.Grant().Token <= l.Grant().Token {
			t.Errorf("step %v: token %d after %d", step, next.Grant().Token, l.Grant().Token)
		}
	}
}

func TestAFreshStartOfTheHostEndsEveryLease(t *testing.T) {
	for _, boot := range []string{"boot-2", "boot-1"} { // the latter: a system that does not name its starts
		s, c := newStore(t, linked), newFakeClock()
		b := s.openAt(c)
		if _, err := b.Acquire(t.Context(), detached("k", 30*time.Minute)); err != nil {
			t.Fatal(err)
		}
		c.reboot(boot, time.Minute)
		l, err := b.Acquire(t.Context(), detached("k", 30*time.Minute))
		if err != nil || !l.Grant().Takeover {
			t.Errorf("%s: Acquire after a fresh start = %v, %v", boot, l, err)
		}
	}
}

func TestMinimumHoldAndPauseOutliveAFreshStart(t *testing.T) {
	s, c := newStore(t, linked), newFakeClock()
	b := s.openAt(c)
	r := detached("held", time.Minute)
	r.HoldAtLeast = time.Hour
	l, err := b.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if err := b.Pause(t.Context(), "paused", backends.Pause{By: "ops", For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	c.reboot("boot-2", 10*time.Minute)
	for _, key := range []string{"held", "paused"} {
		_, err := b.Acquire(t.Context(), detached(key, time.Minute))
		var held *backends.HeldError
		if !errors.As(err, &held) || held.Left != 50*time.Minute {
			t.Errorf("%s: %+v; want 50 minutes left", key, err)
		}
	}
	c.pass(50 * time.Minute)
	for _, key := range []string{"held", "paused"} {
		if _, err := b.Acquire(t.Context(), detached(key, time.Minute)); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestRecordsAndMarksAreKeptAsLongAsPromised(t *testing.T) {
	s, c := newStore(t, linked), newFakeClock()
	b := s.openAt(c)
	run := func(id string) {
		t.Helper()
		r := detached("k", time.Minute)
		r.RunID = id
		l, err := b.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		t.Helper()
		h, err := b.History(t.Context(), backends.Query{})
		if err != nil {
			t.Fatal(err)
		}
		return len(h)
	}
	run("r1")
	c.pass(89 * 24 * time.Hour)
	run("r2")
	if n := count(); n != 2 {
		t.Errorf("%d records after 89 days, want 2", n)
	}
	c.pass(2 * 24 * time.Hour)
	run("r3")
	if n := count(); n != 2 {
		t.Errorf("%d records after 91 days, want 2", n)
	}
	c.pass(300 * 24 * time.Hour)
	var done *backends.DoneError
	r := detached("k", time.Minute)
	r.RunID = "r1"
	if _, err := b.Acquire(t.Context(), r); !errors.As(err, &done) {
		t.Errorf("Acquire after 391 days = %v, want *DoneError", err)
	}
	c.pass(10 * 24 * time.Hour)
	run("r4")
	run("r1")
}
