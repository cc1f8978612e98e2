package zookeeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

// place is where one who waits stands in the queue of a key.
type place struct {
	s      *session
	key    string
	name   string      // of the node; "" before it is made
	expiry *time.Timer // takes the place away where its owner was woken and did not come back
}

// placeKept is how long a place is kept for one who was woken: it asks for the lease at once, and takes the place away with
// the grant, or waits again in the same place.
const placeKept = time.Second

// lookEvery is how often one who waits looks by itself. Nothing that is relied on depends on it; it bounds what a lost
// notification, or a frozen process in front, costs.
const lookEvery = 10 * time.Second

// Wait queues up and returns when the key may be free; see backends.Waiter.
//
// Who is refused because its run id runs does not queue up, because no free slot helps it: it watches that lease, as
// everybody does who waits for the same run.
func (b *backend) Wait(ctx context.Context, r backends.Request) error {
	s, err := b.leaseSession(r.TTL)
	if err != nil {
		return b.fail(ctx, "wait", err)
	}
	w := &waiting{b: b, s: s, r: r, p: b.enterQueue(r, s)}
	for {
		again, err := w.look(ctx)
		if err == nil && again {
			continue
		}
		if err != nil {
			b.leaveQueue(r.Owner)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return b.fail(ctx, "wait", err)
		}
		w.p.expiry.Reset(placeKept)
		return nil
	}
}

// waiting is one Wait.
type waiting struct {
	b *backend
	s *session
	r backends.Request
	p *place

	looked bool
}

// look finds out what is in the way, and waits until that changes. It returns false when nothing is.
func (w *waiting) look(ctx context.Context) (again bool, err error) {
	v, err := w.b.load(ctx, w.s, w.r.Key, query{runID: w.r.RunID})
	if err != nil {
		return false, err
	}
	first := !w.looked
	w.looked = true
	if !w.inTheWay(v) {
		// Nobody has told us yet that anything has changed, so it may be a server that lags behind.
		if first {
			return true, w.s.barrier(ctx)
		}
		return false, nil
	}
	if l := v.sameRun(w.r); l != nil {
		return true, w.watch(ctx, 0, w.onNode(v.node(l)))
	}
	before, err := w.predecessor(ctx, v.path)
	if err != nil {
		return false, err
	}
	if before != "" {
		return true, w.watch(ctx, 0, w.onNode(v.path+"/"+queueName+"/"+before), w.onRunID(v))
	}
	return w.first(ctx)
}

// first waits at the head of the queue, for the key itself. The watches are set by the same requests that tell how the key
// stands, so that no change is missed between.
func (w *waiting) first(ctx context.Context) (again bool, err error) {
	path := w.b.c.keyPath(w.r.Key)
	data, err := w.ask(ctx, func(c *zk.Conn) (watched, error) {
		text, stat, events, err := c.GetW(path)
		return watchedAnswer(node{data: text}, stat, events, err)
	})
	if err != nil {
		return false, err
	}
	names, err := w.ask(ctx, func(c *zk.Conn) (watched, error) {
		all, stat, events, err := c.ChildrenW(path)
		return watchedAnswer(node{children: all}, stat, events, err)
	})
	if err != nil {
		return false, err
	}
	if !data.found || !names.found || data.stat.Version != names.stat.Version {
		return true, nil
	}
	v := &view{key: w.r.Key, path: path}
	if v.now, err = w.b.now(ctx, w.s); err != nil {
		return false, err
	}
	if err := v.read(data.node, names.node, node{}, ""); err != nil {
		return false, ofKey(v.key, err)
	}
	if v.sameRun(w.r) != nil || !w.inTheWay(v) {
		return true, nil
	}
	return true, w.watch(ctx, v.nextEnd(), already(data), already(names), w.onRunID(v))
}

// inTheWay tells whether the request would be refused as held, and not that its run is done, which is for Acquire to tell.
func (w *waiting) inTheWay(v *view) bool {
	var held *backends.HeldError
	return errors.As(v.refuse(w.r, w.b.c.keep), &held)
}

