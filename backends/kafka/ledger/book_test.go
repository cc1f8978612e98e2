package ledger

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lockrun/lockrun/backends"
)

// Whoever begins to read at whatever record comes to the same state as a reader of the whole log, and goes on agreeing with
// it: with few keys and many, with writers who have not read for long, repeated records, changes of the leader and clocks
// that are set back.
func TestAReaderFromAnywhereAgrees(t *testing.T) {
	for _, c := range []struct {
		keys, writers, steps int
		seeds                uint64
	}{{1, 4, 250, 6}, {3, 8, 250, 6}, {40, 6, 400, 4}, {600, 5, 1200, 2}} {
		t.Run(fmt.Sprint(c.keys, " keys"), func(t *testing.T) {
			for seed := range seeds(c.seeds) {
				w := newWorld(t, seed)
				keys := manyKeys(c.keys)
				w.run(keys, c.writers, c.steps, nil)
				end := int64(len(w.log))
				all := w.states(end)
				for range 12 {
					at := 1 + w.rnd.Int64N(end)
					b := w.book(at, 1+w.rnd.Int64N(20), nil)
					probe := []string{keys[w.rnd.IntN(len(keys))], keys[w.rnd.IntN(len(keys))], keys[w.rnd.IntN(len(keys))]}
					w.same(fmt.Sprint("seed ", seed), b, w.states(at), probe)
					for _, key := range probe {
						if _, err := b.Page(key); err != nil { // follows it from now on
							t.Fatal(err)
						}
					}
					w.feed(b, end)
					w.same(fmt.Sprint("seed ", seed, ", begun at ", at), b, all, append(probe, keys[:min(len(keys), 20)]...))
				}
			}
		})
	}
}

func TestTheIndexKnowsAllKeys(t *testing.T) {
	for seed := range seeds(2) {
		w := newWorld(t, seed)
		w.run(manyKeys(1500), 5, 2000, nil)
		all := w.states(int64(len(w.log)))
		got, err := w.book(int64(len(w.log)), 8, nil).Keys()
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for key := range all {
			want = append(want, key)
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: %d keys, want %d", seed, len(got), len(want))
		}
	}
}

// What a record carries must not grow with the log, nor much with the keys.
func TestWhatARecordCarriesStaysSmall(t *testing.T) {
	size := func(keys, steps int) int {
		w := newWorld(t, 5)
		w.run(manyKeys(keys), 3, steps, nil)
		p := w.writer(99)
		_, c := p.sign(&Entry{Kind: Resume, Key: "fresh"})
		text, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return len(text)
	}
	if n := size(20, 1000); n > 700 {
		t.Errorf("%d bytes with 20 keys", n)
	}
	if n := size(2000, 3000); n > 2500 {
		t.Errorf("%d bytes with 2000 keys", n)
	}
}

// A key is found by a few reads, however long the log is.
func TestAKeyIsFoundByFewReads(t *testing.T) {
	w := newWorld(t, 3)
	keys := manyKeys(1500)
	w.run(keys, 4, 3000, nil)
	reads := 0
	end := int64(len(w.log))
	tail := w.lines(end-32, end)
	b, _, err := NewBook(0, end-32, tail, func(first, last int64) ([]Line, error) {
		reads++
		return w.lines(first, max(last, first+3)+1), nil
	}, nil)
	if err != nil || b == nil {
		t.Fatal(b, err)
	}
	const probes = 100
	for i := range probes {
		if _, err := b.State(keys[i*13]); err != nil {
			t.Fatal(err)
		}
		clear(b.recent)
	}
	if reads > probes*8 {
		t.Errorf("%d keys took %d reads", probes, reads)
	}
}

