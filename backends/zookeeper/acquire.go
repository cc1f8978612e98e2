package zookeeper

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

// granting is one Acquire.
type granting struct {
	b    *backend
	s    *session
	r    backends.Request
	seen *view // what the last answer was about
	got  *slot
}

// Acquire reads the key and takes it in one transaction. See backends.Backend.
//
// A lease of the same owner is recognised by its name. It is then made anew in the session that asks, so that it lives
// there from now on, whichever session it was granted to.
func (b *backend) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	q := query{runID: r.RunID, timeless: true}
	first := b.glanceAt(r.Key, q)
	s, err := b.sessionOf(sessionFor(r.TTL), false, first)
	if err != nil {
		return nil, b.fail(ctx, "acquire", err)
	}
	g := &granting{b: b, s: s, r: r}
	var seen *view
	if s.first == first { // the session was made for this
		seen = b.seen(ctx, s, first)
	}
	err = b.updateKnown(ctx, s, r.Key, q, seen, func(v *view) (*edit, error) { return g.decide(ctx, v) })
	switch {
	case backends.Positive(err):
		if r.Last {
			b.recordRefusal(ctx, s, g.seen, r.Refused(err, g.seen.instant()))
		}
		return nil, err
	case err != nil:
		return nil, b.fail(ctx, "acquire", err)
	}
	b.keepLease(r.Owner, s)
	b.usedPlace(r.Owner)
	// The session may have been replaced meanwhile, by a server that grants less.
	g.got.TTL = min(g.got.TTL, inMicros(g.ttl()))
	l := b.newLease(s, g.seen, g.got, false)
	l.granted.Store(g.seen.after(g.got))
	return l, nil
}

// decide grants or refuses.
func (g *granting) decide(ctx context.Context, v *view) (*edit, error) {
	g.seen = v
	if v.now.IsZero() && g.timely(v) {
		var err error
		if v.now, err = g.b.now(ctx, g.s); err != nil {
			return nil, err
		}
	}
	if l := v.s.owned(g.r.Owner); l != nil && !l.Recorded {
		return g.again(v, l), nil
	}
	if err := v.refuse(g.r, g.b.c.keep); err != nil {
		return nil, g.explain(ctx, v)
	}
	return g.take(v), nil
}

// timely tells whether anything depends on what time it is. Where the key is just free nothing does, and a write is saved.
func (g *granting) timely(v *view) bool {
	return g.r.HoldAtLeast > 0 || g.r.RunID != "" || v.s.Pause != nil || len(v.s.Slots) > 0
}

// explain is the refusal with times in it: who is refused is told until when, as far as that can be known.
func (g *granting) explain(ctx context.Context, v *view) error {
	if err := g.b.withRenewals(ctx, g.s, v); err != nil {
		return err
	}
	return v.refuse(g.r, g.b.c.keep)
}

// again makes the lease that the owner already has last from now on.
func (g *granting) again(v *view, l *slot) *edit {
	e := g.b.edit(v)
	l.TTL = inMicros(g.ttl())
	e.lease(l)
	g.got = l
	return e
}

// ttl is what the session that was granted can keep.
func (g *granting) ttl() time.Duration { return grantable(g.r.TTL, g.s.limit()) }

// take fills the lowest slot that is not taken.
func (g *granting) take(v *view) *edit {
	e := g.b.edit(v)
	number := 0
	for old := v.s.slotOf(0); old != nil && v.taken(old); old = v.s.slotOf(number) {
		number++
	}
	takeover := false
	if old := v.s.slotOf(number); old != nil && !old.Released {
		takeover = true
		e.proveGone(old)
		if !old.Recorded {
			e.remember(v.crashed(old, g.b.Name()))
		}
	}
	v.s.Token = nextToken(v.s.Token, v.zxid, g.r.Token)
	l := slot{Slot: number, Owner: g.r.Owner, Holder: g.r.Holder, Host: g.r.Host, PID: g.r.PID, RunID: g.r.RunID,
		Token: v.s.Token, Attempt: e.start(g.r.RunID), TTL: inMicros(g.ttl()), Waited: inMicros(g.r.Waited),
		Takeover: takeover, Loose: g.r.Loose}
	if !v.now.IsZero() {
		l.At = v.at()
	}
	if g.r.HoldAtLeast > 0 {
		l.Hold = l.At + inMicros(g.r.HoldAtLeast)
	}
	v.s.put(l)
	g.got = v.s.slotOf(number)
	e.lease(g.got)
	e.leaveQueue(g.r.Owner)
	return e
}

