package ledger

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lockrun/lockrun/backends"
)

// Owners of the tables below.
var (
	alice = fmt.Sprintf("%032x", 0xa)
	bob   = fmt.Sprintf("%032x", 0xb)
	carol = fmt.Sprintf("%032x", 0xc)
)

func lock(owner string, more ...func(*Entry)) *Entry {
	e := &Entry{Kind: Lock, Key: "k", Owner: owner, TTL: 1000, Slots: 1, Holder: owner[31:], Writer: owner[:8]}
	for _, f := range more {
		f(e)
	}
	return e
}

func slots(n int) func(*Entry)     { return func(e *Entry) { e.Slots = n } }
func runID(id string) func(*Entry) { return func(e *Entry) { e.RunID = id } }
func hold(ms int64) func(*Entry)   { return func(e *Entry) { e.Hold = ms } }
func nth(n int64) func(*Entry)     { return func(e *Entry) { e.N = n } }
func asToken(n int64) func(*Entry) { return func(e *Entry) { e.Token = n } }
func beat(owner string, token int64) *Entry {
	return &Entry{Kind: Heartbeat, Key: "k", Owner: owner, Token: token, TTL: 1000, Writer: owner[:8]}
}
func release(owner string, token int64, o backends.Outcome) *Entry {
	return &Entry{Kind: Release, Key: "k", Owner: owner, Token: token, Outcome: o, Writer: owner[:8]}
}

func abandon(owner string, n int64) *Entry {
	return &Entry{Kind: Abandon, Key: "k", Owner: owner, Writer: owner[:8], N: n, Unsure: true}
}

// step is one record at a time, under a leader, and what comes of it.
type step struct {
	at    int64
	epoch int32
	e     *Entry
	want  string // the Did, or who is in the way
}

func (d Did) String() string {
	return [...]string{"nothing", "granted", "refused", "renewed", "ended", "undone", "broken", "paused", "resumed", "noted", "stale"}[d]
}

