package zookeeper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

var _ backends.Fixed = (*lease)(nil)

// lease is a holder's view of its lease.
type lease struct {
	b        *backend
	s        *session
	key      string
	owner    string
	runID    string
	grant    backends.Grant
	attached bool                 // it lives in the session of another process
	granted  atomic.Pointer[view] // the key as the grant left it, for the first release to begin with
}

func (b *backend) newLease(s *session, v *view, l *slot, attached bool) *lease {
	ttl := length(l.TTL)
	return &lease{b: b, s: s, key: v.key, owner: l.Owner, runID: l.RunID, attached: attached,
		grant: backends.Grant{Token: l.Token, Slot: l.Slot, Attempt: l.Attempt, AcquiredAt: instant(l.At), TTL: ttl,
			Drift: min(ttl/100+2*time.Millisecond, ttl/2), Takeover: l.Takeover}}
}

func (l *lease) Grant() backends.Grant { return l.grant }

// FixedTTL is true: see backends.Fixed. A session's length does not change.
func (l *lease) FixedTTL() bool { return true }

// Renew writes the lease's node. How long it then lives is the length of its session, whatever ttl says: a lease that was
// attached to goes on being renewed by the process that took it.
func (l *lease) Renew(ctx context.Context, _ time.Duration) error {
	path, text := leasePath(l.b.c.keyPath(l.key), l.owner), strconv.AppendInt(nil, l.grant.Token, 10)
	stat, err := ask(ctx, l.s, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(path, text, -1) })
	switch {
	case errors.Is(err, zk.ErrNoNode):
		l.b.dropLease(l.owner)
		return backends.ErrLost
	case err != nil:
		return l.b.fail(ctx, "renew", err)
	}
	l.b.clock.observe(stat.Mtime)
	if id := l.s.conn.SessionID(); !l.attached && stat.EphemeralOwner != id {
		return l.b.fail(ctx, "renew", fmt.Errorf("the lease lives in session %#x, and this is %#x", stat.EphemeralOwner, id))
	}
	return l.enough(ctx)
}

// enough makes sure that the session is still as long as the lease relies on. A server with other limits than the one that
// granted it shortens it when the client comes to that server, and says so to the client alone.
func (l *lease) enough(ctx context.Context) error {
	kept := l.s.limit()
	if l.attached || grantable(l.grant.TTL, kept) >= l.grant.TTL {
		return nil
	}
	server := l.s.leave()
	return l.b.fail(ctx, "renew", fmt.Errorf("%w: %s keeps it for %v, and the lease relies on %v", errShortened, server, kept, l.grant.TTL))
}

// Release ends the lease; see backends.Lease.
func (l *lease) Release(ctx context.Context, end backends.End) error {
	err := l.b.update(ctx, l.s, l.key, query{runID: l.runID}, l.unchanged(), func(v *view) (*edit, error) { return l.end(ctx, v, end) })
	switch {
	case errors.Is(err, errReleased), err == nil:
		l.b.dropLease(l.owner)
		if err == nil && l.runID != "" {
			l.b.forgetOldIDs(ctx, l.s, l.key, l.runID)
		}
		return nil
	case errors.Is(err, backends.ErrLost):
		l.b.dropLease(l.owner)
		return backends.ErrLost
	}
	return l.b.fail(ctx, "release", err)
}

// unchanged is the key as it is if nobody has changed it since the grant, which saves reading it. It is good for one try.
func (l *lease) unchanged() *view {
	v := l.granted.Swap(nil)
	now, ok := l.b.clock.read()
	if v == nil || !ok {
		return nil
	}
	v.now = now
	return v
}

// after is the view of who has just been granted l; nil where a run id's node was changed as well, which is not worth
// following.
func (v *view) after(l *slot) *view {
	if v.id != nil {
		return nil
	}
	w := *v
	w.version++
	w.s.Slots, w.s.Marks = slices.Clone(v.s.Slots), slices.Clone(v.s.Marks)
	w.alive = maps.Clone(v.alive)
	w.alive[l.Owner] = true
	return &w
}

// errReleased is a release that was carried out before.
var errReleased = errors.New("it was released before")

// end frees the slot, or leaves it to the minimum hold, counts, marks and records.
func (l *lease) end(ctx context.Context, v *view, end backends.End) (*edit, error) {
	sl := v.s.owned(l.owner)
	if sl == nil || sl.Token != l.grant.Token || !v.live(sl) {
		old, err := l.b.findRun(ctx, l.s, v, l.grant.Token, l.grant.AcquiredAt)
		switch {
		case err != nil:
			return nil, err
		case old != nil && old.rec.Outcome.Released():
			return nil, errReleased
		}
		return nil, backends.ErrLost
	}
	rec := sl.record(v.key, l.b.Name())
	rec.Outcome, rec.ExitCode, rec.Duration, rec.Reason, rec.EndedAt = end.Outcome, end.ExitCode, &end.Duration, end.Reason, v.instant()
	e := l.b.edit(v)
	e.endLease(sl)
	if err := e.rememberOrComplete(ctx, l.s, sl.Recorded, rec); err != nil {
		return nil, err
	}
	sl.Released, sl.Recorded = true, true
	if end.Outcome == backends.NotStarted || !v.held(sl) {
		v.s.drop(sl.Slot)
	}
	e.count(l.runID, end.Outcome)
	return e, nil
}

