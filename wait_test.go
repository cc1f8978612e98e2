package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/memory"
)

// noisy decorates a real backend: before says what happens to the n-th acquire instead of it, after what happens to its
// answer. It hides the backend's Waiter unless told otherwise.
type noisy struct {
	backends.Backend
	before    func(ctx context.Context, n int) error
	after     func(n int) error
	n         int
	abandoned int
}

func (f *noisy) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	f.n++
	if f.before != nil {
		if err := f.before(ctx, f.n); err != nil {
			return nil, err
		}
	}
	l, err := f.Backend.Acquire(ctx, r)
	if f.after != nil && err == nil {
		if err := f.after(f.n); err != nil {
			return nil, err
		}
	}
	return l, err
}

func (f *noisy) Abandon(ctx context.Context, r backends.Request) error {
	f.abandoned++
	return f.Backend.Abandon(ctx, r)
}

// virtualClock is a clock of the bubble, for a host and its store.
func virtualClock() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

func askFor(b backends.Backend, ttl, wait time.Duration) *acquirer {
	return &acquirer{b: b, now: virtualClock(), wait: wait, timeout: 5 * time.Second,
		req: backends.Request{Key: "k", Owner: backends.NewOwner(), Holder: "h", TTL: ttl, Slots: 1}}
}

func hold(t *testing.T, b backends.Backend, ttl time.Duration) backends.Lease {
	t.Helper()
	l, err := b.Acquire(t.Context(), askFor(b, ttl, 0).req)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func wantFree(t *testing.T, b backends.Backend) {
	t.Helper()
	s, err := b.Status(t.Context(), "k")
	if err != nil || s[0].State != backends.Free {
		t.Errorf("key is %q, %v; want free", s[0].State, err)
	}
}

func TestLostReplyIsRecognisedAsOwnLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil, backends.Keep{})
		b := &noisy{Backend: store.Open(), after: func(n int) error {
			if n == 1 {
				time.Sleep(2 * time.Second)
				return errNoAnswer
			}
			return nil
		}}
		a := askFor(b, time.Minute, 0)
		g, err := a.acquire(t.Context(), t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if g.sentAt < 2*time.Second {
			t.Errorf("counted from %v, before the request that was answered", g.sentAt)
		}
		if g.lease.Grant().Token == 0 || b.n != 2 {
			t.Errorf("grant %+v after %d requests", g.lease.Grant(), b.n)
		}
	})
}

func TestNoAnswerLeavesNothingBehindAndIsNoSkip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil, backends.Keep{})
		b := &noisy{Backend: store.Open(), after: func(int) error { return errNoAnswer }}
		a := askFor(b, time.Minute, 0)
		_, err := a.acquire(t.Context(), t.Context())
		if codeOf(err) != codeUnavailable {
			t.Errorf("answered %v, want unavailable", err)
		}
		if took := a.now(); took > 6*time.Second {
			t.Errorf("gave up after %v, want within the backend timeout and a second", took)
		}
		wantFree(t, b)
	})
}

func TestSilentStoreIsGivenUpInTimeHoweverLongTheWait(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second, time.Hour, WaitForever} {
		synctest.Test(t, func(t *testing.T) {
			b := &noisy{Backend: memory.New(nil, backends.Keep{}).Open(), before: func(ctx context.Context, _ int) error {
				<-ctx.Done()
				return ctx.Err()
			}}
			a := askFor(b, time.Minute, wait)
			_, err := a.acquire(t.Context(), t.Context())
			if codeOf(err) != codeUnavailable || a.now() > 6*time.Second || b.abandoned != 1 {
				t.Errorf("wait %v: %v after %v, abandoned %d times", wait, err, a.now(), b.abandoned)
			}
		})
	}
}

func TestReasonSurvivesATryThatIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("connection refused")
		b := &noisy{Backend: memory.New(nil, backends.Keep{}).Open(), before: func(ctx context.Context, n int) error {
			if n < 3 {
				return refused
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		a := askFor(b, time.Minute, 0)
		if _, err := a.acquire(t.Context(), t.Context()); !errors.Is(err, refused) || codeOf(err) != codeUnavailable {
			t.Errorf("answered %v, want the reason that was known", err)
		}
	})
}

func TestPermanentErrorIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &noisy{Backend: memory.New(nil, backends.Keep{}).Open(), before: func(context.Context, int) error {
			return &backends.Error{Op: "acquire", Backend: "b", Err: errors.New("no table"), Permanent: true}
		}}
		a := askFor(b, time.Minute, 0)
		if _, err := a.acquire(t.Context(), t.Context()); !backends.IsPermanent(err) || b.n != 1 {
			t.Errorf("%v after %d requests", err, b.n)
		}
	})
}

func TestGrantThatOutlivedItsLeaseIsNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := true
		b := &noisy{Backend: memory.New(nil, backends.Keep{}).Open(), after: func(int) error {
			if slow {
				time.Sleep(time.Second)
			}
			return nil
		}}
		a := askFor(b, 900*time.Millisecond, 0)
		_, err := a.acquire(t.Context(), t.Context())
		if codeOf(err) != codeUnavailable {
			t.Errorf("answered %v, want unavailable", err)
		}
		wantFree(t, b)
	})
}

func TestHeldIsASkipAtOnceAndNamesTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil, backends.Keep{})
		hold(t, store.Open(), time.Minute)
		a := askFor(store.Open(), time.Minute, 0)
		_, err := a.acquire(t.Context(), t.Context())
		var held *backends.HeldError
		if !errors.As(err, &held) || held.Holder != "h" || a.now() != 0 {
			t.Errorf("answered %v after %v", err, a.now())
		}
	})
}

func TestWaiterGetsTheLeaseWhenItIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil, backends.Keep{})
		l := hold(t, store.Open(), time.Hour)
		go func() {
			time.Sleep(90 * time.Second)
			_ = l.Release(context.Background(), backends.End{Outcome: backends.Succeeded})
		}()
		a := askFor(store.Open(), time.Minute, WaitForever)
		told := 0
		a.waiting = func(*backends.HeldError) { told++ }
		if _, err := a.acquire(t.Context(), t.Context()); err != nil {
			t.Fatal(err)
		}
		if a.now() != 90*time.Second || told != 1 {
			t.Errorf("granted after %v, told %d times", a.now(), told)
		}
	})
}

func TestWaitingWithoutNotificationBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil, backends.Keep{})
		hold(t, store.Open(), time.Hour)
		b := &noisy{Backend: store.Open()}
		a := askFor(b, time.Minute, 2*time.Minute)
		_, err := a.acquire(t.Context(), t.Context())
		if codeOf(err) != codeSkipped || a.now() != 2*time.Minute {
			t.Errorf("%v after %v, want a skip after two minutes", err, a.now())
		}
		if b.n < 120 || b.n > 270 {
			t.Errorf("asked %d times in two minutes, want about once a second", b.n)
		}
		recs, err := b.History(t.Context(), backends.Query{})
		if err != nil || len(recs) != 1 || recs[0].Waited != 2*time.Minute {
			t.Errorf("history %+v, %v; want one skip that waited two minutes", recs, err)
		}
	})
}

// outage is a store whose answers are lost from the second acquire on, until it is back.
func outage(b backends.Backend, back time.Duration) *noisy {
	now := virtualClock()
	return &noisy{Backend: b, before: func(ctx context.Context, n int) error {
		switch {
		case n == 1 || now() >= back:
			return nil
		case n%2 == 0:
			return errNoAnswer
		}
		<-ctx.Done()
		return ctx.Err()
	}}
}

