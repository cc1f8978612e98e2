package zookeeper

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

// query says what a view has to hold beside the key itself.
type query struct {
	runID    string // "": none
	waiters  bool
	timeless bool // the time is not asked for; where it is known anyway, it is there
}

// load reads a key in one round trip. The store's time is asked for beside it, where it is not known.
func (b *backend) load(ctx context.Context, s *session, key string, q query) (*view, error) {
	v := &view{key: key, path: b.c.keyPath(key)}
	var data, names, id, queue node
	asks := []func() error{
		func() (err error) { data, err = s.get(ctx, v.path); return },
		func() (err error) { names, err = s.children(ctx, v.path); return },
	}
	if q.runID != "" {
		asks = append(asks, func() (err error) { id, err = s.get(ctx, idPath(v.path, q.runID)); return })
	}
	if q.waiters {
		asks = append(asks, func() (err error) { queue, err = s.exists(ctx, v.path+"/"+queueName); return })
	}
	if now, ok := b.clock.read(); ok {
		v.now = now
	} else if !q.timeless {
		asks = append(asks, func() (err error) { v.now, err = b.now(ctx, s); return })
	}
	for {
		if err := parallel(len(asks), func(i int) error { return asks[i]() }); err != nil {
			return nil, err
		}
		// Both answers carry the version of the key's node. Were it not the same, one might be older than a grant and the other
		// than its lease.
		if data.found == names.found && data.stat.Version == names.stat.Version {
			break
		}
	}
	v.waiters = int(queue.stat.NumChildren)
	return v, v.read(data, names, id, q.runID)
}

// read fills a view from what was answered.
func (v *view) read(data, names, id node, run string) error {
	if !data.found {
		return nil
	}
	s, err := parseState(data.data, v.key)
	if err != nil {
		return err
	}
	v.s, v.found, v.version, v.zxid = *s, true, data.stat.Version, data.stat.Mzxid
	v.settle(data.stat.Mtime)
	v.readChildren(names.children)
	if id.found {
		v.id, v.idVersion = &runID{}, id.stat.Version
		if err := json.Unmarshal(id.data, v.id); err != nil || v.id.ID != run {
			return errForeign
		}
	}
	return nil
}

// withRenewals asks when the live leases were last renewed, for those who are told until when the key is held.
func (b *backend) withRenewals(ctx context.Context, s *session, v *view) error {
	stats := make([]node, len(v.s.Slots))
	err := parallel(len(stats), func(i int) (err error) {
		if l := &v.s.Slots[i]; v.live(l) {
			stats[i], err = s.exists(ctx, v.node(l))
		}
		return err
	})
	v.renewed = map[string]time.Time{}
	for i, n := range stats {
		if n.found {
			v.renewed[v.s.Slots[i].Owner] = time.UnixMilli(n.stat.Mtime)
		}
	}
	return err
}

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

// errConflict is a change that met another one; nothing was changed, and what there is now has to be read again.
var errConflict = errors.New("the key was changed by somebody else")

// update changes a key, again where somebody else was quicker, until ctx ends. f looks at the key and says what is to be
// changed; an error of f, or nil, ends it. f may be called several times, and what it noted at its last call is what was
// done. An error of the kind isBroken means that nobody knows whether it was.
//
// known, where it is not nil, is a view to begin with. What it does not show any more makes the change fail, and the key is
// read then.
func (b *backend) update(ctx context.Context, s *session, key string, q query, known *view, f func(*view) (*edit, error)) error {
	gone := map[int64]bool{}
	var unsure *edit
	confirmed := false
	bound := s.firstBound()
	for try := 0; ; try++ {
		v, err := known, error(nil)
		if known = nil; v == nil {
			v, err = b.load(ctx, s, key, q)
		}
		if err != nil {
			return err
		}
		if unsure != nil && v.s.Write == unsure.v.s.Write {
			unsure.v.settle(v.s.At / 1000)
			return nil // it was done, and only the answer was lost
		}
		v.gone = gone
		e, err := f(v)
		if (err == nil && e == nil || settled(err)) && !confirmed {
			if err := b.confirm(ctx, s); err != nil {
				return err
			}
			confirmed = true
			continue
		}
		if err != nil || e == nil {
			return err
		}
		err = b.commit(ctx, s, e, bound)
		switch {
		case err == nil:
			return nil
		case isBroken(err) && ctx.Err() == nil:
			unsure, bound = e, 2*bound
		case !errors.Is(err, errConflict):
			return err
		case try > 2:
			if !sleep(ctx, rand.N(time.Millisecond<<min(try, 6))) {
				return ctx.Err()
			}
		}
	}
}