// After a cut, of whatever, those who read from then on agree among themselves, and those who knew more find out.
func TestAfterACut(t *testing.T) {
	for seed := range seeds(25) {
		w := newWorld(t, seed)
		keys := manyKeys(3)
		w.run(keys, 4, 60, nil)
		knew := w.book(int64(len(w.log)), 10, nil)
		w.start = w.rnd.Int64N(int64(len(w.log)) + 1)
		knew.Cut(w.start)
		if want := w.start == int64(len(w.log)) && w.start > 0; knew.Torn() != want {
			t.Errorf("seed %d: cut at %d of %d, torn: %v", seed, w.start, len(w.log), knew.Torn())
		}
		w.run(keys, 4, 60, nil) // by writers who began after the cut
		end := int64(len(w.log))
		first := w.book(end, 5, nil)
		for _, key := range keys {
			want, err := first.State(key)
			if err != nil {
				t.Fatal(err)
			}
			for n := int64(1); n < 200; n += 37 {
				b := w.book(end, n, nil)
				got, err := b.State(key)
				if err != nil || got.Text() != want.Text() {
					t.Fatalf("seed %d, cut at %d: %q is\n%s\nand, read from %d back,\n%s (%v)", seed, w.start, key, want.Text(), n, got.Text(), err)
				}
			}
		}
	}
}

// What was decided after a cut is not undone by a record of somebody who had read nothing of what is left: of two, the
// first counts, for whoever reads from wherever.
func TestALateRecordBringsNothingBack(t *testing.T) {
	for seed := range seeds(100) {
		w := newWorld(t, seed)
		keys := manyKeys(1)
		w.run(keys, 3, 30, nil)
		old := w.writer(99)
		late, knew := old.sign(old.any(keys[0]))
		w.start = int64(len(w.log))
		w.run(keys, 2, 1+int(seed%7), nil)
		w.append(late, knew)
		w.run(keys, 2, 10, nil)
		s := &State{}
		for at := w.start + 1; at <= int64(len(w.log)); at++ {
			l := w.lines(at-1, at)[0]
			switch {
			case l.Entry == nil:
			case !s.Known(): // the first that is left of the key: what its writer knew is believed
				first, err := w.book(at, 1, nil).State(keys[0])
				if err != nil {
					t.Fatal(err)
				}
				s = first.Clone()
			default:
				s.Apply(l.Record, l.Entry)
			}
			for _, n := range []int64{1, 3, 100} {
				got, err := w.book(at, n, nil).State(keys[0])
				if err != nil || got.Text() != s.Text() {
					t.Fatalf("seed %d: at offset %d the key is, read from %d back,\n%s (%v)\nand was\n%s", seed, at, n, got.Text(), err, s.Text())
				}
			}
		}
	}
}

// Who follows a key while it is cut off knows at each record what a new reader finds, however late a record comes whose
// writer had read what is gone. Else the one would be granted what the other takes for held.
func TestAfterACutAllKnowTheSame(t *testing.T) {
	begun := 0
	for seed := range seeds(60) {
		w := newWorld(t, seed)
		keys := manyKeys(2)
		w.run(keys, 3, 8+int(seed%16), nil)
		old := w.writer(99)
		late, knew := old.sign(old.any(keys[0]))
		w.run(keys, 3, 8, nil)
		if w.start = int64(len(w.log)); seed%2 == 0 {
			w.start = w.behind(keys[0]) // others' records stay
		}
		follower := w.book(int64(len(w.log)), 1, nil)
		arrives := w.rnd.IntN(6)
		for i := range 12 {
			if _, err := follower.Page(keys[0]); err != nil {
				t.Fatal(err)
			}
			if i == arrives {
				w.append(late, knew)
			} else {
				w.run(keys[w.rnd.IntN(2):], 1, 1, nil)
			}
			end := int64(len(w.log))
			if w.feed(follower, end); follower.Torn() {
				follower, begun = w.book(end, 3, nil), begun+1
			}
			for _, n := range []int64{1, 4, 100} {
				got, err := w.book(end, n, nil).State(keys[0])
				want, err2 := follower.State(keys[0])
				if err != nil || err2 != nil || got.Text() != want.Text() {
					t.Fatalf("seed %d: at offset %d, cut at %d, the key is, read from %d back,\n%s (%v)\nand for who has followed it\n%s (%v)",
						seed, end, w.start, n, got.Text(), err, want.Text(), err2)
				}
			}
		}
	}
	if begun == 0 {
		t.Error("nobody had to begin anew: this shows nothing")
	}
}

