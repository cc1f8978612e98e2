package backendtest

import (
	"errors"
	"time"

	"github.com/lockrun/lockrun/backends"
)

var acquireCases = []testCase{
	{"a free key is granted", func(s *suite) {
		before, err := s.a.Now(s.ctx)
		s.ok("Now", err)
		g := s.acquire(s.a, s.request("k")).Grant()
		if g.Token <= 0 || g.Token >= 1<<53 || g.Slot != 0 || g.Attempt != 1 || g.Takeover {
			s.Errorf("granted %+v; want a positive token below 2^53, slot 0, attempt 1, no takeover", g)
		}
		if g.TTL <= 0 || g.TTL > s.ttl || g.Drift < 0 || g.Drift >= g.TTL {
			s.Errorf("granted ttl %v, drift %v for %v", g.TTL, g.Drift, s.ttl)
		}
		if g.AcquiredAt.Before(before.Add(-time.Second)) || g.AcquiredAt.After(before.Add(patience)) {
			s.Errorf("acquired at %v, the store's clock said %v before", g.AcquiredAt, before)
		}
	}},
	{"a held key is refused and names its holder", func(s *suite) {
		g := s.acquire(s.a, s.request("k")).Grant()
		h := s.refused(s.b, s.rival("k"))
		if h.Key != "k" || h.Holder != "alpha" || h.Host != "host-a" || h.PID != 4711 || h.Token != g.Token || h.Paused {
			s.Errorf("refused with %+v", h)
		}
		if !h.Since.Equal(g.AcquiredAt) || h.Left > s.ttl {
			s.Errorf("held since %v with %v left, granted at %v for %v", h.Since, h.Left, g.AcquiredAt, s.ttl)
		}
	}},
	{"a refusal changes nothing", func(s *suite) {
		s.acquire(s.a, s.request("k"))
		before := s.store.Dump("k")
		s.refused(s.b, s.rival("k"))
		if after := s.store.Dump("k"); after != before {
			s.Errorf("the store changed from\n%s\nto\n%s", before, after)
		}
	}},
	{"a retry of the same owner is recognised and counted anew", func(s *suite) {
		r := s.request("k")
		first := s.acquire(s.a, r).Grant()
		r.TTL = 2 * s.ttl
		again := s.acquire(s.a, r).Grant()
		if again.Token != first.Token || again.Attempt != first.Attempt || again.Slot != first.Slot || again.Takeover != first.Takeover {
			s.Errorf("the retry was granted %+v after %+v", again, first)
		}
		if in := s.wantState("k", backends.Held).ExpiresIn; in != nil && *in <= s.ttl {
			s.Errorf("expires in %v after a retry with %v", *in, r.TTL)
		}
		if n := len(s.history("k")); n != 0 {
			s.Errorf("a retry left %d records", n)
		}
	}},
	{"a retry from another connection is recognised", func(s *suite) {
		r := s.request("k")
		first := s.acquire(s.a, r).Grant()
		if again := s.acquire(s.b, r).Grant(); again.Token != first.Token {
			s.Errorf("token %d, then %d", first.Token, again.Token)
		}
	}},
	{"an expired lease is taken over", func(s *suite) {
		first := s.acquire(s.a, s.request("k"))
		s.store.Expire("k")
		g := s.acquire(s.b, s.rival("k")).Grant()
		if !g.Takeover || g.Token <= first.Grant().Token || g.Attempt != 2 {
			s.Errorf("granted %+v after %+v ran out; want a takeover, a greater token, attempt 2", g, first.Grant())
		}
		if h := s.wantState("k", backends.Held).Holder; h != "beta" {
			s.Errorf("held by %q", h)
		}
	}},
	{"keys do not disturb each other", func(s *suite) {
		s.acquire(s.a, s.request("k1"))
		l := s.acquire(s.b, s.rival("k2"))
		s.release(l, backends.Succeeded)
		s.wantState("k1", backends.Held)
		s.wantState("k2", backends.Free)
	}},
	{"a request that breaks the rules is refused before anything is touched", func(s *suite) {
		for name, spoil := range map[string]func(*backends.Request){
			"empty key": func(r *backends.Request) { r.Key = "" },
			"NUL":       func(r *backends.Request) { r.Key = "a\x00" },
			"ttl":       func(r *backends.Request) { r.TTL = 0 },
			"slots":     func(r *backends.Request) { r.Slots = 0 },
			"owner":     func(r *backends.Request) { r.Owner = "" },
		} {
			r := s.request("k")
			spoil(&r)
			_, err := s.a.Acquire(s.ctx, r)
			var usage *backends.UsageError
			if !errors.As(err, &usage) {
				s.Errorf("%s: %v, want *UsageError", name, err)
			}
		}
		all, err := s.a.Status(s.ctx)
		s.ok("Status", err)
		if len(all) != 0 {
			s.Errorf("the store knows %+v", all)
		}
	}},
	{"two names say which store it is, the same for both hosts", func(s *suite) {
		if s.a.Name() == "" || s.a.Name() != s.b.Name() {
			s.Errorf("names %q and %q", s.a.Name(), s.b.Name())
		}
	}},
}