// settled tells an answer that is final, and so has to be true and not only to have been true a moment ago.
func settled(err error) bool {
	var held *backends.HeldError
	var done *backends.DoneError
	return errors.As(err, &held) || errors.As(err, &done) || errors.Is(err, backends.ErrLost) || errors.Is(err, backends.ErrNotHeld)
}

// confirm makes sure that what is read from now on is not older than what anybody was told before. A server may lag behind
// the others, and one that was cut off from them answers for a while from what it knew; a write passes through most of
// them, and the server that answers it has caught up by then. Changes need no such thing: they name what they rely on.
func (b *backend) confirm(ctx context.Context, s *session) error {
	stat, err := ask(ctx, s, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(b.c.clockPath(), nil, -1) })
	switch {
	case err == nil:
		b.clock.observe(stat.Mtime)
	case errors.Is(err, zk.ErrNoNode):
		return errNotInitialised
	}
	return err
}

// sync is confirm for those who may only read: the server catches up with its leader, whoever follows that.
func (s *session) sync(ctx context.Context) error {
	_, err := ask(ctx, s, func(c *zk.Conn) (string, error) { return c.Sync(s.c.keysPath()) })
	return err
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// commit sends a change.
func (b *backend) commit(ctx context.Context, s *session, e *edit, bound time.Duration) error {
	if e.runs {
		e.trim(b.c.keep)
	}
	state := &e.v.s
	state.Format, state.Key, state.At, state.Write = format, e.v.key, e.v.at(), strconv.FormatUint(rand.Uint64(), 36)
	ops := append([]any{&zk.SetDataRequest{Path: e.v.path, Data: encodeJSON(state), Version: e.v.version}}, e.ops...)
	results, err := once(ctx, s, bound, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
	if err == nil {
		b.clock.observe(results[0].Stat.Mtime)
		e.v.settle(results[0].Stat.Mtime)
		return nil
	}
	if isBroken(err) {
		return err
	}
	for i, r := range results {
		if r.Error != nil {
			return b.conflict(ctx, s, e, ops[i], i-1, r.Error)
		}
	}
	return err
}

// conflict finds out what the ith operation of a change met, and repairs what somebody has taken away.
func (b *backend) conflict(ctx context.Context, s *session, e *edit, op any, i int, err error) error {
	switch {
	case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNodeExists):
		return errConflict
	case !errors.Is(err, zk.ErrNoNode):
		return err
	case i >= 0 && i == e.place:
		b.forgetPlace(e.owner)
		return errConflict
	}
	if n, ok := e.trims[i]; ok {
		e.v.gone[n] = true
	}
	if c, ok := op.(*zk.CreateRequest); ok {
		if err := b.makeParents(ctx, s, e.v.path, parent(c.Path)); err != nil {
			return err
		}
	}
	return errConflict
}

// makeParents creates the nodes between a key and one that could not be created.
func (b *backend) makeParents(ctx context.Context, s *session, key, path string) error {
	if len(path) <= len(key) {
		return nil
	}
	if err := b.makeParents(ctx, s, key, parent(path)); err != nil {
		return err
	}
	err := s.create(ctx, path, nil)
	if errors.Is(err, zk.ErrNoNode) {
		return nil // the key itself has gone, as the next look will tell
	}
	return err
}

// ensureKey makes a key known.
func (b *backend) ensureKey(ctx context.Context, s *session, key string) error {
	path := b.c.keyPath(key)
	text := encodeJSON(&state{Format: format, Key: key})
	_, err := ask(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		ops := []any{&zk.CreateRequest{Path: path, Data: text, Acl: b.c.acl()}}
		for _, name := range []string{runsName, refusedName, idsName} {
			ops = append(ops, &zk.CreateRequest{Path: path + "/" + name, Acl: b.c.acl()})
		}
		return c.Multi(ops...)
	})
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return errNotInitialised
	}
	return err
}

// updateKnown is update for changes that make a key known.
func (b *backend) updateKnown(ctx context.Context, s *session, key string, q query, f func(*view) (*edit, error)) error {
	return b.update(ctx, s, key, q, nil, func(v *view) (*edit, error) {
		if v.found {
			return f(v)
		}
		if err := b.ensureKey(ctx, s, key); err != nil {
			return nil, err
		}
		w, err := b.load(ctx, s, key, q)
		if err != nil {
			return nil, err
		}
		gone := v.gone
		*v = *w
		v.gone = gone
		if !v.found {
			return nil, errNotInitialised // taken away as soon as it was made
		}
		return f(v)
	})
}
