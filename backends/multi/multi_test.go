package multi_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/backendtest"
	"github.com/lockrun/lockrun/backends/memory"
	"github.com/lockrun/lockrun/backends/multi"
)

const timeout = 5 * time.Second

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) *backendtest.Store {
		stores := []*memory.Store{memory.New(nil, backends.Keep{}), memory.New(nil, backends.Keep{})}
		each := func(f func(s *memory.Store, key string)) func(string) {
			return func(key string) {
				for _, s := range stores {
					f(s, key)
				}
			}
		}
		return &backendtest.Store{
			Open: func(o backends.Options) backends.Backend {
				return multi.New([]backends.Backend{stores[0].OpenWith(o), stores[1].OpenWith(o)}, timeout)
			},
			Expire: each((*memory.Store).Expire), Remove: each((*memory.Store).Remove),
			RecordedAs: "memory:",
			Dump:       func(key string) string { return stores[0].Dump(key) + stores[1].Dump(key) },
		}
	})
}

func request(key string) backends.Request {
	return backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "alpha", Host: "host", PID: 7, TTL: time.Minute, Slots: 1}
}

// stores are n fresh ones and a way to each.
func stores(n int) (all []*memory.Store, open []backends.Backend) {
	for range n {
		s := memory.New(nil, backends.Keep{})
		all, open = append(all, s), append(open, s.Open())
	}
	return all, open
}

func acquire(t *testing.T, b backends.Backend, r backends.Request) backends.Lease {
	t.Helper()
	l, err := b.Acquire(t.Context(), r)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return l
}

func state(t *testing.T, b backends.Backend, key string) backends.State {
	t.Helper()
	all, err := b.Status(t.Context(), key)
	if err != nil || len(all) != 1 {
		t.Fatalf("Status: %+v, %v", all, err)
	}
	return all[0]
}

func TestOneBackendIsItself(t *testing.T) {
	_, open := stores(1)
	if multi.New(open, timeout) != open[0] {
		t.Error("it is wrapped")
	}
}

func TestAllOrNothing(t *testing.T) {
	_, open := stores(3)
	rival := acquire(t, open[2], request("k"))
	_, err := multi.New(open, timeout).Acquire(t.Context(), request("k"))
	var held *backends.HeldError
	if !errors.As(err, &held) || held.Token != rival.Grant().Token {
		t.Fatalf("Acquire = %v; want the refusal of the third store", err)
	}
	for i, b := range open[:2] {
		if s := state(t, b, "k"); s.State != backends.Free {
			t.Errorf("store %d still has %+v", i, s)
		}
		if h, _ := b.History(t.Context(), backends.Query{}); len(h) != 0 {
			t.Errorf("store %d has the history %+v", i, h)
		}
	}
}

func TestTheRefusalOfALaterStoreIsRecordedInTheFirst(t *testing.T) {
	_, open := stores(2)
	acquire(t, open[1], request("k"))
	r := request("k")
	r.Last, r.RunID = true, "r1"
	if _, err := multi.New(open, timeout).Acquire(t.Context(), r); err == nil {
		t.Fatal("it was granted")
	}
	h, err := open[0].History(t.Context(), backends.Query{})
	if err != nil || len(h) != 1 || h[0].Outcome != backends.Skipped || h[0].RunID != "r1" || h[0].Reason == "" {
		t.Errorf("history %+v, %v", h, err)
	}
	if h, _ := open[1].History(t.Context(), backends.Query{}); len(h) != 0 {
		t.Errorf("the other store has the history %+v", h)
	}
}

func TestTheGrantIsTheTightest(t *testing.T) {
	_, open := stores(3)
	open[1] = shorter{open[1], 40 * time.Second, 0}
	open[2] = shorter{open[2], 50 * time.Second, 20 * time.Second}
	g := acquire(t, multi.New(open, timeout), request("k")).Grant()
	if g.TTL != 40*time.Second || g.TTL-g.Drift != 30*time.Second {
		t.Errorf("granted %v less %v; want 40s, of which 30s may be relied on", g.TTL, g.Drift)
	}
}

