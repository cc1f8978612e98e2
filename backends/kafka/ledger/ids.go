package ledger

import (
	"crypto/sha256"
	"encoding/base64"
)

// A key may have had half a million run ids in the time for which done-marks are kept, and its state repeats only the last
// few. The others are found as keys are, through an index in the records: each record that changes what is known of a run
// id carries, beside the path to its key, the path to that run id through an index of the key's own, and the state after
// the record that a path ends at says what is known. Two or three reads find it, or that there is nothing to find.
//
// But a record must do the same whoever replays it, from wherever in the log, and without looking for others. So it is the
// writer of a LOCK who looks, and writes what it found into the record. Of what happens between that and the append the
// state tells: all that was touched since is in it, or has been dropped from it and left its mark in State.Dropped. Then
// the writer knew too little, the LOCK does nothing, and has to be repeated.

// Past is what the writer of a LOCK knew of its run id as of an offset. Without attempts it was nothing.
type Past struct {
	AsOf     int64 `json:"as_of"`
	Attempts int   `json:"attempts,omitempty"`
	At       int64 `json:"at_ms,omitempty"`
	Done     bool  `json:"done,omitempty"`
}

func (p *Past) sound(r Record) bool {
	ok := func(n int64) bool { return n >= 0 && n < maxAmount }
	return p == nil || p.AsOf >= -1 && p.AsOf < r.Offset && ok(int64(p.Attempts)) && ok(p.At)
}

// recall takes into the state what the writer of a LOCK knew of its run id, where the state does not know better. It is
// false where that may be out of date.
func (s *State) recall(r Record, e *Entry, t int64) bool {
	p := e.Past
	if e.RunID == "" || p == nil || s.run(e.RunID) != nil {
		return true
	}
	if p.AsOf+1 < s.Dropped {
		return false
	}
	if (p.Attempts > 0 || p.Done) && p.At >= t-e.doneAge() {
		s.keep(Run{ID: e.RunID, Attempts: p.Attempts, At: p.At, Done: p.Done, Offset: r.Offset})
	}
	return true
}

// byID is the index of a key's run ids. Its root is one reference wide, so that records which are about no run id pay
// little for handing it on.
var byID = &tree{
	name:  func(e *Entry) string { return idName(e.RunID) },
	nodes: func(c *Carry) []Node { return c.IDs },
	leaf:  16,
	skip:  1,
}

// longestID is the longest run id that stands for itself in the index. It is shorter than a name made of a hash.
const longestID = 21

func idName(id string) string {
	if len(id) <= longestID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

// idRoot is a root of the index of run ids, which is a branch from the beginning.
func idRoot(n Node) Node {
	n = n.clone()
	if n.Keys = nil; n.Kids == nil {
		n.Kids = make(kids, fanout)
	}
	return n
}

func noIDs() Node { return idRoot(Node{}) }

// idWay is the path to a run id that is followed.
type idWay struct {
	name string
	hash hash
	path path
}

// maxWays bounds how many run ids are followed, of each key.
const maxWays = 8

// touched takes a record that has just been replayed into the index, if it has changed what is known of its run id.
func (p *Page) touched(l Line) {
	id := l.Entry.RunID
	if run := p.state.run(id); id == "" || run == nil || run.Offset != l.Offset {
		return
	}
	p.ids.add(byID, l, 0)
	for _, w := range p.ways {
		w.path.add(byID, w.hash, l)
	}
}

// way finds a run id in the index and follows it from then on.
func (b *Book) way(p *Page, id string) (*idWay, error) {
	if w := p.ways[id]; w != nil {
		return w, nil
	}
	name := idName(id)
	_, found, err := p.ids.find(byID, name, b.start, b.line)
	if err != nil {
		return nil, err
	}
	if len(p.ways) >= maxWays || p.ways == nil {
		p.ways = map[string]*idWay{}
	}
	w := &idWay{name: name, hash: byID.hash(name), path: found}
	p.ways[id] = w
	return w, nil
}

// carryIDs adds what a record has to say of run ids.
func (b *Book) carryIDs(c *Carry, p *Page, e *Entry) error {
	if e.RunID == "" {
		c.IDs = []Node{p.ids.clone()}
	} else {
		w, err := b.way(p, e.RunID)
		if err != nil {
			return err
		}
		c.IDs = w.path.clone()
		if e.Kind == Lock {
			if e.Past, err = b.past(p, w, e.RunID); err != nil {
				return err
			}
		}
	}
	for i := range c.IDs {
		c.IDs[i].drop(b.start)
	}
	if len(c.IDs) == 1 && c.IDs[0].empty() {
		c.IDs = nil
	}
	return nil
}

// past is what is known of a run id: by the state, or as of the last record that touched it.
func (b *Book) past(p *Page, w *idWay, id string) (*Past, error) {
	past := &Past{AsOf: b.next - 1}
	run := p.state.run(id)
	if offset, ok := w.path[len(w.path)-1].Keys[w.name]; run == nil && ok && offset >= b.start {
		carry, since, err := b.before(p.key, offset)
		if err != nil {
			return nil, err
		}
		s := &State{}
		if carry.State != nil {
			s = carry.State.Clone()
		}
		for _, l := range since {
			s.Apply(l.Record, l.Entry)
		}
		run = s.run(id)
	}
	if run != nil {
		past.Attempts, past.At, past.Done = run.Attempts, run.At, run.Done
	}
	return past, nil
}
