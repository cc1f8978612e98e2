package backendtest

import (
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// manySlots is what a request has whose lease is in another store: here it excludes nothing but its run id.
const manySlots = 1 << 30

// far is how much is added to a token so that it is above all that the store may have used up, also on one server of several
// whose answers were not waited for. Where tokens are microseconds it is a quarter of an hour.
const far = 1_000_000_000

// recordOnly makes of r the request for the record of a run whose lease has this token elsewhere.
func recordOnly(r backends.Request, token int64) backends.Request {
	r.Slots, r.Token = manySlots, token
	return r
}

// recordStoreCases are about a store that keeps the records of runs whose leases are in another one.
var recordStoreCases = []testCase{
	{"the token of the lease elsewhere is handed out, shown and found by", func(s *suite) {
		r := recordOnly(s.request("k"), s.someToken()+far)
		r.Loose = true
		l := s.acquire(s.a, r)
		if g := l.Grant(); g.Token != r.Token {
			s.Fatalf("token %d, told was %d", g.Token, r.Token)
		}
		if st := s.wantState("k", backends.Held); st.Token != r.Token {
			s.Errorf("status shows token %d, told was %d", st.Token, r.Token)
		}
		s.ok("Renew", l.Renew(s.ctx, s.ttl))
		attached, err := s.b.Attach(s.ctx, "k", r.Token)
		s.ok("Attach", err)
		s.ok("Renew of what was attached", attached.Renew(s.ctx, s.ttl))
		s.release(l, backends.Succeeded)
		if h := s.history("k"); len(h) != 1 || h[0].Token != r.Token || h[0].Outcome != backends.Succeeded {
			s.Errorf("history %+v", h)
		}
		if st := s.wantState("k", backends.Free); st.Token != r.Token {
			s.Errorf("status shows %d as the last token, told was %d", st.Token, r.Token)
		}
	}},
	{"a token that is not above those before gives way to one that is", func(s *suite) {
		last := s.someToken()
		for _, told := range []int64{1, last, last + 5*far, last + 5*far, last + 2*far} {
			g := s.acquire(s.a, recordOnly(s.request("k"), told)).Grant()
			if g.Token <= last || told > last && g.Token != told {
				s.Fatalf("token %d after %d, told was %d", g.Token, last, told)
			}
			last = g.Token
		}
	}},
	{"a lease of the store's own has a greater token afterwards", func(s *suite) {
		told := s.someToken() + 1000*far
		s.release(s.acquire(s.a, recordOnly(s.request("k"), told)), backends.Succeeded)
		if g := s.acquire(s.b, s.request("k")).Grant(); g.Token <= told {
			s.Errorf("token %d after %d", g.Token, told)
		}
	}},
	{"a repetition keeps the token of the first, whatever it is told", func(s *suite) {
		r := recordOnly(s.request("k"), s.someToken()+far)
		first := s.acquire(s.a, r).Grant()
		r.Token += far
		if again := s.acquire(s.b, r).Grant(); again.Token != first.Token || again.Slot != first.Slot || again.Attempt != first.Attempt {
			s.Errorf("granted %+v, then %+v", first, again)
		}
	}},
	{"what crashed, was lost or was unlocked is found by that token", func(s *suite) {
		base := s.someToken() + far
		take := func(n int64) int64 {
			r := recordOnly(s.request("k"), base+n)
			s.acquire(s.a, r)
			return r.Token
		}
		crashed, broken := take(1), take(2)
		_, err := s.b.Break(s.ctx, "k", broken, "me")
		s.ok("Break", err)
		s.store.Expire("k")
		if o := s.outcomeOf("k", crashed); o != backends.Crashed {
			s.Errorf("what ran out is called %s", o)
		}
		code := 3
		for _, token := range []int64{crashed, broken} {
			s.ok("Record", s.b.Record(s.ctx, backends.Record{Key: "k", Token: token, Outcome: backends.Lost, ExitCode: &code, Holder: "alpha"}))
		}
		if o := s.outcomeOf("k", crashed); o != backends.Lost {
			s.Errorf("what was lost is called %s", o)
		}
		if o := s.outcomeOf("k", broken); o != backends.Unlocked {
			s.Errorf("what was broken is called %s", o)
		}
	}},
	{"any number of runs at once, and of one id only one", func(s *suite) {
		base, slots := s.someToken()+far, map[int]bool{}
		var leases []backends.Lease
		for n := range int64(20) {
			id := ""
			if n == 7 {
				id = "r1"
			}
			r := recordOnly(s.request("k"), base+1+n)
			r.RunID = id
			leases = append(leases, s.acquire(s.a, r))
			slots[leases[n].Grant().Slot] = true
		}
		if len(slots) != 20 {
			s.Errorf("20 runs have %d slots", len(slots))
		}
		same := recordOnly(s.rival("k"), base+100)
		same.RunID = "r1"
		s.sameRun(same, leases[7])
		s.release(leases[7], backends.Failed)
		same.Token = base + 200
		again := s.acquire(s.b, same)
		if g := again.Grant(); g.Token != same.Token || g.Attempt != 2 {
			s.Errorf("granted %+v; want token %d and the second attempt", g, same.Token)
		}
		s.release(again, backends.Succeeded)
		same.Token, same.Owner = base+300, backends.NewOwner()
		s.done(s.a, same)
		for i, l := range leases {
			if i != 7 {
				s.ok("Renew", l.Renew(s.ctx, s.ttl))
			}
		}
	}},
	{"many slots cost nothing", func(s *suite) {
		spent := func(slots int) time.Duration {
			best := patience
			for range 5 {
				r := s.request("k")
				r.Slots = slots
				start := time.Now()
				s.release(s.acquire(s.a, r), backends.Failed)
				best = min(best, time.Since(start))
			}
			return best
		}
		if few, many := spent(2), spent(manySlots); many > 20*few+time.Second {
			s.Errorf("%v with 2 slots, %v with %d", few, many, manySlots)
		}
	}},
	{"a record is given back without a trace", func(s *suite) {
		r := recordOnly(s.request("k"), s.someToken()+far)
		r.RunID = "r1"
		s.acquire(s.a, r)
		s.ok("Abandon", s.a.Abandon(s.ctx, r))
		if h := s.history("k"); len(h) != 0 {
			s.Errorf("history %+v", h)
		}
		r.Owner = backends.NewOwner()
		if g := s.acquire(s.b, r).Grant(); g.Attempt != 1 {
			s.Errorf("attempt %d after one that was given back", g.Attempt)
		}
	}},
	{"a token beyond what can be kept exactly is refused", func(s *suite) {
		for _, token := range []int64{-1, 1 << 53} {
			if l, err := s.a.Acquire(s.ctx, recordOnly(s.request("k"), token)); err == nil {
				s.Errorf("token %d was granted: %+v", token, l.Grant())
			}
		}
	}},
}

// someToken is a token that the store has handed out for "k" by itself; nothing else is left of it.
func (s *suite) someToken() int64 {
	s.Helper()
	r := s.request("k")
	token := s.acquire(s.a, r).Grant().Token
	s.ok("Abandon", s.a.Abandon(s.ctx, r))
	return token
}

// outcomeOf is how the run with this token ended, as the history tells it.
func (s *suite) outcomeOf(key string, token int64) backends.Outcome {
	s.Helper()
	h := s.history(key)
	i := slices.IndexFunc(h, func(r backends.Record) bool { return r.Token == token })
	if i < 0 {
		s.Fatalf("no run has token %d in %+v", token, h)
	}
	return h[i].Outcome
}