// The rules, one a case. The token of a LOCK is its time.
func TestRules(t *testing.T) {
	for name, steps := range map[string][]step{
		"a lease is refused until it runs out, to the millisecond": {
			{100, 0, lock(alice), "granted"}, {1099, 0, lock(bob), "a"}, {1100, 0, lock(bob), "granted"}},
		"a beat counts from its own append": {
			{100, 0, lock(alice), "granted"}, {1000, 0, beat(alice, 100), "renewed"}, {1999, 0, lock(bob), "a"}, {2000, 0, lock(bob), "granted"}},
		"a beat at the very end comes too late": {
			{100, 0, lock(alice), "granted"}, {1100, 0, beat(alice, 100), "nothing"}, {1100, 0, lock(bob), "granted"}},
		"a beat with another token is nobody's": {
			{100, 0, lock(alice), "granted"}, {200, 0, beat(alice, 2), "nothing"}, {300, 0, beat(bob, 100), "nothing"}},
		"a release frees, once": {
			{100, 0, lock(alice), "granted"}, {200, 0, release(alice, 100, backends.Failed), "ended"},
			{201, 0, release(alice, 100, backends.Failed), "nothing"}, {202, 0, lock(bob), "granted"}},
		"the same owner again is the same lease": {
			{100, 0, lock(alice), "granted"}, {900, 0, lock(alice), "granted"}, {1899, 0, lock(bob), "a"}},
		"time stands still where the leader's clock is set back": {
			{5000, 0, lock(alice), "granted"}, {1000, 0, lock(bob), "a"}, {5999, 0, lock(bob), "a"}, {6000, 0, lock(bob), "granted"}},
		"nor does a beat under a clock that is set back, and forward again, shorten a lease": {
			{5000, 0, lock(alice), "granted"}, {1000, 0, beat(alice, 5000), "renewed"}, {5500, 0, lock(bob), "a"}, {6000, 0, lock(bob), "granted"}},
		"a new leader whose clock is ahead begins a live lease anew": {
			{1000, 0, lock(alice), "granted"}, {60000, 1, lock(bob), "a"}, {60999, 1, lock(bob), "a"}, {61000, 1, lock(bob), "granted"}},
		"and so does one whose clock is behind": {
			{60000, 0, lock(alice), "granted"}, {1000, 1, lock(bob), "a"}, {1500, 1, beat(alice, 60000), "renewed"}, {2499, 1, lock(bob), "a"}, {2500, 1, lock(bob), "granted"}},
		"what had run out under the old leader stays so": {
			{1000, 0, lock(alice), "granted"}, {2000, 0, beat(bob, 9), "nothing"}, {1500, 1, beat(alice, 1000), "nothing"}, {1500, 1, lock(bob), "granted"}},
		"what ran out longer ago than clocks can differ is not begun anew": {
			{1000, 0, lock(alice), "granted"}, {2001 + MaxSkew, 1, lock(bob), "granted"}},
		"a run id is a lock of its own": {
			{100, 0, lock(alice, slots(3), runID("r")), "granted"}, {200, 0, lock(bob, slots(3), runID("r")), "a"},
			{300, 0, lock(bob, slots(3), runID("s")), "granted"}},
		"a run that succeeded is done": {
			{100, 0, lock(alice, runID("r")), "granted"}, {200, 0, release(alice, 100, backends.Succeeded), "ended"},
			{300, 0, lock(bob, runID("r")), "done"}, {400, 0, lock(bob, runID("s")), "granted"}},
		"a minimum hold outlasts release and crash": {
			{100, 0, lock(alice, hold(5000)), "granted"}, {200, 0, release(alice, 100, backends.Failed), "ended"},
			{5099, 0, lock(bob), "a"}, {5100, 0, lock(bob, hold(3000)), "granted"}, {8099, 0, lock(alice), "b"}, {8100, 0, lock(alice), "granted"}},
		"a pause refuses, and ends by itself or by hand": {
			{100, 0, &Entry{Kind: Pause, Key: "k", By: "o", For: 500, Writer: "w"}, "paused"}, {599, 0, lock(bob), "o"}, {600, 0, lock(bob), "granted"},
			{700, 0, &Entry{Kind: Pause, Key: "k", By: "o", Writer: "w"}, "paused"}, {800, 0, beat(bob, 600), "renewed"},
			{900, 0, release(bob, 600, backends.Failed), "ended"}, {99999, 0, lock(alice), "o"},
			{99999, 0, &Entry{Kind: Resume, Key: "k", Writer: "w"}, "resumed"}, {99999, 0, lock(alice), "granted"}},
		"a break ends what it names": {
			{100, 0, lock(alice), "granted"}, {200, 0, &Entry{Kind: Break, Key: "k", Token: 2, Writer: "w"}, "nothing"},
			{300, 0, &Entry{Kind: Break, Key: "k", Token: 100, Writer: "w"}, "broken"}, {400, 0, beat(alice, 100), "nothing"}, {500, 0, lock(bob), "granted"}},
		"a request that was called off is void when it arrives late, and others are not": {
			{100, 0, &Entry{Kind: Abandon, Key: "k", Owner: alice, Writer: alice[:8], N: 5, Unsure: true}, "nothing"},
			{200, 0, lock(alice, nth(4)), "nothing"}, {300, 0, lock(bob, nth(1)), "granted"}, {1300, 0, lock(alice, nth(6)), "granted"}},
		"a request is not called off by what was sent before it and comes after": {
			{100, 0, lock(alice, nth(1)), "granted"}, {200, 0, lock(alice, nth(3)), "granted"}, {250, 0, lock(alice, nth(1)), "granted"},
			{300, 0, abandon(alice, 2), "nothing"}, {400, 0, lock(bob), "a"}, {500, 0, abandon(alice, 4), "undone"}, {600, 0, lock(bob), "granted"}},
		"what another writer says of an owner is not in that order": {
			{100, 0, lock(alice, nth(9)), "granted"},
			{200, 0, &Entry{Kind: Abandon, Key: "k", Owner: alice, Writer: "another", N: 1}, "undone"}},
		"what was called off last counts, whichever comes last": {
			{100, 0, abandon(alice, 5), "nothing"}, {200, 0, abandon(alice, 3), "nothing"}, {300, 0, lock(alice, nth(4)), "nothing"}},
		"who asks again too late does not run beside the same run, nor after it has succeeded": {
			{100, 0, lock(carol, slots(2)), "granted"}, {150, 0, lock(alice, slots(2), runID("r")), "granted"},
			{200, 0, release(carol, 100, backends.Failed), "ended"}, {1200, 0, lock(bob, slots(2), runID("r")), "granted"},
			{1300, 0, lock(alice, slots(2), runID("r")), "b"}, {1400, 0, release(bob, 1200, backends.Succeeded), "ended"},
			{1500, 0, lock(alice, slots(2), runID("r")), "done"}},
		"nor does it begin under a pause": {
			{100, 0, lock(alice), "granted"}, {200, 0, &Entry{Kind: Pause, Key: "k", By: "o", Writer: "w"}, "paused"},
			{1100, 0, lock(alice), "o"}},
		"who asks again too late for a free key gets it, and an earlier beat is not its own": {
			{100, 0, lock(alice), "granted"}, {1100, 0, lock(alice), "granted"}, {1200, 0, beat(alice, 100), "nothing"},
			{1300, 0, beat(alice, 1100), "renewed"}},
		"the slot that is free first is named": {
			{100, 0, lock(alice, slots(2)), "granted"}, {200, 0, lock(bob, slots(2)), "granted"}, {300, 0, lock(carol, slots(2)), "a"},
			{400, 0, beat(alice, 100), "renewed"}, {500, 0, lock(carol, slots(2)), "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var s State
			for i, st := range steps {
				res := s.Apply(Record{Offset: int64(i), Time: st.at, Epoch: st.epoch}, st.e)
				if got := told(res); got != st.want {
					t.Fatalf("record %d (%s at %d): %s, want %s", i, st.e.Kind, st.at, got, st.want)
				}
			}
		})
	}
}