var attachCases = []testCase{
	{"a live lease is found by its token and can be renewed and released", func(s *suite) {
		r := s.request("k")
		r.Detached, r.Loose = true, true
		g := s.acquire(s.a, r).Grant()
		l, err := s.b.Attach(s.ctx, "k", g.Token)
		s.ok("Attach", err)
		if got := l.Grant(); got.Token != g.Token || got.Slot != g.Slot || got.Attempt != g.Attempt {
			s.Errorf("attached to %+v, granted was %+v", got, g)
		}
		s.ok("Renew", l.Renew(s.ctx, 2*s.ttl))
		if in := s.state("k").ExpiresIn; in != nil && *in <= s.ttl {
			s.Errorf("expires in %v after a renewal by %v", *in, 2*s.ttl)
		}
		s.release(l, backends.Succeeded)
		s.wantState("k", backends.Free)
		if h := s.history("k"); len(h) != 1 || h[0].Outcome != backends.Succeeded || h[0].Token != g.Token {
			s.Errorf("history %+v", h)
		}
	}},
	{"a token that is not, or not any longer, a live lease's is lost", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		for key, token := range map[string]int64{"k": l.Grant().Token + 1, "other": l.Grant().Token} {
			_, err := s.b.Attach(s.ctx, key, token)
			s.lost("Attach to another token or key", err)
		}
		s.release(l, backends.Failed)
		_, err := s.b.Attach(s.ctx, "k", l.Grant().Token)
		s.lost("Attach after the release", err)
		l = s.acquire(s.a, s.request("k"))
		s.store.Expire("k")
		_, err = s.b.Attach(s.ctx, "k", l.Grant().Token)
		s.lost("Attach after the expiry", err)
	}},
	{"a detached lease stays when its taker has gone", func(s *suite) {
		c := s.store.Open(backends.Options{})
		r := s.request("k")
		r.Detached = true
		g := s.acquire(c, r).Grant()
		s.ok("Close", c.Close())
		if st := s.wantState("k", backends.Held); st.Token != g.Token {
			s.Errorf("held with token %d, granted was %d", st.Token, g.Token)
		}
		s.refused(s.b, s.rival("k"))
	}},
}

var abandonCases = []testCase{
	{"what an unanswered acquire took is free at once and leaves no trace but the token", func(s *suite) {
		r := s.request("k")
		r.HoldAtLeast = time.Hour
		first := s.acquire(s.a, r).Grant()
		s.ok("Abandon", s.a.Abandon(s.ctx, r))
		s.wantState("k", backends.Free)
		if h := s.history("k"); len(h) != 0 {
			s.Errorf("history %+v", h)
		}
		g := s.acquire(s.b, s.rival("k")).Grant()
		if g.Attempt != 1 || g.Token <= first.Token || g.Takeover {
			s.Errorf("granted %+v after an abandoned %+v; want attempt 1, a greater token, no takeover", g, first)
		}
	}},
	{"an abandoned run id is neither done nor an attempt", func(s *suite) {
		r := s.request("k")
		r.RunID = "r1"
		s.acquire(s.a, r)
		s.ok("Abandon", s.a.Abandon(s.ctx, r))
		r.Owner = backends.NewOwner()
		if g := s.acquire(s.a, r).Grant(); g.Attempt != 1 {
			s.Errorf("attempt %d, want 1", g.Attempt)
		}
	}},
	{"nothing to give back is fine, again and again", func(s *suite) {
		r := s.request("k")
		s.ok("Abandon of an unknown key", s.a.Abandon(s.ctx, r))
		s.acquire(s.a, r)
		s.ok("Abandon", s.a.Abandon(s.ctx, r))
		s.ok("Abandon again", s.a.Abandon(s.ctx, r))
	}},
	{"a lease of somebody else is not touched", func(s *suite) {
		s.acquire(s.a, s.request("k"))
		before := s.store.Dump("k")
		s.ok("Abandon", s.b.Abandon(s.ctx, s.rival("k")))
		if after := s.store.Dump("k"); after != before {
			s.Errorf("the store changed from\n%s\nto\n%s", before, after)
		}
	}},
	{"a minimum hold after a release is not touched", func(s *suite) {
		r := s.request("k")
		r.HoldAtLeast = time.Hour
		s.release(s.acquire(s.a, r), backends.Succeeded)
		s.ok("Abandon", s.a.Abandon(s.ctx, r))
		s.wantState("k", backends.Held)
	}},
}
