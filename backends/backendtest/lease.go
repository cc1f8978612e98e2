package backendtest

import (
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/internal/rounds"
)

var renewCases = []testCase{
	{"the time counts from the renewal", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		s.ok("Renew", l.Renew(s.ctx, 3*s.ttl))
		st := s.wantState("k", backends.Held)
		if st.ExpiresIn != nil && (*st.ExpiresIn <= 2*s.ttl || *st.ExpiresIn > 3*s.ttl) {
			s.Errorf("expires in %v, want nearly %v", *st.ExpiresIn, 3*s.ttl)
		}
		s.ok("Renew", l.Renew(s.ctx, s.ttl))
		if st := s.state("k"); st.ExpiresIn != nil && *st.ExpiresIn > s.ttl {
			s.Errorf("expires in %v after a renewal by only %v", *st.ExpiresIn, s.ttl)
		}
	}},
	{"a renewal may be repeated", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		for range 5 {
			s.ok("Renew", l.Renew(s.ctx, s.ttl))
		}
		if l.Grant().Token != s.state("k").Token {
			s.Errorf("the token changed")
		}
	}},
	{"an expired lease is lost and not created again", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		s.store.Expire("k")
		s.lost("Renew after the expiry", l.Renew(s.ctx, s.ttl))
		s.wantState("k", backends.Free)
	}},
	{"a removed record is a lost lease and not created again", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		s.store.Remove("k")
		before := s.store.Dump("k")
		s.lost("Renew after the removal", l.Renew(s.ctx, s.ttl))
		s.wantState("k", backends.Free)
		if after := s.store.Dump("k"); after != before {
			s.Errorf("the store changed from\n%s\nto\n%s", before, after)
		}
	}},
	{"a released lease is lost", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		s.release(l, backends.Failed)
		s.lost("Renew after the release", l.Renew(s.ctx, s.ttl))
	}},
	// LSE-05
	{"the lease of somebody else is neither renewed nor released nor touched", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		s.store.Remove("k")
		other := s.acquire(s.b, s.rival("k"))
		before := s.store.Dump("k")
		s.lost("Renew", l.Renew(s.ctx, s.ttl))
		s.lost("Release", l.Release(s.ctx, backends.End{Outcome: backends.Succeeded}))
		if after := s.store.Dump("k"); after != before {
			s.Errorf("the rival's record changed from\n%s\nto\n%s", before, after)
		}
		s.ok("the rival's Renew", other.Renew(s.ctx, s.ttl))
	}},
	{"after a takeover the earlier holder is told", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		s.store.Expire("k")
		s.acquire(s.b, s.rival("k"))
		before := s.store.Dump("k")
		s.lost("Renew", l.Renew(s.ctx, s.ttl))
		s.lost("Release", l.Release(s.ctx, backends.End{Outcome: backends.Succeeded}))
		if after := s.store.Dump("k"); after != before {
			s.Errorf("the rival's record changed from\n%s\nto\n%s", before, after)
		}
	}},
}

var releaseCases = []testCase{
	{"the key is free and the run is recorded", func(s *suite) {
		r := s.request("k")
		r.Waited = 1500 * time.Millisecond
		l := s.acquire(s.a, r)
		code := 3
		s.ok("Release", l.Release(s.ctx, backends.End{Outcome: backends.Failed, ExitCode: &code, Duration: 2 * time.Second, Reason: "why"}))
		if st := s.wantState("k", backends.Free); st.Token != l.Grant().Token {
			s.Errorf("the last token is %d, want %d", st.Token, l.Grant().Token)
		}
		h := s.history("k")
		if len(h) != 1 {
			s.Fatalf("history %+v", h)
		}
		rec, g := h[0], l.Grant()
		if rec.Key != "k" || rec.Holder != "alpha" || rec.Host != "host-a" || rec.PID != 4711 || rec.Token != g.Token ||
			rec.Slot == nil || *rec.Slot != 0 || rec.Attempt != 1 || rec.Outcome != backends.Failed || rec.Reason != "why" ||
			rec.ExitCode == nil || *rec.ExitCode != 3 || rec.Waited != r.Waited || rec.Duration == nil || *rec.Duration != 2*time.Second ||
			!rec.StartedAt.Equal(g.AcquiredAt) || rec.EndedAt.Before(rec.StartedAt) || rec.Backend != s.recordedAs() {
			s.Errorf("recorded %+v", rec)
		}
	}},
	{"a release may be repeated and is recorded once", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		s.release(l, backends.Succeeded)
		s.ok("Release again", l.Release(s.ctx, backends.End{Outcome: backends.Succeeded}))
		other := s.acquire(s.b, s.rival("k"))
		s.ok("Release once more", l.Release(s.ctx, backends.End{Outcome: backends.Succeeded}))
		s.ok("the next holder's Renew", other.Renew(s.ctx, s.ttl))
		if o := s.outcomes("k"); !slices.Equal(o, []backends.Outcome{backends.Succeeded}) {
			s.Errorf("history %v", o)
		}
	}},
	{"an expired lease is lost and nothing changes", func(s *suite) {
		r := s.request("k")
		r.RunID = "r1"
		l := s.acquire(s.a, r)
		s.store.Expire("k")
		before := s.store.Dump("k")
		s.lost("Release after the expiry", l.Release(s.ctx, backends.End{Outcome: backends.Succeeded}))
		if after := s.store.Dump("k"); after != before {
			s.Errorf("the store changed from\n%s\nto\n%s", before, after)
		}
		r.Owner = backends.NewOwner()
		if g := s.acquire(s.b, r).Grant(); g.Attempt != 2 {
			s.Errorf("attempt %d of a run id that was not done, want 2", g.Attempt)
		}
	}},
	{"a removed record is a lost lease", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		s.store.Remove("k")
		s.lost("Release after the removal", l.Release(s.ctx, backends.End{Outcome: backends.Succeeded}))
	}},
	// LSE-03
	{"many rounds of beats and releases leave the key free", func(s *suite) {
		for i := range s.rounds(rounds.Of(40, 500)) {
			l := s.acquire(s.a, s.request("k"))
			for range i % 3 {
				s.ok("Renew", l.Renew(s.ctx, s.ttl))
			}
			stop := make(chan struct{})
			go func() { defer close(stop); l.Renew(s.ctx, s.ttl) }() // a beat that races with the release
			s.release(l, backends.Succeeded)
			<-stop
			s.wantState("k", backends.Free)
		}
	}},
}

