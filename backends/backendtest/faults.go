package backendtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// once is a plan for the first call of one operation.
func once(op string, f Fault) Plan {
	return func(o string, n int) Fault {
		if o == op && n == 1 {
			return f
		}
		return Fault{}
	}
}

// fault wants ErrFault.
func (s *suite) fault(what string, err error) {
	s.Helper()
	if !errors.Is(err, ErrFault) {
		s.Fatalf("%s = %v, want the injected fault", what, err)
	}
	s.unknown(what, err)
}

// CON-02 and its kin.
var faultCases = []testCase{
	{"after a lost reply the own lease is recognised, never taken for another's", func(s *suite) {
		f := Faulty(s.a, once("acquire", Fault{After: true}))
		r := withRun(s.request("k"), "r1")
		_, err := f.Acquire(s.ctx, r)
		s.fault("Acquire", err)
		first := s.wantState("k", backends.Held).Token
		l := s.acquire(f, r)
		if g := l.Grant(); g.Token != first || g.Attempt != 1 {
			s.Errorf("the retry was granted %+v, the lease had token %d", g, first)
		}
		s.ok("Renew", l.Renew(s.ctx, s.ttl))
		s.release(l, backends.Succeeded)
		if o := s.outcomes("k"); !slices.Equal(o, []backends.Outcome{backends.Succeeded}) {
			s.Errorf("history %v", o)
		}
	}},
	{"after a request that never arrived the retry is the first", func(s *suite) {
		f := Faulty(s.a, once("acquire", Fault{Before: true}))
		r := s.request("k")
		_, err := f.Acquire(s.ctx, r)
		s.fault("Acquire", err)
		s.wantState("k", backends.Free)
		if g := s.acquire(f, r).Grant(); g.Attempt != 1 || g.Takeover {
			s.Errorf("granted %+v", g)
		}
	}},
	{"a lost reply that is given up leaves nothing", func(s *suite) {
		f := Faulty(s.a, once("acquire", Fault{After: true}))
		r := s.request("k")
		_, err := f.Acquire(s.ctx, r)
		s.fault("Acquire", err)
		s.ok("Abandon", f.Abandon(s.ctx, r))
		s.wantState("k", backends.Free)
		if g := s.acquire(s.b, s.rival("k")).Grant(); g.Attempt != 1 || g.Takeover {
			s.Errorf("granted %+v", g)
		}
	}},
	{"a slow answer ends with its context", func(s *suite) {
		f := Faulty(s.a, once("acquire", Fault{Delay: Hang}))
		ctx, cancel := context.WithTimeout(s.ctx, 20*time.Millisecond)
		defer cancel()
		_, err := f.Acquire(ctx, s.request("k"))
		s.unknown("Acquire", err)
		if !errors.Is(err, context.DeadlineExceeded) {
			s.Errorf("Acquire = %v", err)
		}
	}},
	{"a renewal whose reply was lost can be repeated", func(s *suite) {
		l := s.acquire(Faulty(s.a, once("renew", Fault{After: true})), s.request("k"))
		s.fault("Renew", l.Renew(s.ctx, 2*s.ttl))
		if in := s.state("k").ExpiresIn; in != nil && *in <= s.ttl {
			s.Errorf("the renewal did not arrive: expires in %v", *in)
		}
		s.ok("Renew", l.Renew(s.ctx, s.ttl))
	}},
	{"a release whose reply was lost can be repeated, also after the next holder came", func(s *suite) {
		for _, taken := range []bool{false, true} {
			l := s.acquire(Faulty(s.a, once("release", Fault{After: true})), withRun(s.request("k"), "r"))
			end := backends.End{Outcome: backends.Failed}
			s.fault("Release", l.Release(s.ctx, end))
			var next backends.Lease
			if taken {
				next = s.acquire(s.b, s.rival("k"))
			}
			s.ok("Release again", l.Release(s.ctx, end))
			if taken {
				s.ok("the next holder's Renew", next.Renew(s.ctx, s.ttl))
			}
		}
		if o := s.outcomes("k"); !slices.Equal(o, []backends.Outcome{backends.Failed, backends.Failed}) {
			s.Errorf("history %v", o)
		}
	}},
	{"a release that never arrived leaves the lease, and can be repeated", func(s *suite) {
		l := s.acquire(Faulty(s.a, once("release", Fault{Before: true})), s.request("k"))
		s.fault("Release", l.Release(s.ctx, backends.End{Outcome: backends.Succeeded}))
		s.refused(s.b, s.rival("k"))
		s.release(l, backends.Succeeded)
		s.wantState("k", backends.Free)
	}},
	{"under random faults no update is lost and no own lease is taken for another's", func(s *suite) {
		var sum int
		rounds := s.rounds(20)
		f := Faulty(s.a, func(op string, n int) Fault {
			return Fault{Before: n%3 == 0, After: n%3 == 1 && op != "status"}
		})
		for range rounds {
			l := s.acquireThrough(f, s.request("k"))
			sum++
			for l.Renew(s.ctx, s.ttl) != nil {
			}
			s.eventually("the release", func() bool { return l.Release(s.ctx, backends.End{Outcome: backends.Succeeded}) == nil })
			s.wantState("k", backends.Free)
		}
		if n := len(s.history("k")); sum != rounds || n != rounds {
			s.Errorf("%d runs, %d records, want %d", sum, n, rounds)
		}
	}},
}

// acquireThrough repeats an acquire while the answer is not known; a refusal fails, since nobody else is there.
func (s *suite) acquireThrough(b backends.Backend, r backends.Request) backends.Lease {
	s.Helper()
	for {
		l, err := b.Acquire(s.ctx, r)
		if err == nil {
			return l
		}
		s.fault("Acquire", err)
	}
}
