package backendtest

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// slotted names the run of a request that is content with any of n slots.
func slotted(r backends.Request, n int, id string) backends.Request {
	r.Slots, r.RunID = n, id
	return r
}

// sameRun wants a refusal because of the run that l is the lease of.
func (s *suite) sameRun(r backends.Request, l backends.Lease) {
	s.Helper()
	h := s.refused(s.b, r)
	g := l.Grant()
	if h.Token != g.Token || h.Holder != "alpha" || h.Host != "host-a" || h.PID != 4711 || h.Key != r.Key || h.Reason != backends.SameRun ||
		h.Paused || !h.Since.Equal(g.AcquiredAt) || h.Until.IsZero() || h.Left <= 0 || h.Left > 2*s.ttl {
		s.Errorf("refused with %+v because of %+v", h, g)
	}
}

// With several slots it is not the slot that keeps two runs of one id apart.
var sameRunCases = []testCase{
	{"a run id that runs is refused though slots are free, and its holder is named", func(s *suite) {
		l := s.acquire(s.a, slotted(s.request("k"), 3, "r1"))
		before := s.store.Dump("k")
		s.sameRun(slotted(s.rival("k"), 3, "r1"), l)
		if after := s.store.Dump("k"); after != before {
			s.Errorf("the store changed from\n%s\nto\n%s", before, after)
		}
		s.ok("Renew", l.Renew(s.ctx, s.ttl))
		s.sameRun(slotted(s.rival("k"), 3, "r1"), l)
	}},
	{"only the exact id of the same key is refused", func(s *suite) {
		s.acquire(s.a, slotted(s.request("k"), 8, "r\"1\u00fc"))
		for _, id := range []string{"", "r", "r\"1", "R\"1\u00fc", "r\"1\u00fc ", "r\"1u\u0308", `r\"1\u00fc`} {
			s.acquire(s.b, slotted(s.rival("k"), 8, id))
		}
		s.acquire(s.b, slotted(s.rival("other"), 8, "r\"1\u00fc"))
		s.refused(s.b, slotted(s.rival("k"), 99, "r\"1\u00fc"))
	}},
	{"where all slots are taken it is the holder of that run who is named", func(s *suite) {
		r := slotted(s.request("k"), 2, "r1")
		r.TTL = 2 * s.ttl
		l := s.acquire(s.a, r)
		s.acquire(s.a, slotted(s.rival("k"), 2, "r2")) // whose slot will be free first
		s.sameRun(slotted(s.rival("k"), 2, "r1"), l)
		s.sameRun(slotted(s.rival("k"), 1, "r1"), l)
	}},
	{"a retry of its own owner is recognised", func(s *suite) {
		r := slotted(s.request("k"), 3, "r1")
		first := s.acquire(s.a, r).Grant()
		if again := s.acquire(s.b, r).Grant(); again.Token != first.Token || again.Slot != first.Slot {
			s.Errorf("granted %+v, then %+v", first, again)
		}
	}},
	{"once it has succeeded the id is done", func(s *suite) {
		l := s.acquire(s.a, slotted(s.request("k"), 3, "r1"))
		s.acquire(s.a, slotted(s.request("k"), 3, ""))
		s.release(l, backends.Succeeded)
		s.done(s.b, slotted(s.rival("k"), 3, "r1"))
	}},
	{"once it has failed, crashed, been broken or not started it may run again, in whatever slot", func(s *suite) {
		for what, end := range map[string]func(r backends.Request, l backends.Lease){
			"failed":      func(_ backends.Request, l backends.Lease) { s.release(l, backends.Failed) },
			"not started": func(_ backends.Request, l backends.Lease) { s.release(l, backends.NotStarted) },
			"crashed":     func(r backends.Request, _ backends.Lease) { s.store.Expire(r.Key) },
			"removed":     func(r backends.Request, _ backends.Lease) { s.store.Remove(r.Key) },
			"abandoned":   func(r backends.Request, _ backends.Lease) { s.ok("Abandon", s.a.Abandon(s.ctx, r)) },
			"broken": func(r backends.Request, l backends.Lease) {
				_, err := s.a.Break(s.ctx, r.Key, l.Grant().Token, "me")
				s.ok("Break", err)
			},
		} {
			r := slotted(s.request(what), 3, "r1")
			l := s.acquire(s.a, r)
			s.sameRun(slotted(s.rival(what), 3, "r1"), l)
			end(r, l)
			s.acquire(s.b, slotted(s.rival(what), 3, "r1"))
		}
	}},
	{"a slot that only its minimum hold keeps is no run", func(s *suite) {
		for _, key := range []string{"failed", "crashed"} {
			r := slotted(s.request(key), 2, "r1")
			r.HoldAtLeast = time.Hour
			l := s.acquire(s.a, r)
			if key == "crashed" {
				s.store.Expire(key)
			} else {
				s.release(l, backends.Failed)
			}
			if g := s.acquire(s.b, slotted(s.rival(key), 2, "r1")).Grant(); g.Slot == l.Grant().Slot || g.Attempt != 2 {
				s.Errorf("%s: granted %+v after %+v", key, g, l.Grant())
			}
		}
	}},
	{"a refusal for good is recorded with its reason", func(s *suite) {
		s.acquire(s.a, slotted(s.request("k"), 3, "r1"))
		r := slotted(s.rival("k"), 3, "r1")
		r.Last = true
		s.refused(s.b, r)
		h := s.history("k")
		if len(h) != 1 || h[0].Outcome != backends.Skipped || !strings.Contains(h[0].Reason, "alpha") ||
			!strings.Contains(h[0].Reason, backends.SameRun) || h[0].RunID != "r1" {
			s.Errorf("history %+v", h)
		}
	}},
	{"of many at one instant one runs, and once it has succeeded the others are done", func(s *suite) {
		var won, refused, done atomic.Int32
		var winner atomic.Value
		s.crowd(8, func(b backends.Backend, _ int) {
			l, err := b.Acquire(s.ctx, slotted(s.request("k"), 3, "r1"))
			var held *backends.HeldError
			switch {
			case err == nil:
				won.Add(1)
				winner.Store(l)
			case errors.As(err, &held):
				refused.Add(1)
			default:
				s.Errorf("Acquire: %v", err)
			}
		})
		if won.Load() != 1 || refused.Load() != 7 {
			s.Fatalf("%d run, %d were refused", won.Load(), refused.Load())
		}
		s.release(winner.Load().(backends.Lease), backends.Succeeded)
		s.crowd(8, func(b backends.Backend, _ int) {
			_, err := b.Acquire(s.ctx, slotted(s.request("k"), 3, "r1"))
			if is := (*backends.DoneError)(nil); errors.As(err, &is) {
				done.Add(1)
			}
		})
		if done.Load() != 8 {
			s.Errorf("only %d of 8 are done", done.Load())
		}
	}},
	{"all who wait for it wake when it succeeds, and are done", func(s *suite) {
		l := s.acquire(s.a, slotted(s.request("k"), 3, "r1"))
		var waits []<-chan error
		for range 3 {
			waits = append(waits, s.wait(s.waiter(s.open(backends.Options{})), slotted(s.rival("k"), 3, "r1")))
		}
		for _, w := range waits {
			s.stillWaiting(w)
		}
		s.release(l, backends.Succeeded)
		for _, w := range waits {
			s.woken(w)
		}
		s.done(s.b, slotted(s.rival("k"), 3, "r1"))
	}},
	{"who waits for a run that is done need not wait for a slot", func(s *suite) {
		w := s.waiter(s.b)
		s.release(s.acquire(s.a, slotted(s.request("k"), 1, "r1")), backends.Succeeded)
		s.acquire(s.a, slotted(s.request("k"), 1, "r2"))
		s.woken(s.wait(w, slotted(s.rival("k"), 1, "r1")))
	}},
	{"who waits for it wakes when it fails, runs out or is broken, and runs", func(s *suite) {
		w := s.waiter(s.b)
		for what, end := range map[string]func(key string, l backends.Lease){
			"failed":  func(_ string, l backends.Lease) { s.release(l, backends.Failed) },
			"crashed": func(key string, _ backends.Lease) { s.store.Expire(key) },
			"broken": func(key string, l backends.Lease) {
				_, err := s.a.Break(s.ctx, key, l.Grant().Token, "me")
				s.ok("Break", err)
			},
		} {
			l := s.acquire(s.a, slotted(s.request(what), 3, "r1"))
			woken := s.wait(w, slotted(s.rival(what), 3, "r1"))
			s.stillWaiting(woken)
			end(what, l)
			s.woken(woken)
			s.acquire(s.b, slotted(s.rival(what), 3, "r1"))
		}
	}},
	{"who waits for it does not take the place of one who waits for a slot", func(s *suite) {
		freed := s.acquire(s.a, slotted(s.request("k"), 2, ""))
		s.acquire(s.a, slotted(s.request("k"), 2, "r1"))
		same := s.wait(s.waiter(s.a), slotted(s.rival("k"), 2, "r1"))
		s.stillWaiting(same)
		other := s.wait(s.waiter(s.b), slotted(s.rival("k"), 2, ""))
		s.stillWaiting(other)
		s.release(freed, backends.Failed)
		s.woken(other)
		s.acquire(s.b, slotted(s.rival("k"), 2, ""))
	}},
}

