package ledger

import (
	"errors"
	"fmt"
	"slices"
)

// Line is a record with what it says. Entry is nil where it says nothing about a key.
type Line struct {
	Record
	Entry *Entry
	Carry *Carry // nil until it is needed: of most lines it never is, and it is the larger part
}

// open reads the Carry. A record without one that can be read says nothing.
func (l *Line) open() {
	if l.Entry == nil || l.Carry != nil {
		return
	}
	var err error
	if l.Carry, err = DecodeCarry(l.Record); err != nil {
		l.Entry, l.Carry = nil, nil
	}
}

// Read makes a Line of a record. The error is ErrNewer: what the record means for the lock is not known.
func Read(r Record) (Line, error) {
	e, err := Decode(r)
	switch {
	case errors.Is(err, ErrNewer):
		return Line{}, fmt.Errorf("the record at offset %d: %w", r.Offset, err)
	case err != nil, e.Kind == Clock:
		return Line{Record: r}, nil
	}
	return Line{Record: r, Entry: e}, nil
}

// ErrHole means that records are missing where none can be: the log has been compacted, or its end was lost.
var ErrHole = errors.New("records are missing in the log")

// Source gives back records by their offsets: at least those from first to last that the log has. It may give more.
type Source func(first, last int64) ([]Line, error)

// Book is a reader of one partition that has read it, or knows all that matters of it, up to some offset. It is not safe
// for concurrent use.
type Book struct {
	start  int64 // of the log
	next   int64 // the offset to go on with
	root   Node
	pages  map[string]*Page
	recent map[int64]Line
	read   Source
	watch  func(Line, Result)
	torn   bool
}

// recentLines is how many of the last lines are kept, at least, so that they need not be read again.
const recentLines = 256

// NewBook begins a book at the end of a log that begins at start. tail is all lines from first to the end. Where they do
// not reach back far enough the book is nil, and the second result is the offset from which more are needed.
//
// watch is called with each record of a followed key, and what it did, as it is replayed; also with those before the end
// that are needed to open a page. It must not keep the lease.
func NewBook(start, first int64, tail []Line, read Source, watch func(Line, Result)) (*Book, int64, error) {
	base := latest(tail)
	b := &Book{start: start, next: first, pages: map[string]*Page{}, recent: map[int64]Line{}, read: read, watch: watch}
	switch {
	case base != nil && max(base.AsOf+1, start) >= first:
		b.next = max(base.AsOf+1, start)
		if len(base.Index) > 0 {
			b.root = base.Index[0].clone()
		}
	case first > start:
		need := max(start, first-int64(4*len(tail))-32)
		if base != nil {
			need = max(need, base.AsOf+1)
		}
		return nil, need, nil
	}
	for _, l := range tail {
		if l.Offset < b.next {
			b.recent[l.Offset] = l
		} else if err := b.Feed(l); err != nil {
			return nil, 0, err
		}
	}
	return b, 0, nil
}

// latest is what the writer knew who had read most.
func latest(tail []Line) *Carry {
	var base *Carry
	for i := len(tail) - 1; i >= 0; i-- {
		l := &tail[i]
		if base != nil && l.Offset <= base.AsOf+1 {
			break // a writer knows of nothing behind its record
		}
		if l.open(); l.Carry != nil && (base == nil || l.Carry.AsOf > base.AsOf) {
			base = l.Carry
		}
	}
	return base
}

// Next is the offset of the record that Feed waits for.
func (b *Book) Next() int64 { return b.next }

// Start is where the log begins, as far as is known.
func (b *Book) Start() int64 { return b.start }

// Torn tells that a record contradicts what this book knows: its writer saw another log. Whatever the reason (the log was
// cut, or its end lost), this book is of no more use, and a new one has to be begun.
func (b *Book) Torn() bool { return b.torn }

// Cut says that the log now begins at start. Where it begins behind all that the book has read, of whatever or of a key that
// it follows, the book is of no use: it would bring back what somebody has cut off.
func (b *Book) Cut(start int64) {
	if start <= b.start {
		return
	}
	b.start = start
	b.torn = b.torn || start >= b.next
	for _, p := range b.pages {
		b.torn = b.torn || p.state.Known() && p.last < start
	}
}

