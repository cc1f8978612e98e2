package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// sumCases are about what metrics are derived from: the history of every key that Status lists.
var sumCases = []testCase{
	{"every key that has a record is listed by status", func(s *suite) {
		s.release(s.acquire(s.a, s.request("released")), backends.Failed)
		s.acquire(s.a, s.request("ran out"))
		s.store.Expire("ran out")
		s.ok("Record", s.a.Record(s.ctx, backends.Record{Key: "never held", Holder: "alpha", Outcome: backends.NotStarted, Reason: "no such file"}))
		s.ok("Pause", s.a.Pause(s.ctx, "paused", backends.Pause{By: "ann"}))
		r := s.request("paused")
		r.Last = true
		s.refused(s.a, r)
		s.listed([]string{"never held", "paused", "ran out", "released"})
		for _, key := range []string{"never held", "paused", "ran out", "released"} {
			if n := len(s.history(key)); n != 1 {
				s.Errorf("%q has %d records", key, n)
			}
		}
	}},
	{"a takeover can be counted: the crashed run's token is smaller than its successor's", func(s *suite) {
		for range 3 {
			s.acquire(s.a, s.request("k"))
			s.store.Expire("k")
		}
		last := s.acquire(s.b, s.rival("k")).Grant()
		if !last.Takeover {
			s.Errorf("%+v is no takeover", last)
		}
		crashed := 0
		for _, r := range s.history("k") {
			if r.Outcome == backends.Crashed && r.Token > 0 && r.Token < last.Token {
				crashed++
			}
		}
		if crashed != 3 {
			s.Errorf("%d takeovers in %+v, want 3", crashed, s.history("k"))
		}
	}},
	{"hold and wait of a run can be summed from its record", func(s *suite) {
		r := s.request("k")
		r.Waited = 1500 * time.Millisecond
		l := s.acquire(s.a, r)
		s.outlive(20 * time.Millisecond)
		s.release(l, backends.Succeeded)
		rec := s.history("k")[0]
		if held := rec.EndedAt.Sub(rec.StartedAt); rec.Waited != r.Waited || held < 15*time.Millisecond || !rec.StartedAt.Equal(l.Grant().AcquiredAt) {
			s.Errorf("held %v, waited %v: %+v", held, rec.Waited, rec)
		}
	}},
}

// walk compares what a Walk tells with the history.
func (s *suite) walk(w backends.Walker) {
	s.Helper()
	code := 7
	for i := range 5 {
		r := s.request(fmt.Sprintf("k%d", i%2))
		r.Waited = time.Duration(i) * time.Second
		l := s.acquire(s.a, r)
		s.ok("Release", l.Release(s.ctx, backends.End{Outcome: backends.Failed, ExitCode: &code, Duration: time.Duration(i+1) * time.Second}))
	}
	s.ok("Pause", s.a.Pause(s.ctx, "k0", backends.Pause{By: "ann"}))
	r := s.request("k0")
	r.Last = true
	s.refused(s.a, r)
	s.acquire(s.a, s.request("k1"))
	s.store.Expire("k1")
	second := s.history("k0")[1].EndedAt
	for _, q := range []backends.Query{{}, {Key: "k1"}, {Key: "nope"}, {Since: second}, {Outcomes: []backends.Outcome{backends.Crashed, backends.Skipped}}} {
		all, err := s.b.History(s.ctx, q)
		s.ok("History", err)
		var want, got []string
		for i := range all {
			want = append(want, sums(&all[i]))
		}
		s.ok("Walk", w.Walk(s.ctx, q, func(r *backends.Record) error { got = append(got, sums(r)); return nil }))
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			s.Errorf("%+v: Walk tells\n%q, History\n%q", q, got, want)
		}
	}
	enough, n := errors.New("enough"), 0
	if err := w.Walk(s.ctx, backends.Query{}, func(*backends.Record) error { n++; return enough }); err != enough || n != 1 {
		s.Errorf("Walk = %v after %d records, want f's own error after the first", err, n)
	}
}

// sums are the fields that a Walk has to tell, as text.
func sums(r *backends.Record) string {
	text := fmt.Sprint(r.Key, r.Token, r.Outcome, r.StartedAt.UnixMicro(), r.EndedAt.UnixMicro(), r.Waited)
	if r.ExitCode != nil {
		text += fmt.Sprint(" exit ", *r.ExitCode)
	}
	if r.Duration != nil {
		text += fmt.Sprint(" took ", *r.Duration)
	}
	return text
}
