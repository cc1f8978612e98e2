package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockrun/lockrun/backends"
)

// world is a log, its broker, and real time, for tests that let many writers loose on it.
type world struct {
	t      *testing.T
	rnd    *rand.Rand
	log    []Record
	read   []Line // of log, as far as somebody has read it
	start  int64
	real   int64 // ms
	offset int64 // of the leader's clock from real time
	epoch  int32
	seq    int64
	ids    []string // what runs are called; nil: mostly nothing
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), real: 1_700_000_000_000}
}

// seeds is how many worlds a test is tried in.
func seeds(n uint64) uint64 { return max(1, n/seedsOf) }

// append is what the leader does.
func (w *world) append(e *Entry, c *Carry) Record {
	w.t.Helper()
	value, err := e.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	r := Record{Offset: int64(len(w.log)), Time: w.real + w.offset, Epoch: w.epoch, Key: e.RecordKey(), Value: value}
	if c != nil {
		if r.Carry, err = c.Encode(); err != nil {
			w.t.Fatal(err)
		}
	}
	w.log = append(w.log, r)
	return r
}

func (w *world) lines(first, end int64) []Line {
	w.t.Helper()
	for _, r := range w.log[len(w.read):] {
		l, err := Read(r)
		if err != nil {
			w.t.Fatal(err)
		}
		w.read = append(w.read, l)
	}
	return slices.Clone(w.read[max(first, w.start):max(end, w.start)])
}

// book opens a book at an offset, having read at first only the last n records before it.
func (w *world) book(end, n int64, watch func(Line, Result)) *Book {
	w.t.Helper()
	read := func(first, last int64) ([]Line, error) { return w.lines(first, last+1), nil }
	for first := max(w.start, end-n); ; {
		b, need, err := NewBook(w.start, first, w.lines(first, end), read, watch)
		if err != nil {
			w.t.Fatal(err)
		}
		if b != nil {
			return b
		}
		if need >= first {
			w.t.Fatalf("a book that has read from offset %d wants more from %d", first, need)
		}
		first = need
	}
}

// feed lets a book read up to end.
func (w *world) feed(b *Book, end int64) {
	w.t.Helper()
	for _, l := range w.lines(b.Next(), end) {
		if err := b.Feed(l); err != nil {
			w.t.Fatal(err)
		}
	}
}

// states replays the whole log up to end, without looking at what any record carries.
func (w *world) states(end int64) map[string]*State {
	all := map[string]*State{}
	for _, l := range w.lines(0, end) {
		if l.Entry == nil {
			continue
		}
		if all[l.Entry.Key] == nil {
			all[l.Entry.Key] = &State{}
		}
		all[l.Entry.Key].Apply(l.Record, l.Entry)
	}
	return all
}

// behind is the offset that follows the last record of a key.
func (w *world) behind(key string) int64 {
	lines := w.lines(w.start, int64(len(w.log)))
	for len(lines) > 0 && (lines[len(lines)-1].Entry == nil || lines[len(lines)-1].Entry.Key != key) {
		lines = lines[:len(lines)-1]
	}
	return w.start + int64(len(lines))
}

// same compares what a book knows with a replay of the whole log.
func (w *world) same(what string, b *Book, want map[string]*State, keys []string) {
	w.t.Helper()
	if b.Torn() {
		w.t.Fatalf("%s: the book is torn", what)
	}
	for _, key := range keys {
		got, err := b.State(key)
		if err != nil {
			w.t.Fatalf("%s: %q: %v", what, key, err)
		}
		if got.Text() != want[key].Text() {
			w.t.Fatalf("%s: at offset %d %q is\n%s\nand by a full replay\n%s", what, b.Next(), key, got.Text(), want[key].Text())
		}
	}
}

// writer is one process: it has a book, which may be far behind, and writes what it has signed long ago.
type writer struct {
	w     *world
	name  string
	n     int64
	book  *Book
	owner map[string]string // by key, of what it asks for
	token map[string]int64
	runID map[string]string // by owner, of what it has asked for
}

func (w *world) writer(i int) *writer {
	return &writer{w: w, name: fmt.Sprintf("writer%d", i), owner: map[string]string{}, token: map[string]int64{}, runID: map[string]string{}}
}

// sign prepares an entry with what the writer's book knows, which may be old.
func (p *writer) sign(e *Entry) (*Entry, *Carry) {
	p.w.t.Helper()
	if p.book == nil || p.book.Torn() {
		p.book = p.w.book(int64(len(p.w.log)), 1+p.w.rnd.Int64N(40), nil)
	}
	p.n++
	e.Writer, e.N = p.name, p.n
	page, err := p.book.Page(e.Key)
	if err != nil {
		p.w.t.Fatal(err)
	}
	defer func() {
		if len(p.book.pages) > 10 { // it does not follow every key for ever
			clear(p.book.pages)
		}
	}()
	c, err := p.book.Carry(page, e)
	if err != nil {
		p.w.t.Fatal(err)
	}
	return e, c
}

