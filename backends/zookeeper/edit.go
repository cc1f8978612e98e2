package zookeeper

import (
	"strconv"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

// edit is a change of a key: its state, as it will be, and what else belongs to it.
type edit struct {
	b     *backend
	v     *view
	ops   []any
	trims map[int]int64 // by index in ops: the number of the record that is too old
	place int           // index in ops of the owner's place in the queue, -1
	runs  bool          // a record was added
	owner string        // whose place it is
}

func (b *backend) edit(v *view) *edit { return &edit{b: b, v: v, trims: map[int]int64{}, place: -1} }

func (e *edit) create(path string, data []byte, flags int32) {
	e.ops = append(e.ops, &zk.CreateRequest{Path: path, Data: data, Acl: e.b.c.acl(), Flags: flags})
}

func (e *edit) delete(path string) {
	e.ops = append(e.ops, &zk.DeleteRequest{Path: path, Version: -1})
}

func (e *edit) set(path string, data []byte, version int32) {
	e.ops = append(e.ops, &zk.SetDataRequest{Path: path, Data: data, Version: version})
}

// lease makes the ephemeral node of a lease in the session that asks, anew where it is there.
func (e *edit) lease(l *slot) {
	path := e.v.node(l)
	if e.v.alive[l.Owner] {
		e.delete(path)
	}
	e.create(path, strconv.AppendInt(nil, l.Token, 10), zk.FlagEphemeral)
}

// proveGone has the transaction fail where the node of a lease is there: the leader's word, where a view has a follower's.
func (e *edit) proveGone(l *slot) {
	e.create(e.v.node(l), nil, zk.FlagPersistent)
	e.delete(e.v.node(l))
}

// endLease takes the node of a live lease away. The transaction fails where it has just expired.
func (e *edit) endLease(l *slot) {
	if e.v.live(l) {
		e.delete(e.v.node(l))
	}
}

// remember adds the record of a run that has ended.
func (e *edit) remember(r backends.Record) {
	s := &e.v.s
	e.create(runPath(e.v.path, s.Next), encodeJSON(r), zk.FlagPersistent)
	s.Next++
	e.runs = true
}

// mostTrims keeps a transaction small where a limit was lowered; the rest goes with the next ones.
const mostTrims = 50

// trim takes records away that are too many or too old, and marks how far the records of now reach.
func (e *edit) trim(keep backends.Keep) {
	s, at := &e.v.s, e.v.at()
	first := max(s.First, s.Next-int64(keep.Runs))
	for len(s.Marks) > 0 && s.Marks[0].At < at-inMicros(keep.Age) {
		first = max(first, s.Marks[0].N)
		s.Marks = s.Marks[1:]
	}
	if n := len(s.Marks); n == 0 || s.Marks[n-1].At <= at-inMicros(keep.Age)/16 {
		s.Marks = append(s.Marks, mark{s.Next, at})
	}
	for n := 0; s.First < first && n < mostTrims; n++ {
		if !e.v.gone[s.First] {
			e.trims[len(e.ops)] = s.First
			e.delete(runPath(e.v.path, s.First))
		}
		s.First++
	}
	// A mark that was used up while its records could not all go at once is needed again.
	if s.First < first {
		s.Marks = append([]mark{{first, at - inMicros(keep.Age) - 1}}, s.Marks...)
	}
}

// count notes what an outcome means for attempts and done-marks. The run id is that of the view.
func (e *edit) count(id string, o backends.Outcome) {
	r := e.v.id
	if r == nil && id != "" && o == backends.Succeeded { // somebody has taken it away
		e.v.id = &runID{Format: format, ID: id, Attempts: 1, At: e.v.at(), Done: e.v.at()}
		e.create(idPath(e.v.path, id), encodeJSON(e.v.id), zk.FlagPersistent)
	}
	switch {
	case o == backends.Succeeded:
		e.v.s.Starts = 0
		if r != nil {
			r.Done, r.At = e.v.at(), e.v.at()
			e.setID()
		}
	case o == backends.NotStarted && r != nil:
		r.Attempts, r.At = max(0, r.Attempts-1), e.v.at()
		e.setID()
	case o == backends.NotStarted && id == "":
		e.v.s.Starts = max(0, e.v.s.Starts-1)
	}
}

// start counts one more attempt.
func (e *edit) start(id string) int {
	if id == "" {
		e.v.s.Starts++
		return e.v.s.Starts
	}
	r := e.v.id
	if r == nil || e.v.at()-r.At > inMicros(e.b.c.keep.DoneAge) {
		e.v.id = &runID{Format: format, ID: id, Attempts: 1, At: e.v.at()}
		if r != nil {
			e.setID()
		} else {
			e.create(idPath(e.v.path, id), encodeJSON(e.v.id), zk.FlagPersistent)
		}
		return 1
	}
	r.Attempts++
	r.At = e.v.at()
	e.setID()
	return r.Attempts
}

func (e *edit) setID() { e.set(idPath(e.v.path, e.v.id.ID), encodeJSON(e.v.id), e.v.idVersion) }