// rememberOrComplete writes a record, or completes the one that is there.
func (e *edit) rememberOrComplete(ctx context.Context, s *session, there bool, r backends.Record) error {
	if there {
		old, err := e.b.findRun(ctx, s, e.v, r.Token, r.StartedAt)
		if err != nil {
			return err
		}
		if old != nil {
			e.set(runPath(e.v.path, old.n), encodeJSON(backends.Complete(old.rec, r)), old.version)
			return nil
		}
	}
	e.remember(r)
	return nil
}

// run is a run's record as it stands.
type run struct {
	n       int64
	version int32
	rec     backends.Record
}

// searchStep is how many records are read at once in search of one; most are found among the newest.
const searchStep = 16

// findRun finds the record of a token among those written since, newest first; nil where there is none.
func (b *backend) findRun(ctx context.Context, s *session, v *view, token int64, since time.Time) (*run, error) {
	for next := v.s.Next; next > v.s.First; next -= searchStep {
		count := int(min(next-v.s.First, searchStep))
		found := make([]*run, count)
		older := make([]bool, count)
		err := parallel(count, func(i int) error {
			n := next - 1 - int64(i)
			node, err := s.get(ctx, runPath(v.path, n))
			switch {
			case errors.Is(err, zk.ErrNoAuth):
				return nil // a host with other credentials wrote it, and so another run
			case err != nil || !node.found:
				return err
			}
			r := &run{n: n, version: node.stat.Version}
			if json.Unmarshal(node.data, &r.rec) == nil && r.rec.Token == token {
				found[i] = r
			}
			older[i] = time.UnixMilli(node.stat.Ctime).Before(since.Add(-time.Minute)) // a minute for clocks that were set
			return nil
		})
		if err != nil {
			return nil, err
		}
		for i, r := range found {
			if r != nil {
				return r, nil
			}
			if older[i] {
				return nil, nil
			}
		}
	}
	return nil, nil
}

// Abandon undoes an Acquire that nobody learnt of, its attempt included; only the token stays used up.
func (b *backend) Abandon(ctx context.Context, r backends.Request) error {
	// In the session that took it: what was sent there and not answered yet is carried out before this.
	s, err := b.sessionOf(cmp.Or(sessionFor(r.TTL), b.usualSession()), true, nil)
	if err != nil {
		return b.fail(ctx, "give back", err)
	}
	err = b.update(ctx, s, r.Key, query{runID: r.RunID}, nil, func(v *view) (*edit, error) {
		l := v.s.owned(r.Owner)
		if l == nil {
			return nil, nil
		}
		e := b.edit(v)
		e.endLease(l)
		v.s.drop(l.Slot)
		e.count(r.RunID, backends.NotStarted)
		return e, nil
	})
	if err != nil {
		return b.fail(ctx, "give back", err)
	}
	b.dropLease(r.Owner)
	return nil
}

// Attach finds a live lease by its token; see backends.Backend.
func (b *backend) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	s, err := b.session(ctx)
	if err != nil {
		return nil, b.fail(ctx, "attach", err)
	}
	if err = s.barrier(ctx); err == nil {
		var v *view
		if v, err = b.load(ctx, s, key, query{}); err == nil {
			return b.attach(ctx, s, v, token)
		}
	}
	return nil, b.fail(ctx, "attach", err)
}

func (b *backend) attach(ctx context.Context, s *session, v *view, token int64) (backends.Lease, error) {
	l := v.s.find(func(l *slot) bool { return l.Token == token && v.live(l) })
	switch {
	case l == nil:
		return nil, backends.ErrLost
	case !l.Loose:
		if err := b.withRenewals(ctx, s, v); err != nil {
			return nil, b.fail(ctx, "attach", err)
		}
		return nil, v.heldError(l, backends.NotLoose)
	}
	return b.newLease(s, v, l, true), nil
}

// looked is how many run ids are looked at, each time that one has run, to find those whose time is over. Some four times
// as many as are added: a third more than what is to be kept is then never exceeded by much.
const looked = 4

// forgetOldIDs takes some of the run ids away that are older than done-marks are kept: those that chance finds in the part
// that the run's own id is in.
func (b *backend) forgetOldIDs(ctx context.Context, s *session, key, id string) {
	path := idPath(b.c.keyPath(key), id)
	now, err := b.now(ctx, s)
	if err != nil {
		return
	}
	all, err := s.children(ctx, parent(path))
	if err != nil || len(all.children) < 2 {
		return
	}
	_ = parallel(min(looked, len(all.children)), func(int) error {
		other := parent(path) + "/" + all.children[rand.IntN(len(all.children))]
		n, err := s.exists(ctx, other)
		if err == nil && n.found && other != path && now.Sub(time.UnixMilli(n.stat.Mtime)) > b.c.keep.DoneAge {
			_, err = once(ctx, s, b.c.timeout, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(other, n.stat.Version) })
		}
		return err
	})
}
