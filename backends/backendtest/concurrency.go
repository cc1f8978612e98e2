package backendtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockrun/lockrun/backends"
)

var waitCases = []testCase{
	{"a waiter wakes soon after the release", func(s *suite) {
		w := s.waiter(s.b)
		l := s.acquire(s.a, s.request("k"))
		woken := s.wait(w, s.rival("k"))
		s.stillWaiting(woken)
		s.release(l, backends.Succeeded)
		s.woken(woken)
		s.acquire(s.b, s.rival("k"))
	}},
	{"a waiter wakes soon after the expiry", func(s *suite) {
		w := s.waiter(s.b)
		s.acquire(s.a, s.request("k"))
		woken := s.wait(w, s.rival("k"))
		s.stillWaiting(woken)
		s.store.Expire("k")
		s.woken(woken)
	}},
	{"a waiter wakes when the lease is broken", func(s *suite) {
		w := s.waiter(s.b)
		s.acquire(s.a, s.request("k"))
		woken := s.wait(w, s.rival("k"))
		s.stillWaiting(woken)
		_, err := s.a.Break(s.ctx, "k", 0, "me")
		s.ok("Break", err)
		s.woken(woken)
	}},
	{"a waiter wakes when the pause ends, by hand or by itself", func(s *suite) {
		w := s.waiter(s.b)
		s.ok("Pause", s.a.Pause(s.ctx, "k", backends.Pause{By: "ops"}))
		woken := s.wait(w, s.rival("k"))
		s.stillWaiting(woken)
		s.ok("Resume", s.a.Resume(s.ctx, "k"))
		s.woken(woken)
		s.ok("Pause", s.a.Pause(s.ctx, "k", backends.Pause{By: "ops", For: 100 * time.Millisecond}))
		s.woken(s.wait(w, s.rival("k")))
	}},
	{"a free key is not waited for", func(s *suite) {
		w := s.waiter(s.b)
		s.woken(s.wait(w, s.rival("unknown")))
		s.release(s.acquire(s.a, s.request("k")), backends.Failed)
		s.woken(s.wait(w, s.rival("k")))
	}},
	{"the end of the context ends it at once", func(s *suite) {
		w := s.waiter(s.b)
		s.acquire(s.a, s.request("k"))
		ctx, cancel := context.WithCancel(s.ctx)
		done := make(chan error, 1)
		go func() { done <- w.Wait(ctx, s.rival("k")) }()
		s.stillWaiting(done)
		began := time.Now()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			s.Errorf("Wait = %v, want context.Canceled", err)
		}
		if d := time.Since(began); d > 2*time.Second {
			s.Errorf("Wait returned %v after its context had ended", d)
		}
	}},
	{"waiters are counted where they can be", func(s *suite) {
		w := s.waiter(s.b)
		s.acquire(s.a, s.request("k"))
		if s.state("k").Waiters == nil {
			s.Skip("this store cannot tell")
		}
		if n := *s.state("k").Waiters; n != 0 {
			s.Errorf("%d waiters before anybody waits", n)
		}
		ctx, cancel := context.WithCancel(s.ctx)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { w.Wait(ctx, s.rival("k")) })
		}
		s.eventually("three waiters", func() bool { return *s.state("k").Waiters == 3 })
		if n := s.state("other").Waiters; n == nil || *n != 0 {
			s.Errorf("the other key has %v waiters", n)
		}
		cancel()
		all.Wait()
		s.eventually("no waiters", func() bool { return *s.state("k").Waiters == 0 })
	}},
}

func (s *suite) waiter(b backends.Backend) backends.Waiter {
	s.Helper()
	w, ok := b.(backends.Waiter)
	if !ok {
		s.Skip("this store has no Waiter")
	}
	return w
}

func (s *suite) wait(w backends.Waiter, r backends.Request) <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.Wait(s.ctx, r) }()
	return done
}

// stillWaiting gives a waiter time to return wrongly. It can only pass wrongly, never fail wrongly.
func (s *suite) stillWaiting(done <-chan error) {
	s.Helper()
	select {
	case err := <-done:
		s.Fatalf("Wait returned %v while the key was taken", err)
	case <-time.After(60 * time.Millisecond):
	}
}

func (s *suite) woken(done <-chan error) {
	s.Helper()
	select {
	case err := <-done:
		s.ok("Wait", err)
	case <-time.After(patience):
		s.Fatalf("Wait did not return within %v", patience)
	}
}

var contextCases = []testCase{
	{"an ended context gives no answer, promptly, and not a refusal", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		before := s.store.Dump("k")
		ctx, cancel := context.WithCancel(s.ctx)
		cancel()
		_, acquired := s.a.Acquire(ctx, s.rival("k"))
		_, attached := s.a.Attach(ctx, "k", l.Grant().Token)
		_, status := s.a.Status(ctx, "k")
		_, history := s.a.History(ctx, backends.Query{})
		_, broken := s.a.Break(ctx, "k", 0, "me")
		_, now := s.a.Now(ctx)
		for what, err := range map[string]error{
			"Acquire": acquired, "Attach": attached, "Status": status, "History": history, "Break": broken, "Now": now,
			"Renew":   l.Renew(ctx, s.ttl),
			"Release": l.Release(ctx, backends.End{Outcome: backends.Failed}),
			"Abandon": s.a.Abandon(ctx, s.request("k")),
			"Record":  s.a.Record(ctx, backends.Record{Key: "k", Outcome: backends.Skipped}),
			"Pause":   s.a.Pause(ctx, "k", backends.Pause{By: "ops"}),
			"Resume":  s.a.Resume(ctx, "k"),
		} {
			s.unknown(what, err)
			if !errors.Is(err, context.Canceled) {
				s.Errorf("%s = %v, which does not say that its context ended", what, err)
			}
		}
		if after := s.store.Dump("k"); after != before {
			s.Errorf("the store changed from\n%s\nto\n%s", before, after)
		}
	}},
	{"a closed backend gives no answer", func(s *suite) {
		c := s.store.Open(backends.Options{})
		s.ok("Close", c.Close())
		_, err := c.Acquire(s.ctx, s.request("k"))
		s.unknown("Acquire", err)
		s.acquire(s.b, s.rival("k"))
	}},
}

