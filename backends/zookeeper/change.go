package zookeeper

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

// errConflict is a change that met another one; nothing was changed, and what there is now has to be read again.
var errConflict = errors.New("the key was changed by somebody else")

// changing is one update under way.
type changing struct {
	b         *backend
	s         *session
	key       string
	q         query
	f         func(*view) (*edit, error)
	gone      map[int64]bool // run records that were found missing
	unsure    *edit          // the last change whose answer was lost
	confirmed bool           // what is read is not older than what anybody was told before
	bound     time.Duration
	tries     int
}

// update changes a key, again where somebody else was quicker, until ctx ends. f looks at the key and says what is to be
// changed; an error of f, or nil, ends it. f may be called several times, and what it noted at its last call is what was
// done; where the view is doubtful, it has to recognise what an earlier one has done. An error of the kind isBroken means that nobody knows whether it was.
//
// known, where it is not nil, is a view to begin with. What it does not show any more makes the change fail, and the key is
// read then.
func (b *backend) update(ctx context.Context, s *session, key string, q query, known *view, f func(*view) (*edit, error)) error {
	c := &changing{b: b, s: s, key: key, q: q, f: f, gone: map[int64]bool{}, bound: s.firstBound()}
	for {
		v := known
		if known = nil; v == nil {
			var err error
			if v, err = b.load(ctx, s, key, q); err != nil {
				return err
			}
		}
		if over, err := c.once(ctx, v); over {
			return err
		}
	}
}

// once tries to make the change that fits what v shows. It returns true when there is nothing more to try.
func (c *changing) once(ctx context.Context, v *view) (over bool, err error) {
	if c.unsure != nil && v.s.Write == c.unsure.v.s.Write {
		c.unsure.v.settle(v.s.At / 1000)
		return true, nil // it was done, and only the answer was lost
	}
	v.gone, v.doubtful = c.gone, c.unsure != nil
	e, err := c.f(v)
	// An answer that is final has to be true, and not only to have been true a moment ago.
	if (err == nil && e == nil || backends.Positive(err)) && !c.confirmed && !v.current {
		err := c.b.confirm(ctx, c.s)
		c.confirmed = true
		return err != nil, err
	}
	if err != nil || e == nil {
		return true, err
	}
	err = c.b.commit(ctx, c.s, e, c.bound)
	c.tries++
	switch {
	case err == nil:
		return true, nil
	case isBroken(err) && ctx.Err() == nil:
		c.unsure, c.bound = e, c.s.nextBound(c.bound)
	case !errors.Is(err, errConflict):
		return true, err
	}
	// A transaction that failed has passed through the quorum, too, so what is read after it is not old.
	c.confirmed = c.confirmed || errors.Is(err, errConflict)
	if c.tries > 3 && !backends.Sleep(ctx, rand.N(time.Millisecond<<min(c.tries, 6))) {
		return true, ctx.Err()
	}
	return false, nil
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

// barrier is confirm for those who may only read: a transaction that changes nothing. The protocol's sync would be
// cheaper, but is no barrier where the server asked is the leader: that answers it like a read, at once, and may not have
// applied yet what a follower has already answered.
func (s *session) barrier(ctx context.Context) error {
	_, err := ask(ctx, s, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(&zk.CheckVersionRequest{Path: s.c.keysPath(), Version: -1})
	})
	if errors.Is(err, zk.ErrNoNode) {
		return errNotInitialised
	}
	return err
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
func (b *backend) updateKnown(ctx context.Context, s *session, key string, q query, known *view, f func(*view) (*edit, error)) error {
	return b.update(ctx, s, key, q, known, func(v *view) (*edit, error) {
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
		v.gone, v.current = gone, true // making the key known was a write
		if !v.found {
			return nil, errNotInitialised // taken away as soon as it was made
		}
		return f(v)
	})
}