// mostToken is the greatest integer that every reader of JSON knows exactly.
const mostToken = 1<<53 - 1

// nextToken rises with the counter and with the transactions of the whole ensemble or, where the lease is another store's,
// with the token that it has there.
func nextToken(last, zxid, told int64) int64 {
	next := zxid
	if told != 0 {
		next = told
	}
	if next > last && next < mostToken {
		return next
	}
	return last + 1
}

// recordRefusal writes down who was refused for good. Failing to do so changes nothing.
func (b *backend) recordRefusal(ctx context.Context, s *session, v *view, r backends.Record) {
	r.Backend = b.Name()
	_ = b.addRefusal(ctx, s, v.path, r, v.instant())
}

// addRefusal adds one more refusal and, in the same round trip, looks whether they are too many.
func (b *backend) addRefusal(ctx context.Context, s *session, path string, r backends.Record, now time.Time) error {
	dir := path + "/" + refusedName
	var made string
	var after node
	err := parallel(2, func(i int) (err error) {
		if i == 0 {
			made, err = b.sequential(ctx, s, dir+"/", encodeJSON(r), zk.FlagSequence)
			return err
		}
		after, _ = s.exists(ctx, dir)
		return nil
	})
	if err != nil {
		return err
	}
	n := sequence(made)
	if most := int32(b.c.keep.Runs); after.stat.NumChildren+1 > most+most/16 || n%agedEvery == 0 {
		b.trimRefusals(ctx, s, dir, now)
	}
	return nil
}

// agedEvery is how seldom refusals are looked through for old ones.
const agedEvery = 32

// sequential creates a numbered node, once: a lost answer is not followed by a second try, since nobody could tell the
// one from the other. A missing parent is made.
func (b *backend) sequential(ctx context.Context, s *session, path string, data []byte, flags int32) (string, error) {
	create := func(c *zk.Conn) (string, error) { return c.Create(path, data, flags, b.c.acl()) }
	made, err := once(ctx, s, b.c.timeout, create)
	if errors.Is(err, zk.ErrNoNode) {
		if err := s.create(ctx, parent(path), nil); err != nil {
			return "", err
		}
		made, err = once(ctx, s, b.c.timeout, create)
	}
	return made, err
}

// trimRefusals takes away those that are too many, and some that are too old. Several may do so at once.
func (b *backend) trimRefusals(ctx context.Context, s *session, dir string, now time.Time) {
	all, err := s.children(ctx, dir)
	if err != nil {
		return
	}
	names := all.children
	slices.SortFunc(names, bySequence)
	many := max(0, len(names)-b.c.keep.Runs)
	old := names[many:min(len(names), many+agedEvery*2)]
	aged := make([]bool, len(old))
	_ = parallel(len(old), func(i int) error {
		n, err := s.exists(ctx, dir+"/"+old[i])
		aged[i] = err == nil && n.found && now.Sub(time.UnixMilli(n.stat.Ctime)) > b.c.keep.Age
		return err
	})
	gone := slices.Clone(names[:many])
	for i, is := range aged {
		if is {
			gone = append(gone, old[i])
		}
	}
	_ = parallel(len(gone), func(i int) error { return s.remove(ctx, dir+"/"+gone[i]) })
}