// told is what came of a record: who is in the way, where somebody is.
func told(res Result) string {
	var held *backends.HeldError
	var done *backends.DoneError
	switch {
	case errors.As(res.Err, &done):
		return "done"
	case errors.As(res.Err, &held):
		return held.Holder
	}
	return res.Did.String()
}

func TestTokensRise(t *testing.T) {
	var s State
	last := int64(0)
	for i, told := range []int64{0, 0, 5000, 5000, 3, 0, 1 << 40, 0, 0} {
		res := s.Apply(Record{Offset: int64(10 * i), Time: int64(10000 * (i + 1))}, lock(alice, asToken(told)))
		res = s.Apply(Record{Offset: int64(10*i + 1), Time: int64(10000 * (i + 1))}, release(alice, res.Lease.Token, backends.Failed))
		if res.Did != Ended || res.Lease.Token <= last || told > last && res.Lease.Token != told {
			t.Errorf("told %d after %d: token %d", told, last, res.Lease.Token)
		}
		last = res.Lease.Token
	}
}

func TestTheStateHasTheLastRunIDs(t *testing.T) {
	var s State
	offset := int64(0)
	run := func(owner, id string, o backends.Outcome, more ...func(*Entry)) {
		res := s.Apply(Record{Offset: offset, Time: 1000 + offset}, lock(owner, append(more, runID(id), slots(2))...))
		offset++
		if o != "" {
			s.Apply(Record{Offset: offset, Time: 1000 + offset}, release(owner, res.Lease.Token, o))
			offset++
		}
	}
	run(bob, "live", "", func(e *Entry) { e.TTL = 1 << 40 })
	for i := range 3 * maxRuns {
		run(alice, fmt.Sprint("tick-", i), backends.Succeeded)
	}
	if n := len(s.Runs); n != maxRuns || s.run("live") == nil || s.run("tick-0") != nil || !s.run(fmt.Sprint("tick-", 3*maxRuns-1)).Done {
		t.Errorf("%d run ids are remembered: %+v", n, s.Runs)
	}
	e := release(alice, 1, backends.Failed)
	e.DoneAge = 1
	res := s.Apply(Record{Offset: offset, Time: 1 << 39}, lock(alice, slots(2), func(e *Entry) { e.DoneAge = 1 }))
	if res.Did != Granted || len(s.Runs) != 1 {
		t.Errorf("%v; remembered are %+v", res.Did, s.Runs)
	}
}