func TestAWaiterSitsAnOutageOut(t *testing.T) {
	for _, wait := range []time.Duration{10 * time.Minute, WaitForever} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New(nil, backends.Keep{})
			l := hold(t, store.Open(), time.Hour)
			b := outage(store.Open(), 2*time.Minute)
			time.AfterFunc(time.Minute, func() { _ = l.Release(context.Background(), backends.End{Outcome: backends.Succeeded}) })
			a := askFor(b, time.Minute, wait)
			told := 0
			a.silent = func(error) { told++ }
			if _, err := a.acquire(t.Context(), t.Context()); err != nil {
				t.Fatalf("wait %v: %v after %v", wait, err, a.now())
			}
			if a.now() < 2*time.Minute || a.now() > 2*time.Minute+10*time.Second || told != 1 || b.abandoned != 0 {
				t.Errorf("granted after %v, told %d times, abandoned %d times", a.now(), told, b.abandoned)
			}
		})
	}
}

func TestAnOutageDoesNotMakeAWaitLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil, backends.Keep{})
		hold(t, store.Open(), time.Hour)
		b := outage(store.Open(), time.Hour)
		a := askFor(b, time.Minute, time.Minute)
		a.silent = func(error) {}
		_, err := a.acquire(t.Context(), t.Context())
		if codeOf(err) != codeUnavailable || !errors.Is(err, errNoAnswer) || a.now() < time.Minute || a.now() > 66*time.Second || b.abandoned != 1 {
			t.Errorf("%v after %v, abandoned %d times", err, a.now(), b.abandoned)
		}
	})
}

func TestAWaiterIsNotKeptByWhatAskingCannotMend(t *testing.T) {
	permanent := &backends.Error{Op: "acquire", Backend: "b", Err: errors.New("no table"), Permanent: true}
	for name, c := range map[string]struct {
		why      error
		patience time.Duration // until a signal ends it
		other    bool          // --on-unavailable says what else to do
		within   time.Duration
	}{
		"permanent":      {why: permanent, patience: time.Hour, within: 2 * time.Second},
		"impatient":      {why: errNoAnswer, patience: 20 * time.Second, within: 20 * time.Second},
		"something else": {why: errNoAnswer, patience: time.Hour, other: true, within: 8 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New(nil, backends.Keep{})
			hold(t, store.Open(), time.Hour)
			b := &noisy{Backend: store.Open(), before: func(_ context.Context, n int) error {
				if n == 1 {
					return nil
				}
				return c.why
			}}
			patience, impatient := context.WithCancel(t.Context())
			defer time.AfterFunc(c.patience, impatient).Stop()
			a := askFor(b, time.Minute, WaitForever)
			if !c.other {
				a.silent = func(error) {}
			}
			_, err := a.acquire(t.Context(), patience)
			if !errors.Is(err, c.why) || a.now() > c.within || b.abandoned != 1 {
				t.Errorf("%s: %v after %v, abandoned %d times", name, err, a.now(), b.abandoned)
			}
		})
	}
}

func TestImpatienceEndsTheWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil, backends.Keep{})
		hold(t, store.Open(), time.Hour)
		patience, impatient := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, impatient)
		a := askFor(store.Open(), time.Minute, WaitForever)
		if _, err := a.acquire(t.Context(), patience); codeOf(err) != codeSkipped || a.now() != 10*time.Second {
			t.Errorf("%v after %v", err, a.now())
		}
	})
}

// A store that is slow to connect to may be ready only when lockrun has already been told to end.
func TestImpatienceBeforeTheFirstRequestAsksNothing(t *testing.T) {
	b := &noisy{Backend: memory.New(nil, backends.Keep{}).Open()}
	patience, impatient := context.WithCancel(t.Context())
	impatient()
	g, err := askFor(b, time.Minute, 0).acquire(t.Context(), patience)
	if g.lease != nil || err == nil || b.n != 0 || b.abandoned != 0 {
		t.Errorf("lease %v, %v after %d requests, abandoned %d times", g.lease, err, b.n, b.abandoned)
	}
}
