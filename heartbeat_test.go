package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// scripted is a lease whose renewals answer as a test wants, in virtual time; real stores cannot be made to answer at a
// chosen nanosecond.
type scripted struct {
	grant backends.Grant
	renew func(ctx context.Context, n int) error // n counts from 1
	n     int
}

func (s *scripted) Grant() backends.Grant { return s.grant }

func (s *scripted) Renew(ctx context.Context, ttl time.Duration) error {
	s.n++
	return s.renew(ctx, s.n)
}

func (s *scripted) Release(context.Context, backends.End) error { return nil }

var errNoAnswer = errors.New("no answer")

// bench is one keeper in virtual time, with a log of what it told.
type keeperBench struct {
	*keeper
	lease   *scripted
	suspend atomic.Int64 // added to the clock: what a suspend adds to boot time and not to Go's timers

	mu     sync.Mutex
	states []leaseState
	kills  []time.Duration
	lost   int
}

// told is what the keeper has told so far: its states, the KILL of each new deadline, and how often it said lost.
func (b *keeperBench) told() (states []leaseState, kills []time.Duration, lost int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.states), slices.Clone(b.kills), b.lost
}

// keep starts a keeper with the defaults of the given TTL inside a synctest bubble.
func keep(t *testing.T, cfg Config, renew func(ctx context.Context, n int) error) *keeperBench {
	t.Helper()
	if cfg.BackendTimeout == 0 {
		cfg.BackendTimeout = 5 * time.Second
	}
	b := &keeperBench{lease: &scripted{grant: backends.Grant{TTL: cfg.TTL}, renew: renew}}
	start := time.Now()
	now := func() time.Duration { return time.Since(start) + time.Duration(b.suspend.Load()) }
	b.keeper = newKeeper(b.lease, newTiming(b.lease.grant, &cfg), 0, now)
	log := func(f func()) { b.mu.Lock(); f(); b.mu.Unlock() }
	b.onState = func(s leaseState, _ error) { log(func() { b.states = append(b.states, s) }) }
	b.onDeadline = func(_, kill time.Duration) { log(func() { b.kills = append(b.kills, kill) }) }
	b.whenLost(func() { log(func() { b.lost++ }) })
	t.Cleanup(b.start())
	return b
}

func (b *keeperBench) wantStates(t *testing.T, want ...leaseState) {
	t.Helper()
	if got, _, _ := b.told(); !slices.Equal(got, want) {
		t.Fatalf("states %v, want %v", got, want)
	}
}

// wantTold checks how many new deadlines were told, and how often the loss was.
func (b *keeperBench) wantTold(t *testing.T, deadlines, lost int) {
	t.Helper()
	if _, kills, n := b.told(); len(kills) != deadlines || n != lost {
		t.Errorf("told deadlines %v and lost %d times, want %d and %d", kills, n, deadlines, lost)
	}
}

// forty five minutes are the TTL of the README's first example, with the grace that goes with it.
func longLease() Config {
	return Config{TTL: 45 * time.Minute, Heartbeat: 15 * time.Minute, Grace: 10 * time.Second}
}

func TestBeatsEachThirdOfTheTTLForDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := keep(t, longLease(), func(context.Context, int) error { return nil })
		time.Sleep(72*time.Hour + time.Minute)
		synctest.Wait()
		if want := 72 * 4; b.lease.n != want {
			t.Errorf("%d renewals in 72 hours, want %d", b.lease.n, want)
		}
		if b.current() != stateHeld {
			t.Errorf("state %v, want held", b.current())
		}
		b.wantStates(t)
	})
}

func TestDeadlineCountsFromWhenTheRenewalWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := keep(t, longLease(), func(ctx context.Context, n int) error {
			time.Sleep(3 * time.Second) // the answer is slow; the store may have counted from any moment since
			return nil
		})
		time.Sleep(15*time.Minute + 4*time.Second)
		synctest.Wait()
		term, kill, until := b.deadlines()
		if want := 60 * time.Minute; until != want {
			t.Errorf("ours until %v, want %v", until, want)
		}
		if kill >= until || term != kill-10*time.Second {
			t.Errorf("term %v, kill %v, until %v", term, kill, until)
		}
		if _, kills, _ := b.told(); len(kills) != 1 || kills[0] != kill {
			t.Errorf("told kill %v, want one at %v", kills, kill)
		}
	})
}

func TestUnansweredRenewalIsDoubtNotLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := keep(t, longLease(), func(_ context.Context, n int) error {
			if n <= 5 {
				return errNoAnswer
			}
			return nil
		})
		time.Sleep(16 * time.Minute)
		synctest.Wait()
		b.wantStates(t, stateDoubtful, stateHeld)
		b.wantTold(t, 1, 0)
	})
}

func TestSilenceIsLostOnlyAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := keep(t, longLease(), func(context.Context, int) error { return errNoAnswer })
		time.Sleep(45*time.Minute - time.Millisecond)
		synctest.Wait()
		b.wantStates(t, stateDoubtful)
		time.Sleep(16 * time.Minute)
		synctest.Wait()
		b.wantStates(t, stateDoubtful, stateLost)
		b.wantTold(t, 0, 1)
		if n := b.lease.n; n < 10 {
			t.Errorf("only %d renewals were tried in half an hour", n)
		}
	})
}

func TestRenewalThatHangsLeavesTimeForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{TTL: 10 * time.Second, Heartbeat: 3 * time.Second, Grace: time.Second, BackendTimeout: time.Minute}
		b := keep(t, cfg, func(ctx context.Context, n int) error {
			if n == 1 {
				<-ctx.Done() // a reply that is lost, on a connection that stays
				return ctx.Err()
			}
			return nil
		})
		time.Sleep(8 * time.Second)
		synctest.Wait()
		b.wantStates(t, stateDoubtful, stateHeld)
	})
}

func TestRenewalThatNeverReturnsIsLostAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		b := keep(t, longLease(), func(context.Context, int) error { <-stuck; return nil })
		time.Sleep(46 * time.Minute)
		if b.current() != stateLost {
			t.Errorf("state %v, want lost", b.current())
		}
		b.wantTold(t, 0, 1)
		close(stuck) // and its late success brings nothing back
		synctest.Wait()
		b.wantStates(t, stateLost)
		b.wantTold(t, 0, 1)
	})
}

func TestPositiveLossIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := keep(t, longLease(), func(context.Context, int) error { return backends.ErrLost })
		time.Sleep(15*time.Minute + time.Millisecond)
		synctest.Wait()
		b.wantStates(t, stateLost)
		time.Sleep(time.Hour)
		synctest.Wait()
		if b.lease.n != 1 {
			t.Errorf("%d renewals, want 1", b.lease.n)
		}
		b.wantTold(t, 0, 1)
	})
}

func TestWakeUpAfterSuspendAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := keep(t, longLease(), func(context.Context, int) error { return nil })
		time.Sleep(time.Minute)
		b.suspend.Store(int64(50 * time.Minute)) // the lid was closed: Go's timers stood still, the lease did not
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		if b.lease.n != 0 {
			t.Error("a renewal was sent for a lease that had run out")
		}
		b.wantStates(t, stateLost)
	})
}

// A suspend that the lease outlasts costs nothing, although Go's timers know nothing of it: the renewal that fell into it is
// sent soon after waking up, and not when the rest of the interval has passed.
func TestShortSuspendKeepsTheLease(t *testing.T) {
	for _, c := range []struct {
		cfg   Config
		awake time.Duration // before the suspend
		lasts time.Duration
	}{
		{longLease(), 0, 20 * time.Minute},
		{longLease(), time.Minute, 38 * time.Minute},
		{longLease(), 16 * time.Minute, 40 * time.Minute},
		{Config{TTL: time.Minute, Heartbeat: 20 * time.Second, Grace: 10 * time.Second}, time.Second, 40 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := keep(t, c.cfg, func(context.Context, int) error { return nil })
			time.Sleep(c.awake)
			synctest.Wait()
			beats := b.lease.n
			b.suspend.Store(int64(c.lasts))
			time.Sleep(c.cfg.Heartbeat / 4)
			synctest.Wait()
			term, _, _ := b.deadlines()
			if now := b.now(); b.lease.n != beats+1 || term < now+c.cfg.Heartbeat {
				t.Errorf("suspended for %v after %v: %d renewals since, TERM is due in %v", c.lasts, c.awake, b.lease.n-beats, term-now)
			}
			b.wantStates(t)
		})
	}
}

func TestAnswerAfterStopChangesNothing(t *testing.T) {
	for _, late := range []error{nil, backends.ErrLost, errNoAnswer} {
		synctest.Test(t, func(t *testing.T) {
			b := keep(t, longLease(), func(context.Context, int) error {
				time.Sleep(2 * time.Second)
				return late
			})
			time.Sleep(15*time.Minute + time.Second)
			if was := b.stop(); was != stateHeld {
				t.Errorf("stop found %v, want held", was)
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			b.wantStates(t, stateDone)
			b.wantTold(t, 0, 0)
		})
	}
}

func TestStopFindsADeadlineThatHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := keep(t, longLease(), func(context.Context, int) error { return nil })
		b.suspend.Store(int64(time.Hour))
		if was := b.stop(); was != stateLost {
			t.Errorf("stop found %v, want lost", was)
		}
	})
}

func TestLossBeforeAnybodyListensIsToldLater(t *testing.T) {
	k := newKeeper(&scripted{}, timing{TTL: time.Minute}, 0, func() time.Duration { return time.Hour })
	k.current()
	told := 0
	k.whenLost(func() { told++ })
	if told != 1 {
		t.Errorf("told %d times, want 1", told)
	}
}

func TestStoreThatGrantsLessShortensEverything(t *testing.T) {
	cfg := longLease()
	got := newTiming(backends.Grant{TTL: time.Minute}, &cfg)
	if got.TTL != time.Minute || got.Every != 20*time.Second || got.Grace != 10*time.Second {
		t.Errorf("%+v", got)
	}
}

// TestTimingsAlwaysFit goes over all leases that the configuration allows, explicit graces to the limit included.
func TestTimingsAlwaysFit(t *testing.T) {
	for ttl := 100 * time.Millisecond; ttl <= 48*time.Hour; ttl = ttl * 5 / 4 {
		for _, drift := range []time.Duration{0, ttl/100 + 2*time.Millisecond} {
			for beat := ttl / 2; beat > ttl/1000; beat = beat * 2 / 3 {
				rest := ttl - beat - drift
				for _, grace := range []time.Duration{min(10*time.Second, ttl/6), rest / 2, rest - 1} {
					cfg := Config{TTL: ttl, Heartbeat: beat, Grace: grace, BackendTimeout: 5 * time.Second}
					tm := newTiming(backends.Grant{TTL: ttl, Drift: drift}, &cfg)
					term, kill, until := tm.deadlines(0)
					if tm.Every <= 0 || tm.Every >= term || kill-term != grace || kill > until || until > ttl {
						t.Fatalf("ttl %v drift %v beat %v grace %v: every %v, term %v, kill %v, until %v",
							ttl, drift, beat, grace, tm.Every, term, kill, until)
					}
				}
			}
		}
	}
}