// any is an operation such as somebody might ask for.
func (p *writer) any(key string) *Entry {
	rnd := p.w.rnd
	owner := p.owner[key]
	if owner == "" || rnd.IntN(4) == 0 {
		owner = fmt.Sprintf("%032x", rnd.Uint64())
	}
	ids := p.w.ids
	if ids == nil {
		ids = []string{"", "", "a", "b", fmt.Sprint("tick-", rnd.IntN(200))}
	}
	switch rnd.IntN(12) {
	case 0, 1, 2, 3, 4:
		p.owner[key] = owner
		if _, asked := p.runID[owner]; !asked {
			p.runID[owner] = ids[rnd.IntN(len(ids))]
		}
		return &Entry{Kind: Lock, Key: key, Owner: owner, TTL: 100 + rnd.Int64N(2000), Hold: max(0, rnd.Int64N(3000)-2000),
			Slots: 1 + rnd.IntN(3), RunID: p.runID[owner], Holder: "h", Last: rnd.IntN(2) == 0}
	case 5, 6, 7:
		return &Entry{Kind: Heartbeat, Key: key, Owner: owner, Token: max(p.token[key], 1), TTL: 100 + rnd.Int64N(2000)}
	case 8, 9:
		outcomes := []backends.Outcome{backends.Succeeded, backends.Failed, backends.NotStarted}
		return &Entry{Kind: Release, Key: key, Owner: owner, RunID: p.runID[owner], Token: max(p.token[key], 1), Outcome: outcomes[rnd.IntN(3)], Unsure: rnd.IntN(3) == 0}
	case 10:
		others := []*Entry{{Kind: Break, By: "x"}, {Kind: Pause, By: "x", For: rnd.Int64N(500)}, {Kind: Resume},
			{Kind: Abandon, Owner: owner, RunID: p.runID[owner], Unsure: rnd.IntN(2) == 0}, {Kind: Note, Record: &backends.Record{Key: key, Outcome: backends.Skipped}}}
		e := others[rnd.IntN(len(others))]
		e.Key = key
		return e
	}
	return &Entry{Kind: Heartbeat, Key: key, Owner: fmt.Sprintf("%032x", rnd.Uint64()), Token: 7, TTL: 5}
}

// learn lets the writer hear what has become of what it did.
func (p *writer) learn(key string, states map[string]*State) {
	if s := states[key]; s != nil {
		if l := s.Owned(p.owner[key]); l != nil {
			p.token[key] = l.Token
		}
	}
}

// disturb is everything else that happens to a log.
func (w *world) disturb() {
	switch w.rnd.IntN(30) {
	case 0:
		w.epoch++
		w.offset = w.rnd.Int64N(1200) - 600
	case 1:
		w.offset -= w.rnd.Int64N(800) // the leader's clock is set back
	case 2:
		w.log = append(w.log, Record{Offset: int64(len(w.log)), Time: w.real, Epoch: w.epoch, Key: []byte("x"), Value: []byte(`{"foreign":1}`)})
	case 3:
		w.seq++
		e := &Entry{Kind: Clock, Writer: "clock", N: w.seq}
		w.append(e, nil)
	case 4:
		if n := int64(len(w.log)); n > w.start { // a producer that repeats itself
			again := w.log[w.start+w.rnd.Int64N(n-w.start)]
			again.Offset, again.Time, again.Epoch = n, w.real+w.offset, w.epoch
			w.log = append(w.log, again)
		}
	}
	if w.rnd.IntN(3) > 0 {
		w.real += w.rnd.Int64N(200)
	}
}

// signed is a record that has not been appended yet.
type signed struct {
	e *Entry
	c *Carry
}

// run lets writers loose. Each entry is signed at one moment and appended at a later one, so that what it carries is old.
func (w *world) run(keys []string, writers, steps int, after func(Record)) {
	w.t.Helper()
	var all []*writer
	for i := range writers {
		all = append(all, w.writer(i))
	}
	var waiting []signed
	for range steps {
		w.disturb()
		p := all[w.rnd.IntN(len(all))]
		key := keys[w.rnd.IntN(len(keys))]
		if p.book != nil && w.rnd.IntN(3) > 0 {
			w.feed(p.book, int64(len(w.log)))
			if s, err := p.book.State(key); err == nil {
				p.learn(key, map[string]*State{key: s})
			}
		}
		e, c := p.sign(p.any(key))
		waiting = append(waiting, signed{e, c})
		for len(waiting) > 0 && w.rnd.IntN(3) > 0 || len(waiting) > 8 {
			i := w.rnd.IntN(len(waiting))
			s := waiting[i]
			waiting = slices.Delete(waiting, i, i+1)
			r := w.append(s.e, s.c)
			if after != nil {
				after(r)
			}
		}
	}
}

func manyKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d", i)
	}
	return keys
}
