package ledger

import (
	"errors"
	"fmt"
	"testing"

	"github.com/lockrun/lockrun/backends"
)

// memory is what a key's run ids have done, told by results alone, and never forgotten.
type memory struct {
	attempts map[string]int
	done     map[string]bool
	recalled int // how often a done-mark counted that was no longer in the state
}

// hear compares a result with what has happened before.
func (m *memory) hear(before *State, l Line, res Result) error {
	id := l.Entry.RunID
	var done *backends.DoneError
	own := before.Owned(l.Entry.Owner)
	if res.Did != Nothing && l.Entry.Kind == Lock && own != nil && !own.Live(res.Time) { // it had run out unheard, and is asked for anew
		m.attempts[own.RunID]--
	}
	switch {
	case res.Did == Granted && id != "" && m.done[id]:
		return fmt.Errorf("%q has succeeded, and is granted again", id)
	case res.Did == Granted && id != "" && (own == nil || !own.Live(res.Time)):
		if m.attempts[id]++; res.Lease.Attempt != m.attempts[id] {
			return fmt.Errorf("%q was granted as attempt %d; it is %d, done before: %v", id, res.Lease.Attempt, m.attempts[id], m.done[id])
		}
	case res.Did == Refused && errors.As(res.Err, &done):
		if before.run(id) == nil {
			m.recalled++
		}
		if !m.done[id] {
			return fmt.Errorf("%q was refused as done and is not", id)
		}
	case res.Did == Refused && m.done[id]: // done comes before held
		return fmt.Errorf("%q was refused as held, and is done: %v", id, res.Err)
	case res.Did == Undone, res.Did == Ended && l.Entry.Outcome == backends.NotStarted:
		m.attempts[res.Lease.RunID]--
	case res.Did == Ended && l.Entry.Outcome == backends.Succeeded:
		m.done[res.Lease.RunID] = res.Lease.RunID != ""
	}
	return nil
}

// What has become of a run id is told rightly however many others there were since, and however old the knowledge of who
// asks for it.
func TestNoRunIDIsForgotten(t *testing.T) {
	recalled, stale, granted := 0, 0, 0
	for seed := range seeds(5) {
		w := newWorld(t, seed)
		w.ids = manyKeys(60)
		w.run(manyKeys(1), 5, 1200, nil)
		m, s := &memory{attempts: map[string]int{}, done: map[string]bool{}}, &State{}
		for _, l := range w.lines(0, int64(len(w.log))) {
			if l.Entry == nil {
				continue
			}
			before := s.Clone()
			before.tick(l.Record) // under a new leader's clock what had run out might look live
			res := s.Apply(l.Record, l.Entry)
			err := m.hear(before, l, res)
			if err == nil {
				err = noRunTwice(s, res.Time)
			}
			if err != nil {
				t.Fatalf("seed %d, offset %d: %v", seed, l.Offset, err)
			}
			switch res.Did {
			case Stale:
				stale++
			case Granted:
				granted++
			}
		}
		recalled += m.recalled
	}
	t.Logf("%d grants, %d marks recalled, %d requests out of date", granted, recalled, stale)
	if recalled < 20/seedsOf || stale == 0 {
		t.Errorf("%d marks were recalled, %d requests out of date: this test shows nothing", recalled, stale)
	}
}

// noRunTwice looks for two leases of one run id that live at once.
func noRunTwice(s *State, at int64) error {
	running := map[string]int64{}
	for _, l := range s.Leases {
		if l.RunID == "" || !l.Live(at) {
			continue
		}
		if other := running[l.RunID]; other != 0 {
			return fmt.Errorf("%q runs twice, with the tokens %d and %d", l.RunID, other, l.Token)
		}
		running[l.RunID] = l.Token
	}
	return nil
}

// A year of ticks: each is found by a few reads, and what a record carries stays small.
func TestManyRunIDs(t *testing.T) {
	const ids = 3_000
	w := newWorld(t, 1)
	p := w.writer(1)
	p.book = w.book(0, 1, nil)
	ask := func(id, owner string) Result {
		t.Helper()
		e, c := p.sign(&Entry{Kind: Lock, Key: "k", Owner: owner, TTL: 1000, Slots: 1, RunID: id})
		return w.told(p.book, e, c)
	}
	for i := range ids {
		id := fmt.Sprint("2026-11-30T11:02:00Z/", i)
		res := ask(id, alice)
		if res.Did != Granted {
			t.Fatalf("%q: %+v", id, res)
		}
		e, c := p.sign(&Entry{Kind: Release, Key: "k", Owner: alice, RunID: id, Token: res.Lease.Token, Outcome: backends.Succeeded})
		if text, err := c.Encode(); err != nil || len(text) > 6000 {
			t.Fatalf("after %d run ids a record carries %d bytes (%v)", i, len(text), err)
		}
		w.told(p.book, e, c)
	}
	reads := 0
	for i := 0; i < ids; i += 997 {
		end := int64(len(w.log))
		p.book, _, _ = NewBook(0, end-8, w.lines(end-8, end), func(first, last int64) ([]Line, error) {
			reads++
			return w.lines(first, last+1), nil
		}, nil)
		var done *backends.DoneError
		if res := ask(fmt.Sprint("2026-11-30T11:02:00Z/", i), bob); !errors.As(res.Err, &done) {
			t.Errorf("tick %d runs again: %+v", i, res)
		}
	}
	if n := ids/997 + 1; reads > 8*n {
		t.Errorf("%d run ids took %d reads", n, reads)
	}
}

// told appends a record, lets a book read it and tells what it did.
func (w *world) told(b *Book, e *Entry, c *Carry) Result {
	w.t.Helper()
	var told Result
	b.watch = func(l Line, res Result) { told = res }
	w.append(e, c)
	w.feed(b, int64(len(w.log)))
	if b.Torn() {
		w.t.Fatal("the book is torn")
	}
	return told
}

// A mark that is older than done-marks are kept does not count, wherever it was found.
func TestAMarkThatIsTooOld(t *testing.T) {
	for _, c := range []struct {
		at   int64
		want Did
	}{{1000, Granted}, {9000, Refused}} {
		s := State{}
		e := lock(alice, runID("r"))
		e.DoneAge, e.Past = 2000, &Past{AsOf: 3, Attempts: 2, At: c.at, Done: true}
		if res := s.Apply(Record{Offset: 5, Time: 10000}, e); res.Did != c.want || c.want == Granted && res.Lease.Attempt != 1 {
			t.Errorf("a mark of %d at 10000: %+v", c.at, res)
		}
	}
}

// Who keeps done-marks for a short time drops one that others still go by. A LOCK whose writer had not read of it does not run
// it again.
func TestAMarkThatAnotherHasDropped(t *testing.T) {
	s, brief, again := State{}, lock(bob), lock(carol, runID("r"))
	brief.DoneAge, again.Past = 100, &Past{AsOf: 0}
	for i, st := range []step{
		{1000, 0, lock(alice, runID("r")), "granted"}, {1001, 0, release(alice, 1000, backends.Succeeded), "ended"},
		{2000, 0, brief, "granted"}, {2001, 0, release(bob, 2000, backends.Failed), "ended"}, {2002, 0, again, "stale"},
	} {
		if got := told(s.Apply(Record{Offset: int64(i), Time: st.at}, st.e)); got != st.want {
			t.Fatalf("record %d: %s, want %s", i, got, st.want)
		}
	}
}
