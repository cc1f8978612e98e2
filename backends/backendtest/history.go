package backendtest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockrun/lockrun/backends"
)

var statusCases = []testCase{
	{"an unknown key is free and stays unknown", func(s *suite) {
		if st := s.wantState("k", backends.Free); st.Token != 0 || st.Holder != "" || st.AcquiredAt != nil || st.Slot != nil {
			s.Errorf("state %+v", st)
		}
		all, err := s.a.Status(s.ctx)
		s.ok("Status", err)
		if len(all) != 0 {
			s.Errorf("the store knows %+v", all)
		}
	}},
	{"a held key tells everything about its holder", func(s *suite) {
		r := withRun(s.request("k"), "r1")
		g := s.acquire(s.a, r).Grant()
		st := s.wantState("k", backends.Held)
		if st.Key != "k" || st.Holder != "alpha" || st.Host != "host-a" || st.PID != 4711 || st.Token != g.Token || st.Slot == nil ||
			*st.Slot != g.Slot || st.AcquiredAt == nil || !st.AcquiredAt.Equal(g.AcquiredAt) || st.RunID != "r1" || st.Attempt != 1 || st.Reason != "" {
			s.Errorf("state %+v after %+v", st, g)
		}
		if st.ExpiresIn != nil && (*st.ExpiresIn <= 0 || *st.ExpiresIn > s.ttl) {
			s.Errorf("expires in %v", *st.ExpiresIn)
		}
	}},
	{"named keys come in the order asked, all of them in byte order", func(s *suite) {
		for _, key := range []string{"b", "a", "B", "ä", "a b"} {
			s.acquire(s.a, s.request(key))
		}
		for _, c := range []struct{ ask, want []string }{
			{[]string{"b", "nope", "a", "b"}, []string{"b", "nope", "a", "b"}},
			{nil, []string{"B", "a", "a b", "b", "ä"}},
		} {
			all, err := s.b.Status(s.ctx, c.ask...)
			s.ok("Status", err)
			var got []string
			for _, st := range all {
				got = append(got, st.Key)
			}
			if !slices.Equal(got, c.want) {
				s.Errorf("asked for %q, got %q, want %q", c.ask, got, c.want)
			}
		}
	}},
	{"a host that may only read can ask", func(s *suite) {
		s.acquire(s.a, s.request("k"))
		s.release(s.acquire(s.a, s.request("k2")), backends.Failed)
		c := s.open(backends.Options{ReadOnly: true})
		all, err := c.Status(s.ctx)
		s.ok("Status", err)
		if len(all) != 2 || all[0].State != backends.Held || all[1].State != backends.Free {
			s.Errorf("status %+v", all)
		}
		h, err := c.History(s.ctx, backends.Query{})
		s.ok("History", err)
		if len(h) != 1 {
			s.Errorf("history %+v", h)
		}
	}},
}