// shorter grants less than was asked for.
type shorter struct {
	backends.Backend
	ttl, drift time.Duration
}

type shorterLease struct {
	backends.Lease
	s shorter
}

func (s shorter) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	l, err := s.Backend.Acquire(ctx, r)
	return shorterLease{l, s}, err
}

func (l shorterLease) Grant() backends.Grant {
	g := l.Lease.Grant()
	g.TTL, g.Drift = l.s.ttl, l.s.drift
	return g
}

func TestLostAsSoonAsOneIsLost(t *testing.T) {
	for lost := range 3 {
		all, open := stores(3)
		slow := (lost + 1) % 3
		open[slow] = backendtest.Faulty(open[slow], func(op string, _ int) backendtest.Fault {
			if op == "renew" {
				return backendtest.Fault{Delay: backendtest.Hang}
			}
			return backendtest.Fault{}
		})
		l := acquire(t, multi.New(open, timeout), request("k"))
		all[lost].Remove("k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := l.Renew(ctx, time.Minute); !errors.Is(err, backends.ErrLost) {
			t.Errorf("store %d lost: Renew = %v", lost, err)
		}
		if ctx.Err() != nil {
			t.Error("the store that hangs was waited for")
		}
		cancel()
	}
}

func TestUnknownWhereOneIsUnknown(t *testing.T) {
	_, open := stores(2)
	var broken atomic.Bool
	open[1] = backendtest.Faulty(open[1], func(op string, _ int) backendtest.Fault {
		return backendtest.Fault{Before: broken.Load()}
	})
	b := multi.New(open, timeout)
	l := acquire(t, b, request("k"))
	broken.Store(true)
	if err := l.Renew(t.Context(), time.Minute); err == nil || backends.Positive(err) {
		t.Errorf("Renew = %v", err)
	}
	r := request("other")
	if _, err := b.Acquire(t.Context(), r); err == nil || backends.Positive(err) {
		t.Errorf("Acquire = %v", err)
	}
	broken.Store(false)
	acquire(t, b, r) // the same owner finds what the first store has granted
	if err := b.Abandon(t.Context(), r); err != nil {
		t.Error(err)
	}
	acquire(t, b, request("other"))
}

func TestReleaseInReverse(t *testing.T) {
	_, open := stores(3)
	var order []int
	for i, b := range open {
		open[i] = backendtest.Faulty(b, func(op string, _ int) backendtest.Fault {
			if op == "release" {
				order = append(order, i) // one after the other, since each answers at once
			}
			return backendtest.Fault{}
		})
	}
	l := acquire(t, multi.New(open, time.Hour), request("k"))
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(order, []int{2, 1, 0}) {
		t.Errorf("released in the order %v", order)
	}
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil || len(order) != 3 {
		t.Errorf("Release again = %v, with %d calls", err, len(order)-3)
	}
}

func TestWhatIsFoundLostAtTheReleaseIsNotDone(t *testing.T) {
	all, open := stores(3)
	b := multi.New(open, timeout)
	r := request("k")
	r.RunID = "r1"
	l := acquire(t, b, r)
	all[1].Remove("k")
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); !errors.Is(err, backends.ErrLost) {
		t.Fatalf("Release = %v", err)
	}
	h, err := b.History(t.Context(), backends.Query{})
	if err != nil || len(h) != 1 || h[0].Outcome != backends.Lost {
		t.Errorf("history %+v, %v", h, err)
	}
	again := r
	again.Owner = backends.NewOwner()
	if g := acquire(t, b, again).Grant(); g.Attempt != 2 {
		t.Errorf("attempt %d", g.Attempt)
	}
}