// nextEnd is when the first hold or pause ends by itself; 0 where none does.
func (v *view) nextEnd() time.Duration {
	var ends []int64
	for i := range v.s.Slots {
		if l := &v.s.Slots[i]; v.held(l) && !v.live(l) {
			ends = append(ends, l.Hold)
		}
	}
	if v.paused() && v.s.Pause.Until != 0 {
		ends = append(ends, v.s.Pause.Until)
	}
	if len(ends) == 0 {
		return 0
	}
	return length(slices.Min(ends)-v.at()) + time.Millisecond
}

// watched is an answer together with the notification of its change.
type watched struct {
	node
	events <-chan zk.Event
	over   <-chan struct{} // closed when there will be no notification any more
}

func watchedAnswer(n node, stat *zk.Stat, events <-chan zk.Event, err error) (watched, error) {
	a, err := answer(n, stat, err)
	return watched{node: a, events: events}, err
}

// watchSession is a session of its own for watches, which ends with its connection. The client would carry watches over to
// the next one, but says which changes it has seen by a number that answers on the new connection move on meanwhile: a
// change between could go unnoticed (and the race detector tells of it). Whoever watches is told that the session has
// ended, and looks again.
func (b *backend) watchSession() (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	if b.watcher != nil && b.watcher.life.Err() == nil {
		return b.watcher, nil
	}
	if b.watcher != nil {
		go b.watcher.close(true)
	}
	var err error
	b.watcher, err = connect(&session{c: b.c, asked: b.usualSession(), brittle: true})
	return b.watcher, err
}

// watchPause is between two tries to connect for watches.
const watchPause = 20 * time.Millisecond

// ask sends a request that sets a watch, on one connection after the other until one lasts or ctx ends.
func (w *waiting) ask(ctx context.Context, f func(*zk.Conn) (watched, error)) (watched, error) {
	for {
		s, err := w.b.watchSession()
		if err != nil {
			return watched{}, err
		}
		a, err := ask(ctx, s, f)
		var none *unreachable
		if (errors.Is(err, errClosed) || errors.As(err, &none)) && backends.Sleep(ctx, watchPause) {
			continue // its connection broke, and who waits keeps its place meanwhile
		}
		a.over = s.life.Done()
		return a, err
	}
}

// source sets a watch. there is false where what was to be watched has gone already.
type source func(ctx context.Context) (w watched, there bool, err error)

// already is a watch that has been set.
func already(w watched) source {
	return func(context.Context) (watched, bool, error) { return w, true, nil }
}

// onNode watches a node until it goes.
func (w *waiting) onNode(path string) source {
	return func(ctx context.Context) (watched, bool, error) {
		a, err := w.ask(ctx, func(c *zk.Conn) (watched, error) {
			_, stat, events, err := c.GetW(path) // unlike ExistsW it leaves no watch behind where there is no node
			return watchedAnswer(node{}, stat, events, err)
		})
		return a, a.found, err
	}
}

// onRunID watches the done-mark of the run id, which another slot's holder may set.
func (w *waiting) onRunID(v *view) source {
	return func(ctx context.Context) (watched, bool, error) {
		if w.r.RunID == "" {
			return watched{}, true, nil
		}
		a, err := w.ask(ctx, func(c *zk.Conn) (watched, error) {
			found, stat, events, err := c.ExistsW(idPath(v.path, w.r.RunID))
			if err != nil {
				return watched{}, err
			}
			return watched{node: node{stat: *stat, found: found}, events: events}, nil
		})
		return a, a.found == (v.id != nil) && (!a.found || a.stat.Version == v.idVersion), err
	}
}