var historyCases = []testCase{
	{"every outcome of a release is told, newest first", func(s *suite) {
		all := []backends.Outcome{backends.Succeeded, backends.Failed, backends.TimedOut, backends.NotStarted}
		for _, o := range all {
			s.release(s.acquire(s.a, s.request("k")), o)
		}
		slices.Reverse(all)
		if got := s.outcomes("k"); !slices.Equal(got, all) {
			s.Errorf("history %v, want %v", got, all)
		}
	}},
	{"refusals without a lease are told as they were recorded", func(s *suite) {
		now, err := s.a.Now(s.ctx)
		s.ok("Now", err)
		for i, o := range []backends.Outcome{backends.Unavailable, backends.Skipped, backends.Done} {
			r := backends.Record{Key: "k", Holder: "alpha", Host: "host-a", PID: 1, Outcome: o, Reason: "because", RunID: "r", Waited: time.Second,
				StartedAt: now.Add(time.Duration(i) * time.Millisecond), EndedAt: now.Add(time.Duration(i) * time.Millisecond)}
			s.ok("Record", s.a.Record(s.ctx, r))
		}
		h := s.history("k")
		if len(h) != 3 || h[0].Outcome != backends.Done || h[2].Outcome != backends.Unavailable {
			s.Fatalf("history %+v", h)
		}
		r := h[0]
		if r.Reason != "because" || r.RunID != "r" || r.Waited != time.Second || r.Token != 0 || r.Slot != nil || r.ExitCode != nil || r.Duration != nil {
			s.Errorf("recorded %+v", r)
		}
	}},
	{"a refusal is recorded where the caller gives up, and only there", func(s *suite) {
		s.release(s.acquire(s.a, withRun(s.request("k"), "r1")), backends.Succeeded)
		last := withRun(s.rival("k"), "r1")
		last.Last, last.Waited = true, 3*time.Second
		s.done(s.b, last)
		s.acquire(s.a, s.request("k"))
		s.refused(s.b, s.rival("k"))
		last = s.rival("k")
		last.Last = true
		s.refused(s.b, last)
		s.eventually("two refusals in the history", func() bool { return len(s.history("k")) == 3 })
		h := s.history("k")
		if h[0].Outcome != backends.Skipped || h[0].Holder != "beta" || h[0].Reason == "" || h[0].Host != "host-b" || h[0].PID != 815 {
			s.Errorf("the skip is %+v", h[0])
		}
		if h[1].Outcome != backends.Done || h[1].RunID != "r1" || h[1].Waited != 3*time.Second {
			s.Errorf("the done one is %+v", h[1])
		}
	}},
	{"the reason of a skip names who paused and why", func(s *suite) {
		s.ok("Pause", s.a.Pause(s.ctx, "k", backends.Pause{By: "ops", Reason: "deploy"}))
		r := s.rival("k")
		r.Last = true
		s.refused(s.b, r)
		s.eventually("the skip in the history", func() bool { return len(s.history("k")) == 1 })
		if got := s.history("k")[0].Reason; got != "paused by ops until resumed: deploy" {
			s.Errorf("reason %q", got)
		}
	}},
	{"a crash shows by itself, and once when it is taken over", func(s *suite) {
		l := s.acquire(s.a, withRun(s.request("k"), "r1"))
		s.store.Expire("k")
		check := func(when string, h []backends.Record) {
			s.Helper()
			if len(h) != 1 || h[0].Outcome != backends.Crashed || h[0].Token != l.Grant().Token || h[0].Holder != "alpha" ||
				h[0].RunID != "r1" || h[0].EndedAt.IsZero() || !h[0].StartedAt.Equal(l.Grant().AcquiredAt) || h[0].Backend != s.recordedAs() {
				s.Errorf("%s: history %+v", when, h)
			}
		}
		check("before a takeover", s.history("k"))
		check("again", s.history("k"))
		h, err := s.open(backends.Options{ReadOnly: true}).History(s.ctx, backends.Query{})
		s.ok("History", err)
		check("for a reader, over all keys", h)
		s.acquire(s.b, s.rival("k"))
		check("after a takeover", s.history("k"))
	}},
	{"lost replaces crashed, before and after a takeover", func(s *suite) {
		for _, takeover := range []bool{false, true} {
			key := fmt.Sprintf("k%v", takeover)
			l := s.acquire(s.a, s.request(key))
			s.store.Expire(key)
			if takeover {
				s.acquire(s.b, s.rival(key))
			}
			s.recordLost(key, l, 143)
			s.recordLost(key, l, 143) // a repetition changes nothing
			if !takeover {
				s.acquire(s.b, s.rival(key))
			}
			h := s.history(key)
			if len(h) != 1 || h[0].Outcome != backends.Lost || h[0].ExitCode == nil || *h[0].ExitCode != 143 || h[0].Token != l.Grant().Token || h[0].Reason != "beat" {
				s.Errorf("takeover %v: history %+v", takeover, h)
			}
		}
	}},
	{"unlocked stays unlocked and takes over exit code and end", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		_, err := s.b.Break(s.ctx, "k", l.Grant().Token, "root")
		s.ok("Break", err)
		s.recordLost("k", l, 143)
		h := s.history("k")
		if len(h) != 1 || h[0].Outcome != backends.Unlocked || h[0].Reason != "root" || h[0].ExitCode == nil || *h[0].ExitCode != 143 || h[0].Duration == nil {
			s.Errorf("history %+v", h)
		}
	}},
	{"what a release recorded stands", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		s.release(l, backends.Succeeded)
		s.recordLost("k", l, 143)
		if o := s.outcomes("k"); !slices.Equal(o, []backends.Outcome{backends.Succeeded}) {
			s.Errorf("history %v", o)
		}
	}},
	{"a lease recorded as lost while it still lives is not called crashed later", func(s *suite) {
		l := s.acquire(s.a, s.request("k"))
		s.recordLost("k", l, 137)
		s.wantState("k", backends.Held)
		s.store.Expire("k")
		s.acquire(s.b, s.rival("k"))
		if o := s.outcomes("k"); !slices.Equal(o, []backends.Outcome{backends.Lost}) {
			s.Errorf("history %v", o)
		}
	}},
	{"it is told by key, over all keys, and up to a limit", func(s *suite) {
		for i := range 6 {
			s.release(s.acquire(s.a, s.request(fmt.Sprintf("k%d", i%2))), backends.Failed)
		}
		for _, c := range []struct {
			q    backends.Query
			want int
		}{{backends.Query{}, 6}, {backends.Query{Key: "k0"}, 3}, {backends.Query{Limit: 4}, 4}, {backends.Query{Key: "k1", Limit: 2}, 2}, {backends.Query{Key: "none"}, 0}} {
			h, err := s.b.History(s.ctx, c.q)
			s.ok("History", err)
			if len(h) != c.want {
				s.Errorf("%+v: %d records, want %d", c.q, len(h), c.want)
			}
			if !slices.IsSortedFunc(h, func(x, y backends.Record) int { return cmp.Compare(y.Token, x.Token) }) && c.q.Key != "" {
				s.Errorf("%+v: not newest first: %+v", c.q, h)
			}
			if !slices.IsSortedFunc(h, func(x, y backends.Record) int { return y.EndedAt.Compare(x.EndedAt) }) {
				s.Errorf("%+v: not newest first: %+v", c.q, h)
			}
		}
	}},
}