// Feed reads the next record. One that was read before is passed over. The error is ErrHole.
func (b *Book) Feed(l Line) error {
	switch {
	case l.Offset < b.next:
		return nil
	case l.Offset > b.next:
		return fmt.Errorf("%w: after offset %d comes %d", ErrHole, b.next-1, l.Offset)
	}
	b.next++
	l.open()
	b.keep(l)
	if l.Entry == nil {
		return nil
	}
	b.root.add(byKey, l, 0)
	for _, p := range b.pages {
		p.path.add(byKey, p.hash, l)
		if p.key == l.Entry.Key {
			b.torn = p.feed(l, b) || b.torn
		}
	}
	return nil
}

func (b *Book) keep(l Line) {
	b.recent[l.Offset] = l
	if len(b.recent) > 4*recentLines {
		for offset := range b.recent {
			if offset < b.next-recentLines {
				delete(b.recent, offset)
			}
		}
	}
}

// lines are those from first to last that the log still has.
func (b *Book) lines(first, last int64) ([]Line, error) {
	var found []Line
	for offset := max(first, b.start); offset <= last; offset++ {
		l, ok := b.recent[offset]
		if !ok {
			more, err := b.read(offset, last)
			if err != nil {
				return nil, err
			}
			for _, m := range more {
				b.recent[m.Offset] = m
			}
			if l, ok = b.recent[offset]; !ok {
				return nil, fmt.Errorf("%w: there is none at offset %d", ErrHole, offset)
			}
		}
		if l.Entry != nil && l.Carry == nil {
			l.open()
			b.recent[offset] = l
		}
		found = append(found, l)
	}
	return found, nil
}

func (b *Book) line(offset int64) (Line, error) {
	found, err := b.lines(offset, offset)
	if err != nil || len(found) == 0 {
		return Line{}, err
	}
	return found[0], nil
}

// Page opens the book at a key and follows it from then on. A key without records has an empty page.
func (b *Book) Page(key string) (*Page, error) {
	if p := b.pages[key]; p != nil {
		return p, nil
	}
	offset, way, err := b.root.find(byKey, key, b.start, b.line)
	if err != nil {
		return nil, err
	}
	p := &Page{key: key, hash: byKey.hash(key), path: way, ids: noIDs()}
	p.remember(b.next - 1)
	if offset >= 0 {
		if err := p.load(b, offset); err != nil {
			return nil, err
		}
	}
	b.pages[key] = p
	return p, nil
}

// State is a key's state, without following it.
func (b *Book) State(key string) (*State, error) {
	if p := b.pages[key]; p != nil {
		return &p.state, nil
	}
	p, err := b.Page(key)
	if err != nil {
		return nil, err
	}
	b.Close(key)
	return &p.state, nil
}

// Close ends following a key.
func (b *Book) Close(key string) { delete(b.pages, key) }

