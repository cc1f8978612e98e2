package backendtest

import (
	"strings"
	"sync"

	"github.com/lockrun/lockrun/backends"
)

var foreignCases = []testCase{
	{"a foreign value is no answer, and stays as it is", func(s *suite) {
		if s.store.Foreign == nil {
			s.Skip("nothing foreign can be in this store")
		}
		contents := s.store.Foreign("k")
		before := contents()
		_, err := s.a.Acquire(s.ctx, s.request("k"))
		s.unknown("Acquire", err)
		if after := contents(); after != before {
			s.Errorf("the foreign value changed from\n%s\nto\n%s", before, after)
		}
	}},
}

var optionalCases = []testCase{
	{"init may be repeated, and done by many at once", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		var all sync.WaitGroup
		for range 4 {
			in, ok := s.open(backends.Options{}).(backends.Initer)
			if !ok {
				s.Skip("this store needs no init")
			}
			all.Go(func() {
				if err := in.Init(s.ctx); err != nil {
					s.Errorf("Init: %v", err)
				}
				if strings.TrimSpace(in.InitPlan()) == "" {
					s.Errorf("the plan is empty")
				}
			})
		}
		all.Wait()
		s.ok("Renew", l.Renew(s.ctx, s.ttl))
	}},
	{"a doctor gives each finding a name, a cause and the store, and a remedy where something is wrong", func(s *suite) {
		d, ok := s.a.(backends.Doctor)
		if !ok {
			s.Skip("this store does not examine itself")
		}
		s.acquire(s.b, s.request("k"))
		checks := d.Doctor(s.ctx)
		if len(checks) == 0 {
			s.Errorf("it finds nothing at all")
		}
		for _, c := range checks {
			if c.Backend != s.a.Name() || c.Check == "" || c.Cause == "" || !c.OK && c.Remedy == "" {
				s.Errorf("%+v", c)
			}
		}
		s.wantState("k", backends.Held)
	}},
	{"who follows is told of each record as it is written", func(s *suite) {
		f, ok := s.b.(backends.Follower)
		if !ok {
			s.Skip("this store is asked again and again")
		}
		s.follow(f)
	}},
	{"a walk tells what the history tells", func(s *suite) {
		w, ok := s.b.(backends.Walker)
		if !ok {
			s.Skip("this store is asked for the history of one key after the other")
		}
		s.walk(w)
	}},
	{"a lease's descriptors are open as long as it is held", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		live, ok := l.(backends.Liveness)
		if !ok {
			s.Skip("this store asks for no descriptor")
		}
		for _, f := range live.Files() {
			if _, err := f.Stat(); err != nil {
				s.Errorf("%v", err)
			}
		}
		s.release(l, backends.Succeeded)
		if n := len(live.Files()); n != 0 {
			s.Errorf("%d descriptors after the release", n)
		}
	}},
}