func TestAStoreThatDoesNotAnswerKeepsNoneOfTheOthers(t *testing.T) {
	all, open := stores(3)
	hung := backendtest.Faulty(open[2], func(op string, _ int) backendtest.Fault {
		if op == "release" || op == "abandon" {
			return backendtest.Fault{Delay: backendtest.Hang}
		}
		return backendtest.Fault{}
	})
	b := multi.New([]backends.Backend{all[0].Open(), all[1].Open(), hung}, 400*time.Millisecond)
	l := acquire(t, b, request("k"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := l.Release(ctx, backends.End{Outcome: backends.Succeeded}); err == nil || backends.Positive(err) {
		t.Errorf("Release = %v", err)
	}
	for i := range 2 {
		if s := state(t, open[i], "k"); s.State != backends.Free {
			t.Errorf("store %d still has %+v", i, s)
		}
	}
}

func TestDoneMarksAreTheFirstStores(t *testing.T) {
	_, open := stores(2)
	b := multi.New(open, timeout)
	r := request("k")
	r.RunID = "r1"
	if err := acquire(t, b, r).Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatal(err)
	}
	r.Owner = backends.NewOwner()
	var done *backends.DoneError
	if _, err := b.Acquire(t.Context(), r); !errors.As(err, &done) {
		t.Errorf("Acquire = %v", err)
	}
	if _, err := open[1].Acquire(t.Context(), r); err != nil {
		t.Errorf("the second store calls it done as well: %v", err)
	}
}

// Two runs that name the stores in different orders, over and over: both get through, and never at the same time.
func TestDifferentOrdersDoNotDeadlock(t *testing.T) {
	all, _ := stores(2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var inside, total atomic.Int32
	done := make(chan struct{}, 2)
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		go func() {
			defer func() { done <- struct{}{} }()
			b := multi.New([]backends.Backend{all[order[0]].Open(), all[order[1]].Open()}, timeout)
			for range 10 {
				l := acquireSoon(ctx, t, b, request("k"))
				if l == nil {
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d at the same time", n)
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				total.Add(1)
				if err := l.Release(ctx, backends.End{Outcome: backends.Succeeded}); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		}()
	}
	<-done
	<-done
	if total.Load() != 20 {
		t.Errorf("%d of 20 runs got through", total.Load())
	}
}

// acquireSoon asks and waits as package main does, without pauses of its own.
func acquireSoon(ctx context.Context, t *testing.T, b backends.Backend, r backends.Request) backends.Lease {
	for ctx.Err() == nil {
		l, err := b.Acquire(ctx, r)
		if err == nil {
			return l
		}
		var held *backends.HeldError
		if !errors.As(err, &held) {
			t.Errorf("Acquire: %v", err)
			return nil
		}
		_ = b.(backends.Waiter).Wait(ctx, r)
	}
	t.Error("it is never granted")
	return nil
}

func TestWaitIsForTheStoreThatRefused(t *testing.T) {
	_, open := stores(2)
	b := multi.New(open, timeout)
	rival := acquire(t, open[1], request("k"))
	r := request("k")
	if _, err := b.Acquire(t.Context(), r); err == nil {
		t.Fatal("it was granted")
	}
	woken := make(chan error, 1)
	go func() { woken <- b.(backends.Waiter).Wait(t.Context(), r) }()
	select {
	case err := <-woken:
		t.Fatalf("woken with %v while the second store is held", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := rival.Release(t.Context(), backends.End{Outcome: backends.Failed}); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; err != nil {
		t.Fatal(err)
	}
	acquire(t, b, r)
}

func TestStatusShowsWhatOnlyALaterStoreHolds(t *testing.T) {
	_, open := stores(2)
	b := multi.New(open, timeout)
	rival := request("k")
	rival.Holder = "beta"
	acquire(t, open[1], rival)
	if s := state(t, b, "k"); s.State != backends.Held || s.Holder != "beta" || s.Reason == "" {
		t.Errorf("status %+v", s)
	}
	if broken, err := b.Break(t.Context(), "k", 0, "me"); err != nil || len(broken) != 1 {
		t.Errorf("Break = %+v, %v", broken, err)
	}
	if s := state(t, b, "k"); s.State != backends.Free {
		t.Errorf("status %+v", s)
	}
}