// watch returns when one of the sources has something to tell, left has passed (0: never), or it is time to look anyway.
func (w *waiting) watch(ctx context.Context, left time.Duration, sources ...source) error {
	d := lookEvery
	if left > 0 {
		d = min(d, left)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	var set [3]watched // the nil channels of one that is missing never tell anything
	for i, source := range sources {
		var there bool
		var err error
		if set[i], there, err = source(ctx); err != nil || !there {
			return err
		}
	}
	select {
	case <-set[0].events:
	case <-set[1].events:
	case <-set[2].events:
	case <-set[0].over:
	case <-set[1].over:
	case <-set[2].over:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// enterQueue finds or makes the place of a request, without making its node.
func (b *backend) enterQueue(r backends.Request, s *session) *place {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.places[r.Owner]
	if p == nil || p.key != r.Key || p.s != s {
		p = &place{s: s, key: r.Key}
		p.expiry = time.AfterFunc(time.Hour, func() { b.leaveQueue(r.Owner) })
		b.places[r.Owner] = p
	}
	p.expiry.Stop()
	return p
}

// predecessor is who stands before us in the queue; "" at its head. It makes our node where it is missing, recognising one
// whose creation was carried out without an answer by the owner in its name.
func (w *waiting) predecessor(ctx context.Context, path string) (string, error) {
	dir := path + "/" + queueName
	for {
		all, err := w.s.children(ctx, dir)
		if err != nil {
			return "", err
		}
		slices.SortFunc(all.children, bySequence)
		i := slices.IndexFunc(all.children, func(name string) bool { return strings.HasPrefix(name, w.r.Owner+"-") })
		switch {
		case i > 0:
			w.name(all.children[i])
			return all.children[i-1], nil
		case i == 0:
			w.name(all.children[i])
			return "", nil
		}
		if err := w.makePlace(ctx, dir, all.found); err != nil {
			return "", err
		}
	}
}

func (w *waiting) name(name string) {
	w.b.mu.Lock()
	defer w.b.mu.Unlock()
	w.p.name = name
}

// makePlace makes the node, and the queue where there is none: a container, which the servers take away some time after
// the last has left it, or a plain node on servers before 3.5.3.
func (w *waiting) makePlace(ctx context.Context, dir string, there bool) error {
	if !there {
		_, err := ask(ctx, w.s, func(c *zk.Conn) (string, error) {
			return c.CreateContainer(dir, nil, zk.FlagContainer, w.b.c.acl())
		})
		if err != nil && !errors.Is(err, zk.ErrNodeExists) && !isBroken(err) {
			err = w.s.create(ctx, dir, nil)
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	_, err := once(ctx, w.s, w.s.firstBound(), func(c *zk.Conn) (string, error) {
		return c.Create(dir+"/"+w.r.Owner+"-", nil, zk.FlagEphemeralSequential, w.b.c.acl())
	})
	if isBroken(err) && ctx.Err() == nil || errors.Is(err, zk.ErrNoNode) {
		return nil // the next listing tells
	}
	return err
}

// leaveQueue takes a place away, in the background: who gives up waiting does not wait for that. Where it fails the node
// goes with the session.
func (b *backend) leaveQueue(owner string) {
	b.mu.Lock()
	p := b.places[owner]
	delete(b.places, owner)
	closed := b.closed
	b.mu.Unlock()
	if p == nil || closed {
		return
	}
	p.expiry.Stop()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), b.c.timeout)
		defer cancel()
		dir := b.c.keyPath(p.key) + "/" + queueName
		names := []string{p.name}
		if p.name == "" { // its creation may be on its way, and is then answered before this
			all, _ := p.s.children(ctx, dir)
			names = slices.DeleteFunc(all.children, func(name string) bool { return !strings.HasPrefix(name, owner+"-") })
		}
		for _, name := range names {
			_ = p.s.remove(ctx, dir+"/"+name)
		}
	}()
}

// usedPlace forgets a place that went with the grant, and forgetPlace one that has gone by itself.
func (b *backend) usedPlace(owner string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.places[owner]; p != nil {
		p.expiry.Stop()
		delete(b.places, owner)
	}
}

func (b *backend) forgetPlace(owner string) { b.usedPlace(owner) }

// leaveQueue takes the owner's place away together with the grant, so that whoever is next looks only once.
func (e *edit) leaveQueue(owner string) {
	e.b.mu.Lock()
	defer e.b.mu.Unlock()
	if p := e.b.places[owner]; p != nil && p.key == e.v.key && p.name != "" {
		e.place, e.owner = len(e.ops), owner
		e.delete(e.v.path + "/" + queueName + "/" + p.name)
	}
}
