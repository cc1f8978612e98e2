package backendtest

import (
	"slices"
	"strings"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// withRun names the run.
func withRun(r backends.Request, id string) backends.Request {
	r.RunID = id
	return r
}

var runIDCases = []testCase{
	{"a run that succeeded is done", func(s *suite) {
		s.release(s.acquire(s.a, withRun(s.request("k"), "r1")), backends.Succeeded)
		d := s.done(s.b, withRun(s.rival("k"), "r1"))
		if d.Key != "k" || d.RunID != "r1" || time.Since(d.At).Abs() > time.Hour {
			s.Errorf("refused with %+v", d)
		}
		s.wantState("k", backends.Free)
	}},
	{"done is told even while the key is held", func(s *suite) {
		s.release(s.acquire(s.a, withRun(s.request("k"), "r1")), backends.Succeeded)
		s.acquire(s.a, withRun(s.request("k"), "r2"))
		s.done(s.b, withRun(s.rival("k"), "r1"))
	}},
	{"a run that failed, crashed, timed out or was broken may run again", func(s *suite) {
		for _, o := range []backends.Outcome{backends.Failed, backends.TimedOut} {
			s.release(s.acquire(s.a, withRun(s.request("k"), "r1")), o)
		}
		s.acquire(s.a, withRun(s.request("k"), "r1"))
		s.store.Expire("k")
		l := s.acquire(s.a, withRun(s.request("k"), "r1"))
		_, err := s.b.Break(s.ctx, "k", l.Grant().Token, "me")
		s.ok("Break", err)
		if g := s.acquire(s.a, withRun(s.request("k"), "r1")).Grant(); g.Attempt != 5 {
			s.Errorf("attempt %d, want 5", g.Attempt)
		}
	}},
	{"attempts count the starts of each run id", func(s *suite) {
		for want := 1; want <= 3; want++ {
			l := s.acquire(s.a, withRun(s.request("k"), "r1"))
			if l.Grant().Attempt != want {
				s.Fatalf("attempt %d, want %d", l.Grant().Attempt, want)
			}
			s.release(l, backends.Failed)
		}
		if g := s.acquire(s.a, withRun(s.request("k"), "r2")).Grant(); g.Attempt != 1 {
			s.Errorf("attempt %d of another run id, want 1", g.Attempt)
		}
	}},
	{"without one attempts count since the last success", func(s *suite) {
		for _, step := range []struct {
			attempt int
			outcome backends.Outcome
		}{{1, backends.Failed}, {2, backends.TimedOut}, {3, backends.Succeeded}, {1, backends.Succeeded}, {1, backends.Failed}, {2, backends.Failed}} {
			l := s.acquire(s.a, s.request("k"))
			if l.Grant().Attempt != step.attempt {
				s.Fatalf("attempt %d, want %d", l.Grant().Attempt, step.attempt)
			}
			s.release(l, step.outcome)
		}
	}},
	{"a command that was not started is no attempt", func(s *suite) {
		for _, id := range []string{"", "r1"} {
			s.release(s.acquire(s.a, withRun(s.request("k"), id)), backends.NotStarted)
			l := s.acquire(s.a, withRun(s.request("k"), id))
			if l.Grant().Attempt != 1 {
				s.Errorf("run id %q: attempt %d, want 1", id, l.Grant().Attempt)
			}
			s.release(l, backends.Failed)
		}
	}},
	{"a mark belongs to its key and its exact id", func(s *suite) {
		s.release(s.acquire(s.a, withRun(s.request("k"), "r1")), backends.Succeeded)
		for _, r := range []backends.Request{withRun(s.request("other"), "r1"), withRun(s.request("k"), "R1"),
			withRun(s.request("k"), "r1 "), withRun(s.request("k"), "r"), s.request("k")} {
			s.release(s.acquire(s.b, r), backends.Failed)
		}
	}},
	{"marks and attempts outlive other runs, unlocks and connections", func(s *suite) {
		c := s.store.Open(backends.Options{})
		s.release(s.acquire(c, withRun(s.request("k"), "r1")), backends.Succeeded)
		s.release(s.acquire(c, withRun(s.request("k"), "r2")), backends.Failed)
		s.ok("Close", c.Close())
		s.acquire(s.a, s.request("k"))
		_, err := s.b.Break(s.ctx, "k", 0, "me")
		s.ok("Break", err)
		s.done(s.b, withRun(s.rival("k"), "r1"))
		if g := s.acquire(s.b, withRun(s.rival("k"), "r2")).Grant(); g.Attempt != 2 {
			s.Errorf("attempt %d, want 2", g.Attempt)
		}
	}},
}

var pauseCases = []testCase{
	{"a paused key is refused and says who paused and why", func(s *suite) {
		s.ok("Pause", s.a.Pause(s.ctx, "k", backends.Pause{By: "ops", Reason: "deploy"}))
		h := s.refused(s.b, s.rival("k"))
		if !h.Paused || h.Holder != "ops" || h.Reason != "deploy" || !h.Until.IsZero() || h.Token != 0 || h.Since.IsZero() {
			s.Errorf("refused with %+v", h)
		}
		st := s.wantState("k", backends.Paused)
		if st.Holder != "ops" || st.Reason != "deploy" || st.ExpiresAt != nil || st.AcquiredAt == nil {
			s.Errorf("state %+v", st)
		}
	}},
	{"a live lease is not touched, and held wins", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		s.ok("Pause", s.b.Pause(s.ctx, "k", backends.Pause{By: "ops"}))
		s.ok("Renew", l.Renew(s.ctx, s.ttl))
		if st := s.wantState("k", backends.Held); st.Reason != "paused by ops until resumed" || st.Holder != "alpha" {
			s.Errorf("state %+v", st)
		}
		s.ok("Pause", s.b.Pause(s.ctx, "k", backends.Pause{By: "ops", Reason: "deploy", For: time.Hour}))
		if st := s.wantState("k", backends.Held); !strings.HasPrefix(st.Reason, "paused by ops until 2") || !strings.HasSuffix(st.Reason, "Z: deploy") {
			s.Errorf("state %+v", st)
		}
		s.refused(s.b, s.rival("k"))
		s.release(l, backends.Succeeded)
		s.wantState("k", backends.Paused)
		if h := s.refused(s.b, s.rival("k")); !h.Paused {
			s.Errorf("refused with %+v", h)
		}
	}},
	{"resume ends it", func(s *suite) {
		s.ok("Pause", s.a.Pause(s.ctx, "k", backends.Pause{By: "ops"}))
		s.ok("Resume", s.b.Resume(s.ctx, "k"))
		s.wantState("k", backends.Free)
		s.acquire(s.a, s.request("k"))
	}},
	{"resuming what is not paused says so", func(s *suite) {
		for _, key := range []string{"unknown", "k"} {
			if err := s.a.Resume(s.ctx, key); err != backends.ErrNotHeld {
				s.Errorf("Resume %q = %v, want ErrNotHeld", key, err)
			}
			s.release(s.acquire(s.a, s.request("k")), backends.Failed)
		}
		s.ok("Pause", s.a.Pause(s.ctx, "k", backends.Pause{By: "ops"}))
		s.ok("Resume", s.a.Resume(s.ctx, "k"))
		if err := s.a.Resume(s.ctx, "k"); err != backends.ErrNotHeld {
			s.Errorf("Resume again = %v, want ErrNotHeld", err)
		}
	}},
	{"one with a deadline ends by itself", func(s *suite) {
		s.ok("Pause", s.a.Pause(s.ctx, "k", backends.Pause{By: "ops", For: time.Hour}))
		h := s.refused(s.b, s.rival("k"))
		if h.Until.IsZero() || h.Left < 50*time.Minute || h.Left > time.Hour {
			s.Errorf("refused with %+v", h)
		}
		if st := s.state("k"); st.ExpiresIn == nil || *st.ExpiresIn < 50*time.Minute || st.ExpiresAt == nil {
			s.Errorf("state %+v", st)
		}
		before, err := s.a.Now(s.ctx)
		s.ok("Now", err)
		s.ok("Pause", s.a.Pause(s.ctx, "k", backends.Pause{By: "ops", For: 200 * time.Millisecond}))
		g := s.acquireSoon(s.b, s.rival("k")).Grant()
		if d := g.AcquiredAt.Sub(before); d < 198*time.Millisecond {
			s.Errorf("granted %v after a pause of 200ms began", d)
		}
		if err := s.a.Resume(s.ctx, "k"); err != backends.ErrNotHeld {
			s.Errorf("Resume of a pause that ran out = %v, want ErrNotHeld", err)
		}
	}},
	{"pausing again replaces the pause", func(s *suite) {
		s.ok("Pause", s.a.Pause(s.ctx, "k", backends.Pause{By: "ops", Reason: "first", For: time.Hour}))
		s.ok("Pause", s.b.Pause(s.ctx, "k", backends.Pause{By: "dev", Reason: "second"}))
		if h := s.refused(s.b, s.rival("k")); h.Holder != "dev" || h.Reason != "second" || !h.Until.IsZero() {
			s.Errorf("refused with %+v", h)
		}
	}},
	{"a retry of the holder gets its lease in spite of it", func(s *suite) {
		r := s.request("k")
		first := s.acquire(s.a, r).Grant()
		s.ok("Pause", s.b.Pause(s.ctx, "k", backends.Pause{By: "ops"}))
		if again := s.acquire(s.a, r).Grant(); again.Token != first.Token {
			s.Errorf("token %d, then %d", first.Token, again.Token)
		}
	}},
}