// recordLost records what a run that found its lease gone says of itself.
func (s *suite) recordLost(key string, l backends.Lease, code int) {
	s.Helper()
	g, d := l.Grant(), time.Second
	s.ok("Record", s.a.Record(s.ctx, backends.Record{Key: key, Holder: "alpha", Host: "host-a", Attempt: g.Attempt, Token: g.Token, Slot: &g.Slot,
		Outcome: backends.Lost, Reason: "beat", ExitCode: &code, StartedAt: g.AcquiredAt, EndedAt: g.AcquiredAt.Add(d), Duration: &d}))
}

var keepCases = []testCase{
	{"runs and refusals are kept apart, so many of each key", func(s *suite) {
		c := s.open(backends.Options{Keep: backends.Keep{Runs: 3}})
		for range 5 {
			s.release(s.acquire(c, s.request("other")), backends.Failed)
		}
		var tokens []int64
		for range 5 {
			l := s.acquire(c, s.request("k"))
			tokens = append(tokens, l.Grant().Token)
			for range 2 {
				r := s.rival("k")
				r.Last = true
				s.refused(c, r)
			}
			s.release(l, backends.Failed)
		}
		var runs, skips []backends.Record
		for _, r := range s.history("k") {
			if r.Outcome.Refusal() {
				skips = append(skips, r)
			} else {
				runs = append(runs, r)
			}
		}
		if len(runs) != 3 || runs[0].Token != tokens[4] || runs[2].Token != tokens[2] {
			s.Errorf("runs %+v, want those of tokens %v", runs, tokens[2:])
		}
		if len(skips) != 3 {
			s.Errorf("%d skips, want 3", len(skips))
		}
		if n := len(s.history("other")); n != 3 {
			s.Errorf("%d records of the other key, want 3", n)
		}
	}},
	{"old records go as new ones are written", func(s *suite) {
		keep := backends.Keep{Age: 100 * time.Millisecond}
		c := s.open(backends.Options{Keep: keep})
		first := s.acquire(c, s.request("k"))
		s.release(first, backends.Failed)
		s.outlive(keep.Age)
		for range 3 {
			s.release(s.acquire(c, s.request("k")), backends.Failed)
		}
		h := s.history("k")
		if len(h) == 0 || slices.ContainsFunc(h, func(r backends.Record) bool { return r.Token == first.Grant().Token }) {
			s.Errorf("history %+v; want the new ones without token %d", h, first.Grant().Token)
		}
	}},
	{"old done-marks go as new ones are written", func(s *suite) {
		keep := backends.Keep{DoneAge: 100 * time.Millisecond}
		c := s.open(backends.Options{Keep: keep})
		s.release(s.acquire(c, withRun(s.request("k"), "r")), backends.Succeeded)
		s.outlive(keep.DoneAge)
		for i := range 3 {
			s.release(s.acquire(c, withRun(s.request("k"), fmt.Sprint("r", i))), backends.Succeeded)
		}
		s.acquire(c, withRun(s.request("k"), "r"))
	}},
}

