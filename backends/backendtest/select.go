package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

var selectCases = []testCase{
	{"it is told by outcome, and the limit counts those", func(s *suite) {
		for i, o := range []backends.Outcome{backends.Failed, backends.Succeeded, backends.Succeeded, backends.TimedOut, backends.Succeeded, backends.Succeeded} {
			s.release(s.acquire(s.a, s.request(fmt.Sprintf("k%d", i%2))), o)
		}
		for _, c := range []struct {
			q    backends.Query
			want []backends.Outcome
		}{
			{backends.Query{Outcomes: []backends.Outcome{backends.Failed}}, []backends.Outcome{backends.Failed}},
			{backends.Query{Outcomes: []backends.Outcome{backends.Failed, backends.TimedOut}}, []backends.Outcome{backends.TimedOut, backends.Failed}},
			{backends.Query{Outcomes: []backends.Outcome{backends.Failed, backends.TimedOut}, Limit: 1}, []backends.Outcome{backends.TimedOut}},
			{backends.Query{Key: "k0", Outcomes: []backends.Outcome{backends.Failed, backends.TimedOut}, Limit: 1}, []backends.Outcome{backends.Failed}},
			{backends.Query{Outcomes: []backends.Outcome{backends.Skipped}}, nil},
			{backends.Query{Outcomes: []backends.Outcome{}}, nil},
		} {
			s.wantOutcomes(c.q, c.want)
		}
	}},
	{"it is told since a moment of the store's clock, that moment included", func(s *suite) {
		s.release(s.acquire(s.a, s.request("k")), backends.Failed)
		s.outlive(5*time.Millisecond + 4*s.store.Blur)
		s.release(s.acquire(s.a, s.request("k")), backends.TimedOut)
		s.outlive(5*time.Millisecond + 4*s.store.Blur)
		s.release(s.acquire(s.a, s.request("other")), backends.Succeeded)
		second, step := s.history("k")[0].EndedAt, time.Millisecond+s.store.Blur
		from := second.Add(-s.store.Blur)
		for _, c := range []struct {
			q    backends.Query
			want []backends.Outcome
		}{
			{backends.Query{Since: from}, []backends.Outcome{backends.Succeeded, backends.TimedOut}},
			{backends.Query{Since: from, Limit: 1}, []backends.Outcome{backends.Succeeded}},
			{backends.Query{Since: second.Add(-step)}, []backends.Outcome{backends.Succeeded, backends.TimedOut}},
			{backends.Query{Since: second.Add(step)}, []backends.Outcome{backends.Succeeded}},
			{backends.Query{Key: "k", Since: second.Add(step)}, nil},
			{backends.Query{Since: from, Outcomes: []backends.Outcome{backends.TimedOut, backends.Failed}}, []backends.Outcome{backends.TimedOut}},
		} {
			s.wantOutcomes(c.q, c.want)
		}
	}},
	{"a crash that nobody has written yet is told by the same rules", func(s *suite) {
		s.acquire(s.a, s.request("k"))
		s.store.Expire("k")
		end := s.history("k")[0].EndedAt
		for _, c := range []struct {
			q    backends.Query
			want []backends.Outcome
		}{
			{backends.Query{Outcomes: []backends.Outcome{backends.Crashed}}, []backends.Outcome{backends.Crashed}},
			{backends.Query{Outcomes: []backends.Outcome{backends.Succeeded}}, nil},
			{backends.Query{Since: end.Add(-time.Minute), Limit: 1}, []backends.Outcome{backends.Crashed}},
			{backends.Query{Since: end.Add(time.Minute)}, nil},
		} {
			s.wantOutcomes(c.q, c.want)
		}
	}},
}

// wantOutcomes wants these outcomes, newest first, of the records that q selects.
func (s *suite) wantOutcomes(q backends.Query, want []backends.Outcome) {
	s.Helper()
	h, err := s.b.History(s.ctx, q)
	s.ok("History", err)
	var got []backends.Outcome
	for _, r := range h {
		got = append(got, r.Outcome)
	}
	if !slices.Equal(got, want) {
		s.Errorf("%+v: %v, want %v", q, got, want)
	}
}

// follow has one host follow what another does.
func (s *suite) follow(f backends.Follower) {
	s.Helper()
	s.release(s.acquire(s.a, s.request("k")), backends.Failed)
	first := s.history("k")[0]
	enough := errors.New("enough")
	seen, ended := make(chan backends.Record, 100), make(chan error, 1)
	go func() {
		ended <- f.Follow(s.ctx, backends.Query{Key: "k", Since: first.EndedAt, Outcomes: []backends.Outcome{backends.Failed, backends.TimedOut}},
			func(r backends.Record) error {
				if seen <- r; r.Outcome == backends.TimedOut {
					return enough
				}
				return nil
			})
	}()
	next := func() backends.Record {
		s.Helper()
		select {
		case r := <-seen:
			return r
		case <-s.ctx.Done():
			s.Fatalf("nothing is told: %v", s.ctx.Err())
			return backends.Record{}
		}
	}
	if r := next(); r.Token != first.Token || r.Outcome != backends.Failed {
		s.Errorf("what the store had: %+v, want %+v", r, first)
	}
	s.release(s.acquire(s.a, s.request("k")), backends.Succeeded)
	s.release(s.acquire(s.a, s.request("other")), backends.TimedOut)
	last := s.acquire(s.a, s.request("k"))
	s.release(last, backends.TimedOut)
	for {
		r := next()
		if r.Key != "k" || r.Outcome == backends.Succeeded {
			s.Errorf("not asked for: %+v", r)
		}
		if r.Token == last.Grant().Token {
			break
		}
	}
	if err := <-ended; !errors.Is(err, enough) {
		s.Errorf("Follow = %v, want emit's own error", err)
	}
}