var tokenCases = []testCase{
	{"they rise for ever, whatever became of the lease before", func(s *suite) {
		s.b = s.open(backends.Options{Keep: backends.Keep{Runs: 1}})
		var last int64
		next := func(after string) backends.Lease {
			l := s.acquire(s.b, s.request("k"))
			if l.Grant().Token <= last {
				s.Fatalf("token %d after %s, the one before was %d", l.Grant().Token, after, last)
			}
			last = l.Grant().Token
			return l
		}
		s.release(next("nothing"), backends.Succeeded)
		s.release(next("a success"), backends.NotStarted)
		next("not-started")
		s.store.Expire("k")
		l := next("an expiry")
		_, err := s.b.Break(s.ctx, "k", l.Grant().Token, "me")
		s.ok("Break", err)
		next("an unlock")
		s.store.Remove("k")
		r := s.request("k")
		s.acquire(s.b, r)
		last = s.state("k").Token
		s.ok("Abandon", s.b.Abandon(s.ctx, r))
		for range 5 {
			s.release(next("a clean-up"), backends.Failed)
		}
	}},
	{"a removed record does not take the counter along", func(s *suite) {
		first := s.acquire(s.a, s.request("k")).Grant().Token
		s.store.Remove("k")
		if next := s.acquire(s.b, s.request("k")).Grant().Token; next <= first {
			s.Errorf("token %d after %d", next, first)
		}
	}},
}

var holdCases = []testCase{
	// LSE-07
	{"an early release leaves the slot taken, and says why", func(s *suite) {
		r := s.request("k")
		r.HoldAtLeast = time.Hour
		l := s.acquire(s.a, r)
		s.release(l, backends.Succeeded)
		st := s.wantState("k", backends.Held)
		if st.Reason != backends.MinimumHold || st.Token != l.Grant().Token || st.ExpiresIn == nil || *st.ExpiresIn < 50*time.Minute {
			s.Errorf("state %+v", st)
		}
		h := s.refused(s.b, s.rival("k"))
		if h.Reason != backends.MinimumHold || h.Holder != "alpha" || h.Left < 50*time.Minute {
			s.Errorf("refused with %+v", h)
		}
		s.ok("Release again", l.Release(s.ctx, backends.End{Outcome: backends.Succeeded}))
		s.lost("Renew in the hold", l.Renew(s.ctx, s.ttl))
		if o := s.outcomes("k"); !slices.Equal(o, []backends.Outcome{backends.Succeeded}) {
			s.Errorf("history %v", o)
		}
	}},
	{"it ends when its time has passed since the grant", func(s *suite) {
		r := s.request("k")
		r.HoldAtLeast = 300 * time.Millisecond
		l := s.acquire(s.a, r)
		s.release(l, backends.Succeeded)
		g := s.acquireSoon(s.b, s.rival("k")).Grant()
		if held := g.AcquiredAt.Sub(l.Grant().AcquiredAt); held < r.HoldAtLeast-2*time.Millisecond {
			s.Errorf("taken again %v after the grant, the hold was %v", held, r.HoldAtLeast)
		}
		if g.Takeover {
			s.Errorf("a released lease was called taken over")
		}
	}},
	{"a command that was not started frees the slot at once", func(s *suite) {
		r := s.request("k")
		r.HoldAtLeast = time.Hour
		s.release(s.acquire(s.a, r), backends.NotStarted)
		s.wantState("k", backends.Free)
		s.acquire(s.b, s.rival("k"))
	}},
	{"a crash keeps it", func(s *suite) {
		r := s.request("k")
		r.HoldAtLeast = time.Hour
		s.acquire(s.a, r)
		s.store.Expire("k")
		if h := s.refused(s.b, s.rival("k")); h.Reason != backends.MinimumHold {
			s.Errorf("refused with %+v", h)
		}
		s.wantState("k", backends.Held)
		if o := s.outcomes("k"); !slices.Equal(o, []backends.Outcome{backends.Crashed}) {
			s.Errorf("history %v", o)
		}
	}},
	{"a job longer than the hold is held to its end", func(s *suite) {
		r := s.request("k")
		r.HoldAtLeast = time.Millisecond
		l := s.acquire(s.a, r)
		time.Sleep(5 * time.Millisecond) // longer than the hold
		s.refused(s.b, s.rival("k"))
		s.release(l, backends.Succeeded)
		s.wantState("k", backends.Free)
	}},
}