// What holders go by and what the log says are two clocks. Whoever counts his lease from before he sent the request, and
// takes the drift off, is not overlapped by the next holder: whatever the leaders' clocks show when they change, and however
// far they are set back; set forward by no more than the drift.
func TestNoTwoRelyOnALease(t *testing.T) {
	const drift = 60
	for seed := range seeds(300) {
		w := newWorld(t, seed)
		type holder struct {
			owner        string
			token        int64
			from, relies int64
		}
		var s State
		var now, last holder
		forward, grants := int64(0), 0
		for i := range int64(200) {
			w.real += w.rnd.Int64N(300)
			switch w.rnd.IntN(20) {
			case 0:
				w.epoch, w.offset, forward = w.epoch+1, w.rnd.Int64N(MaxSkew)-MaxSkew/2, 0
			case 1:
				w.offset -= w.rnd.Int64N(2000)
			case 2:
				if forward < drift {
					w.offset, forward = w.offset+drift-forward, drift
				}
			case 3:
				forward = 0 // long enough after the last step: a lease has passed
				w.real += 1500
			}
			sent := w.real
			w.real += w.rnd.Int64N(40) // until the leader appends
			ttl := 300 + w.rnd.Int64N(700)
			e := lock(fmt.Sprintf("%032x", w.rnd.Uint64()), func(e *Entry) { e.TTL = ttl })
			if w.rnd.IntN(2) == 0 && now.owner != "" {
				e = beat(now.owner, now.token)
				e.TTL = ttl
			}
			res := s.Apply(Record{Offset: i, Time: 1<<40 + w.real + w.offset, Epoch: w.epoch}, e)
			switch res.Did {
			case Renewed:
				if sent < now.relies { // otherwise he has stopped already, and does not begin again
					now.relies = sent + ttl - drift
				}
			case Granted:
				last, now = now, holder{e.Owner, res.Lease.Token, w.real, sent + ttl - drift}
				grants++
				if last.relies > now.from || last.token >= now.token {
					t.Fatalf("seed %d: %+v overlaps %+v", seed, last, now)
				}
			}
		}
		if grants < 3 {
			t.Errorf("seed %d: %d grants", seed, grants)
		}
	}
}

func TestJournal(t *testing.T) {
	w := newWorld(t, 1)
	put := func(at int64, e *Entry) {
		w.real = at
		w.append(e, &Carry{AsOf: int64(len(w.log)) - 1})
	}
	last := func(e *Entry) { e.Last = true }
	put(1000, lock(alice, func(e *Entry) { e.TTL = 60000 }))
	put(2000, lock(bob))
	put(3000, lock(carol, last))
	put(4000, release(alice, 1000, backends.Failed))
	put(5000, lock(bob))
	put(9000, lock(carol))
	put(9500, &Entry{Kind: Break, Key: "k", By: "me", Writer: "w"})
	put(9600, lock(alice))
	j := NewJournal("kafka://b/t")
	for _, l := range w.lines(0, int64(len(w.log))) {
		j.Add(l)
	}
	var got []string
	for _, r := range j.Records(20000, 0, backends.DefaultKeep) {
		got = append(got, fmt.Sprint(r.Holder, " ", r.Outcome, " ", r.Token, " ", r.EndedAt.UnixMilli(), " ", r.Backend))
	}
	want := []string{"a crashed 9600 10600 kafka://b/t", "c unlocked 9000 9500 kafka://b/t", "b crashed 5000 6000 kafka://b/t",
		"a failed 1000 4000 kafka://b/t", "c skipped 0 3000 kafka://b/t"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the journal has\n%q\nwant\n%q", got, want)
	}
	if d := j.Due(20000, 0); len(d) != 1 || len(j.Due(20000, 0)) != 0 {
		t.Errorf("due are %+v", d)
	}
}