var looseCases = []testCase{
	{"a lease that is not loose is its holder's alone, and stays as it is", func(s *suite) {
		r := slotted(s.request("k"), 1, "r1")
		r.HoldAtLeast = time.Hour
		l := s.acquire(s.a, r)
		before := s.store.Dump("k")
		got, err := s.b.Attach(s.ctx, "k", l.Grant().Token)
		var held *backends.HeldError
		if !errors.As(err, &held) {
			s.Fatalf("Attach = %v, %v; want *HeldError", got, err)
		}
		if held.Key != "k" || held.Holder != "alpha" || held.Host != "host-a" || held.PID != 4711 || held.Token != l.Grant().Token ||
			held.Reason != backends.NotLoose || !held.Since.Equal(l.Grant().AcquiredAt) || held.Until.IsZero() || held.Left <= 0 {
			s.Errorf("refused with %+v", held)
		}
		if after := s.store.Dump("k"); after != before {
			s.Errorf("the store changed from\n%s\nto\n%s", before, after)
		}
		s.ok("Renew", l.Renew(s.ctx, s.ttl))
		s.release(l, backends.Failed)
		_, err = s.b.Attach(s.ctx, "k", l.Grant().Token)
		s.lost("Attach in the minimum hold", err)
		if o := s.outcomes("k"); !slices.Equal(o, []backends.Outcome{backends.Failed}) {
			s.Errorf("history %v", o)
		}
	}},
	{"a retry leaves a loose lease loose, as do renewals", func(s *suite) {
		r := s.request("k")
		r.Loose, r.Slots = true, 2
		s.acquire(s.a, r)
		l := s.acquire(s.b, r)
		s.ok("Renew", l.Renew(s.ctx, s.ttl))
		other := s.request("k")
		other.Slots = 2
		s.acquire(s.a, other)
		attached, err := s.b.Attach(s.ctx, "k", l.Grant().Token)
		s.ok("Attach", err)
		s.ok("Renew", attached.Renew(s.ctx, s.ttl))
		again, err := s.a.Attach(s.ctx, "k", l.Grant().Token)
		s.ok("Attach again", err)
		s.release(again, backends.Succeeded)
	}},
}