// A beat that comes after a cut is the first record that is left of its lease, and another asks for that who has looked
// before, and found nothing. The beat came first.
func TestWhoHadFoundNothingComesSecond(t *testing.T) {
	w := newWorld(t, 1)
	p, q := w.writer(1), w.writer(2)
	lock := func(p *writer, owner string) (*Entry, *Carry) {
		return p.sign(&Entry{Kind: Lock, Key: "k", Owner: owner, TTL: 60000, Slots: 1})
	}
	w.append(lock(p, alice))
	w.feed(p.book, 1)
	late, knew := p.sign(&Entry{Kind: Heartbeat, Key: "k", Owner: alice, Token: 1, TTL: 60000})
	w.append(q.sign(&Entry{Kind: Resume, Key: "other"}))
	w.start, q.book = 2, nil
	follower := w.book(2, 1, nil)
	if _, err := follower.Page("k"); err != nil {
		t.Fatal(err)
	}
	rival, nothing := lock(q, bob)
	w.append(late, knew)
	w.append(rival, nothing)
	for end := int64(3); end <= 4; end++ {
		if w.feed(follower, end); follower.Torn() {
			follower = w.book(end, 1, nil)
		}
		for _, b := range []*Book{follower, w.book(end, 1, nil), w.book(end, 9, nil)} {
			if s, err := b.State("k"); err != nil || len(s.Leases) != 1 || s.Leases[0].Owner != alice {
				t.Errorf("after %d records: %s (%v)", end, s.Text(), err)
			}
		}
	}
}

// Of a lease whose other records are gone, one beat is enough for new readers; of one whose records are all gone, nothing is
// left, and who knew it finds out before writing.
func TestOneRecordIsEnough(t *testing.T) {
	w := newWorld(t, 1)
	p := w.writer(1)
	e, c := p.sign(&Entry{Kind: Lock, Key: "k", Owner: backends.NewOwner(), TTL: 60000, Slots: 1, Holder: "a"})
	w.append(e, c)
	w.feed(p.book, 1)
	w.append(p.sign(&Entry{Kind: Heartbeat, Key: "k", Owner: e.Owner, Token: 1, TTL: 60000}))
	w.feed(p.book, 2)
	w.start = 1
	p.book.Cut(1)
	s, err := w.book(2, 10, nil).State("k")
	if err != nil || len(s.Leases) != 1 || s.Leases[0].Owner != e.Owner || p.book.Torn() {
		t.Errorf("after the cut the key has %s (%v); torn: %v", s.Text(), err, p.book.Torn())
	}
	q := w.writer(2)
	w.append(q.sign(&Entry{Kind: Resume, Key: "other"})) // what is left of other keys does not count
	w.feed(p.book, 3)
	w.start = 2
	p.book.Cut(2)
	s, err = w.book(3, 10, nil).State("k")
	if err != nil || s.Known() || !p.book.Torn() {
		t.Errorf("after the second cut the key has %s (%v); torn: %v", s.Text(), err, p.book.Torn())
	}
}

func TestAContradictionTearsTheBook(t *testing.T) {
	w := newWorld(t, 1)
	p, q := w.writer(1), w.writer(2)
	lock := func(p *writer) (*Entry, *Carry) {
		return p.sign(&Entry{Kind: Lock, Key: "k", Owner: backends.NewOwner(), TTL: 60000, Slots: 1})
	}
	w.append(lock(p))
	w.feed(p.book, 1)
	if _, err := p.book.Page("k"); err != nil {
		t.Fatal(err)
	}
	e, c := lock(q)
	c.AsOf, c.State = 0, nil // knows the first record, and nothing of the lease
	w.append(e, c)
	w.feed(p.book, 2)
	if !p.book.Torn() {
		t.Error("a record whose writer saw another log was believed")
	}
}

func TestAHoleIsNoLog(t *testing.T) {
	w := newWorld(t, 1)
	w.run(manyKeys(1), 2, 20, nil)
	b := w.book(3, 3, nil)
	if err := b.Feed(w.lines(4, 5)[0]); !errors.Is(err, ErrHole) {
		t.Errorf("Feed = %v, want ErrHole", err)
	}
	tail := slices.Delete(w.lines(0, 6), 2, 3)
	if _, _, err := NewBook(0, 0, tail[:2], nil, nil); err != nil {
		t.Errorf("NewBook = %v", err)
	}
	stale := tail
	for i := range stale {
		stale[i].Carry = nil // nothing says where to begin but the log itself
		stale[i].Entry = nil
	}
	if _, _, err := NewBook(0, 0, stale, nil, nil); !errors.Is(err, ErrHole) {
		t.Errorf("NewBook = %v, want ErrHole", err)
	}
}