var breakCases = []testCase{
	{"the token ends the lease, and its holder is told", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		broken, err := s.b.Break(s.ctx, "k", l.Grant().Token, "root@ops")
		s.ok("Break", err)
		if len(broken) != 1 || broken[0].Holder != "alpha" || broken[0].Token != l.Grant().Token || broken[0].Key != "k" {
			s.Errorf("broke %+v", broken)
		}
		s.wantState("k", backends.Free)
		s.lost("Renew", l.Renew(s.ctx, s.ttl))
		s.lost("Release", l.Release(s.ctx, backends.End{Outcome: backends.Succeeded}))
		h := s.history("k")
		if len(h) != 1 || h[0].Outcome != backends.Unlocked || h[0].Reason != "root@ops" || h[0].Token != l.Grant().Token {
			s.Errorf("history %+v", h)
		}
	}},
	{"another token ends nothing", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		before := s.store.Dump("k")
		for key, token := range map[string]int64{"k": l.Grant().Token - 1, "other": l.Grant().Token} {
			if token == 0 {
				token = l.Grant().Token + 1 // zero stands for all
			}
			if _, err := s.b.Break(s.ctx, key, token, "me"); err != backends.ErrNotHeld {
				s.Errorf("Break %q with token %d = %v, want ErrNotHeld", key, token, err)
			}
		}
		if after := s.store.Dump("k"); after != before {
			s.Errorf("the store changed from\n%s\nto\n%s", before, after)
		}
	}},
	{"zero ends all slots", func(s *suite) {
		for range 3 {
			r := s.request("k")
			r.Slots = 3
			s.acquire(s.a, r)
		}
		broken, err := s.b.Break(s.ctx, "k", 0, "me")
		s.ok("Break", err)
		if len(broken) != 3 {
			s.Errorf("broke %+v", broken)
		}
		s.wantState("k", backends.Free)
	}},
	{"one token of several slots ends that one", func(s *suite) {
		var leases []backends.Lease
		for range 2 {
			r := s.request("k")
			r.Slots = 2
			leases = append(leases, s.acquire(s.a, r))
		}
		_, err := s.b.Break(s.ctx, "k", leases[0].Grant().Token, "me")
		s.ok("Break", err)
		s.lost("Renew", leases[0].Renew(s.ctx, s.ttl))
		s.ok("the neighbour's Renew", leases[1].Renew(s.ctx, s.ttl))
	}},
	{"a minimum hold is broken, and its run's record stays", func(s *suite) {
		r := s.request("k")
		r.HoldAtLeast = time.Hour
		l := s.acquire(s.a, r)
		s.release(l, backends.Succeeded)
		_, err := s.b.Break(s.ctx, "k", l.Grant().Token, "me")
		s.ok("Break", err)
		s.acquire(s.b, s.rival("k"))
		if o := s.outcomes("k"); !slices.Equal(o, []backends.Outcome{backends.Succeeded}) {
			s.Errorf("history %v", o)
		}
	}},
	{"a key that is free, unknown or expired is not held", func(s *suite) {
		s.release(s.acquire(s.a, s.request("free")), backends.Failed)
		s.acquire(s.a, s.request("expired"))
		s.store.Expire("expired")
		for _, key := range []string{"free", "unknown", "expired"} {
			if _, err := s.b.Break(s.ctx, key, 0, "me"); err != backends.ErrNotHeld {
				s.Errorf("Break %q = %v, want ErrNotHeld", key, err)
			}
		}
	}},
	{"a pause stays", func(s *suite) {
		s.acquire(s.a, s.request("k"))
		s.ok("Pause", s.a.Pause(s.ctx, "k", backends.Pause{By: "ops"}))
		_, err := s.b.Break(s.ctx, "k", 0, "me")
		s.ok("Break", err)
		s.wantState("k", backends.Paused)
	}},
}