// outlive waits until d has passed on the store's clock.
func (s *suite) outlive(d time.Duration) {
	s.Helper()
	began, err := s.a.Now(s.ctx)
	s.ok("Now", err)
	s.eventually("the store's clock", func() bool {
		now, err := s.a.Now(s.ctx)
		s.ok("Now", err)
		return now.Sub(began) > d
	})
}

var oddKeys = []string{
	"job", "Job", "job ", " job", "jöb", "jo\u0308b", "a/b", "/a", "a", "..", ".", "__x__", "a b", "a%2Fb", "a%20b", "ключ",
	"-rf", "--", "a\nb", "a\r\nb", "a\tb", "{k", "k}", "{}", "{a}{b}", "a:b", "a*", "a?", "a\\b", "'", "\"", "a'; DROP TABLE keys; --",
	"\u200b", "\U0001f512", "\x7f", "\x01", "ß", "ss", "SS", "İ", "i", "0", "00", "null",
}

// KEY-02, KEY-03
var keyCases = []testCase{
	{"odd keys are distinct everywhere", func(s *suite) {
		keys := append(slices.Clone(oddKeys), longKey("x"), longKey("y"))
		leases := map[string]backends.Lease{}
		for _, key := range keys {
			leases[key] = s.acquire(s.a, s.request(key)) // would be refused were it the same as one before
		}
		for _, key := range keys {
			if h := s.refused(s.b, s.rival(key)); h.Key != key || h.Token != leases[key].Grant().Token {
				s.Errorf("%q is held by token %d of %q, want %d", key, h.Token, h.Key, leases[key].Grant().Token)
			}
			if st := s.wantState(key, backends.Held); st.Key != key {
				s.Errorf("status of %q tells %q", key, st.Key)
			}
		}
		s.listed(keys)
		for i, key := range keys {
			if i%2 == 0 {
				s.release(leases[key], backends.Failed)
			} else if broken, err := s.b.Break(s.ctx, key, leases[key].Grant().Token, "me"); err != nil || len(broken) != 1 || broken[0].Key != key {
				s.Errorf("Break %q = %+v, %v", key, broken, err)
			}
			s.wantState(key, backends.Free)
			if h := s.history(key); len(h) != 1 || h[0].Key != key {
				s.Errorf("history of %q: %+v", key, h)
			}
		}
		h, err := s.b.History(s.ctx, backends.Query{})
		s.ok("History", err)
		if len(h) != len(keys) {
			s.Errorf("%d records over all keys, want %d", len(h), len(keys))
		}
	}},
	{"pauses and run ids of odd keys are distinct", func(s *suite) {
		for _, key := range oddKeys {
			s.release(s.acquire(s.a, withRun(s.request(key), key2run(key))), backends.Succeeded)
			s.ok("Pause", s.a.Pause(s.ctx, key, backends.Pause{By: "ops"}))
		}
		for _, key := range oddKeys {
			s.done(s.b, withRun(s.rival(key), key2run(key)))
			s.ok("Resume", s.b.Resume(s.ctx, key))
			s.wantState(key, backends.Free)
		}
	}},
	{"keys that are none are refused by every verb that would create one", func(s *suite) {
		for _, key := range []string{"", "a\x00b", "\xff", longKey("x") + "x"} {
			if err := s.a.Pause(s.ctx, key, backends.Pause{By: "ops"}); err == nil {
				s.Errorf("Pause %.20q succeeded", key)
			}
			if err := s.a.Record(s.ctx, backends.Record{Key: key, Outcome: backends.Skipped}); err == nil {
				s.Errorf("Record %.20q succeeded", key)
			}
		}
	}},
}

func longKey(last string) string {
	b := make([]byte, 254)
	for i := range b {
		b[i] = 'k'
	}
	return string(b) + last
}

// key2run makes a run id of a key, which may hold control characters where a run id may not.
func key2run(key string) string { return fmt.Sprintf("%q", key) }

func (s *suite) listed(keys []string) {
	s.Helper()
	all, err := s.b.Status(s.ctx)
	s.ok("Status", err)
	var got []string
	for _, st := range all {
		got = append(got, st.Key)
	}
	want := slices.Sorted(slices.Values(keys))
	if !slices.Equal(got, want) {
		s.Errorf("listed %q, want %q", got, want)
	}
}