var slotCases = []testCase{
	{"as many holders as slots, each with its own, and no more", func(s *suite) {
		seen := map[int]bool{}
		for range 3 {
			r := s.request("k")
			r.Slots = 3
			g := s.acquire(s.a, r).Grant()
			if g.Slot < 0 || g.Slot > 2 || seen[g.Slot] {
				s.Fatalf("slot %d after %v", g.Slot, seen)
			}
			seen[g.Slot] = true
		}
		r := s.rival("k")
		r.Slots = 3
		s.refused(s.b, r)
		all, err := s.b.Status(s.ctx, "k")
		s.ok("Status", err)
		if len(all) != 3 {
			s.Errorf("status %+v", all)
		}
	}},
	{"a freed slot is taken again", func(s *suite) {
		var leases []backends.Lease
		for range 3 {
			r := s.request("k")
			r.Slots = 3
			leases = append(leases, s.acquire(s.a, r))
		}
		s.release(leases[1], backends.Failed)
		r := s.rival("k")
		r.Slots = 3
		if g := s.acquire(s.b, r).Grant(); g.Slot != leases[1].Grant().Slot || g.Token <= leases[2].Grant().Token {
			s.Errorf("granted %+v; want slot %d and a token above %d", g, leases[1].Grant().Slot, leases[2].Grant().Token)
		}
		s.ok("a neighbour's Renew", leases[0].Renew(s.ctx, s.ttl))
		s.ok("a neighbour's Renew", leases[2].Renew(s.ctx, s.ttl))
	}},
	{"a retry gets its own slot back even when all are taken", func(s *suite) {
		r1, r2 := s.request("k"), s.request("k")
		r1.Slots, r2.Slots = 2, 2
		s.acquire(s.a, r1)
		first := s.acquire(s.a, r2).Grant()
		if again := s.acquire(s.a, r2).Grant(); again.Slot != first.Slot || again.Token != first.Token {
			s.Errorf("granted %+v, then %+v", first, again)
		}
	}},
	{"the refusal names the slot that will be free first", func(s *suite) {
		r1, r2 := s.request("k"), s.rival("k")
		r1.Slots, r2.Slots = 2, 2
		r1.TTL = 2 * s.ttl
		s.acquire(s.a, r1)
		s.acquire(s.a, r2)
		r := s.request("k")
		r.Slots = 2
		if h := s.refused(s.b, r); h.Holder != "beta" {
			s.Errorf("refused with %+v", h)
		}
	}},
	{"a minimum hold takes up a slot", func(s *suite) {
		r := s.request("k")
		r.Slots, r.HoldAtLeast = 2, time.Hour
		first := s.acquire(s.a, r)
		s.release(first, backends.Succeeded)
		r = s.request("k")
		r.Slots = 2
		if g := s.acquire(s.a, r).Grant(); g.Slot == first.Grant().Slot {
			s.Errorf("slot %d was granted although its minimum hold runs", g.Slot)
		}
		r = s.rival("k")
		r.Slots = 2
		s.refused(s.b, r)
	}},
	{"fewer slots than holders refuse", func(s *suite) {
		r := s.request("k")
		r.Slots = 2
		l := s.acquire(s.a, r)
		r.Owner = backends.NewOwner()
		s.acquire(s.a, r)
		s.release(l, backends.Failed)
		s.refused(s.b, s.rival("k"))
	}},
}