// unknown wants an error that is none of the refusals.
func (s *suite) unknown(what string, err error) {
	s.Helper()
	var held *backends.HeldError
	var done *backends.DoneError
	var usage *backends.UsageError
	if err == nil || errors.As(err, &held) || errors.As(err, &done) || errors.As(err, &usage) ||
		errors.Is(err, backends.ErrLost) || errors.Is(err, backends.ErrNotHeld) {
		s.Errorf("%s = %v, want an error that says the answer is not known", what, err)
	}
}

var concurrencyCases = []testCase{
	{"of many contenders at one instant one wins, and the others are refused", func(s *suite) {
		for round := range s.rounds(5) {
			key := fmt.Sprint("k", round)
			var won, refused atomic.Int32
			s.crowd(16, func(b backends.Backend, _ int) {
				_, err := b.Acquire(s.ctx, s.request(key))
				var held *backends.HeldError
				switch {
				case err == nil:
					won.Add(1)
				case errors.As(err, &held) && held.Holder != "":
					refused.Add(1)
				default:
					s.Errorf("Acquire: %v", err)
				}
			})
			if won.Load() != 1 || refused.Load() != 15 {
				s.Fatalf("round %d: %d won, %d were refused", round, won.Load(), refused.Load())
			}
		}
	}},
	{"of many contenders for some slots as many win", func(s *suite) {
		var won atomic.Int32
		var slots [3]atomic.Int32
		s.crowd(16, func(b backends.Backend, _ int) {
			r := s.request("k")
			r.Slots = len(slots)
			if l, err := b.Acquire(s.ctx, r); err == nil {
				won.Add(1)
				slots[l.Grant().Slot].Add(1)
			}
		})
		if won.Load() != 3 || slots[0].Load() != 1 || slots[1].Load() != 1 || slots[2].Load() != 1 {
			s.Errorf("%d won, slots %v %v %v", won.Load(), slots[0].Load(), slots[1].Load(), slots[2].Load())
		}
	}},
	// A wrong exclusion shows as a sum that is too small, a wrong order as a token that falls.
	{"no update under the lease is lost, and tokens rise with them", func(s *suite) {
		const contenders = 6
		each := s.rounds(10)
		var sum int // deliberately unprotected by anything but the lease
		var last int64
		var guard sync.Mutex // only for the memory model; taken for each access, not across the update
		s.crowd(contenders, func(b backends.Backend, _ int) {
			for range each {
				l := s.acquireSoon(b, s.request("k"))
				guard.Lock()
				read, before := sum, last
				guard.Unlock()
				runtime.Gosched()
				guard.Lock()
				sum, last = read+1, l.Grant().Token
				guard.Unlock()
				if l.Grant().Token <= before {
					s.Errorf("token %d after %d", l.Grant().Token, before)
				}
				if err := l.Release(s.ctx, backends.End{Outcome: backends.Succeeded}); err != nil {
					s.Errorf("Release: %v", err)
				}
			}
		})
		if sum != contenders*each {
			s.Errorf("sum %d, want %d", sum, contenders*each)
		}
	}},
	{"expired leases are taken over by one", func(s *suite) {
		for range s.rounds(3) {
			s.acquireSoon(s.a, s.request("k"))
			s.store.Expire("k")
			var won atomic.Int32
			s.crowd(8, func(b backends.Backend, _ int) {
				if _, err := b.Acquire(s.ctx, s.request("k")); err == nil {
					won.Add(1)
				}
			})
			if won.Load() != 1 {
				s.Fatalf("%d took it over", won.Load())
			}
			s.store.Expire("k")
		}
	}},
	{"a backend and a lease may be used by many at once", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for range s.rounds(5) {
					other := s.acquire(s.a, s.request(fmt.Sprint("other", i)))
					for what, err := range map[string]error{
						"Renew": l.Renew(s.ctx, s.ttl), "Release": other.Release(s.ctx, backends.End{Outcome: backends.Failed}),
						"Pause": s.a.Pause(s.ctx, fmt.Sprint("paused", i), backends.Pause{By: "ops"}),
					} {
						if err != nil {
							s.Errorf("%s: %v", what, err)
						}
					}
					if _, err := s.a.Status(s.ctx); err != nil {
						s.Errorf("Status: %v", err)
					}
					if _, err := s.a.History(s.ctx, backends.Query{Limit: 5}); err != nil {
						s.Errorf("History: %v", err)
					}
				}
			})
		}
		all.Wait()
		s.release(l, backends.Succeeded)
	}},
}

// crowd runs f for n hosts, all let go at once.
func (s *suite) crowd(n int, f func(b backends.Backend, i int)) {
	s.Helper()
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		b := s.open(backends.Options{})
		all.Go(func() {
			<-start
			f(b, i)
		})
	}
	close(start)
	all.Wait()
}