// Keys are all keys of the partition, in byte order.
func (b *Book) Keys() ([]string, error) {
	all := map[string]bool{}
	err := b.root.keys(b.start, 0, b.line, func(key string, _ int64) { all[key] = true })
	if err != nil {
		return nil, err
	}
	keys := make([]string, 0, len(all))
	for key := range all {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys, nil
}

// Page is what a book knows of one key.
type Page struct {
	key   string
	hash  hash
	state State
	last  int64 // the offset of the key's last record, if the state is known
	path  path
	snaps []snap
	ids   Node              // the root of the index of run ids
	ways  map[string]*idWay // to the run ids that were asked for last
}

// snap is a state as of an offset.
type snap struct {
	asOf int64
	text string
}

// maxSnaps is how many of a key's last states are kept, to compare what writers knew with.
const maxSnaps = 64

// State is the key's state after all records that the book has read. It must not be changed.
func (p *Page) State() *State { return &p.state }

// Carry is what the book knows, for a record of the page's key that is to be appended next. Of a LOCK with a run id it
// also writes into the record what is known of that.
func (b *Book) Carry(p *Page, e *Entry) (*Carry, error) {
	c := &Carry{AsOf: b.next - 1, Index: p.path.clone()}
	if p.state.Known() {
		c.State = p.state.Clone()
	}
	for i := range c.Index {
		c.Index[i].drop(b.start)
	}
	return c, b.carryIDs(c, p, e)
}

// load replays what led to the key's last record.
func (p *Page) load(b *Book, offset int64) error {
	last, since, err := b.before(p.key, offset)
	if err != nil {
		return err
	}
	p.snaps = nil
	if last.State != nil {
		p.state = *last.State.Clone()
	}
	if len(last.IDs) > 0 {
		p.ids = idRoot(last.IDs[0])
	}
	p.remember(last.AsOf)
	for _, l := range since {
		p.apply(l, b)
	}
	return nil
}

// before is what the writer of the key's record at that offset knew, and the key's records from there on up to it.
func (b *Book) before(key string, offset int64) (*Carry, []Line, error) {
	found, err := b.lines(offset, offset)
	if err != nil {
		return nil, nil, err
	}
	if len(found) == 0 || found[0].Entry == nil || found[0].Entry.Key != key {
		return nil, nil, fmt.Errorf("the index is wrong about offset %d", offset)
	}
	last := found[0].Carry
	if found, err = b.lines(max(last.AsOf+1, b.start), offset); err != nil {
		return nil, nil, err
	}
	since := slices.DeleteFunc(found, func(l Line) bool { return l.Entry == nil || l.Entry.Key != key })
	i := contradiction(last, since)
	if i < 0 {
		return last, since, nil
	}
	first, led, err := b.before(key, since[i].Offset)
	return first, append(led, since[i+1:]...), err
}

// contradiction is the first record whose writer, as of the same offset, knew something else than follows from what the
// writer of the last one knew. That happens only where the log was cut, and one of the two had not read what is left of it.
// The earlier record counts: others have read it, and gone by it, when the later one was not there yet. -1: there is none.
func contradiction(last *Carry, since []Line) int {
	p := Page{}
	if last.State != nil {
		p.state = *last.State.Clone()
	}
	p.remember(last.AsOf)
	for i, l := range since[:len(since)-1] {
		// Nothing comes of something: who has found nothing, though it looked later, did so behind a cut.
		lost := l.Carry.AsOf < last.AsOf && l.Carry.State.Known() && !last.State.Known()
		if lost || !p.agrees(l.Carry) {
			return i
		}
		p.state.Apply(l.Record, l.Entry)
		p.remember(l.Offset)
	}
	return -1
}

// feed replays one record, unless it contradicts what is known: its writer had read up to an offset, and what it knew of
// the key there is not what we know. Nor must it have known anything where we have found no record of the key: of what has
// been cut off this is the first that comes, and all who read it have to believe it.
func (p *Page) feed(l Line, b *Book) (torn bool) {
	if !p.agrees(l.Carry) || !p.state.Known() && l.Carry.State.Known() {
		return true
	}
	p.apply(l, b)
	return false
}

func (p *Page) apply(l Line, b *Book) {
	res := p.state.Apply(l.Record, l.Entry)
	p.touched(l)
	p.last = l.Offset
	p.remember(l.Offset)
	if b.watch != nil {
		b.watch(l, res)
	}
}

// agrees compares what a writer knew with what was known here as of the same offset, where that is still remembered.
func (p *Page) agrees(c *Carry) bool {
	for i := len(p.snaps) - 1; i >= 0; i-- {
		if p.snaps[i].asOf <= c.AsOf {
			return p.snaps[i].text == c.State.Text()
		}
	}
	return true
}

func (p *Page) remember(asOf int64) {
	p.snaps = append(p.snaps, snap{asOf, p.state.Text()})
	if len(p.snaps) > 2*maxSnaps {
		p.snaps = slices.Delete(p.snaps, 0, len(p.snaps)-maxSnaps)
	}
}

// drop forgets what the log no longer has.
func (n *Node) drop(start int64) {
	for k, offset := range n.Keys {
		if offset < start {
			delete(n.Keys, k)
		}
	}
	for kid, refs := range n.Kids {
		n.Kids[kid] = slices.DeleteFunc(refs, func(r int64) bool { return r < start })
	}
}
