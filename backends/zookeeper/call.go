package zookeeper

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockrun/lockrun/backends"
)

// errNoAnswer is a connection on which nothing came back in time.
var errNoAnswer = errors.New("no answer in time")

// reply is what one request came to.
type reply[T any] struct {
	v   T
	err error
}

// once sends one request. The client's requests know no context and wait for as long as the connection looks alive; so
// where an answer does not come in time the connection is cut, which ends the wait there, keeps the session, and has the
// next request go to the next server. An error of the kind isBroken means that the answer is not known.
func once[T any](ctx context.Context, s *session, bound time.Duration, ask func(*zk.Conn) (T, error)) (v T, err error) {
	l, err := s.await(ctx)
	if err != nil {
		return v, err
	}
	answered := make(chan reply[T], 1)
	go func() {
		v, err := ask(s.conn)
		answered <- reply[T]{v, err}
	}()
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case r := <-answered:
		return r.v, r.err
	case <-ctx.Done():
		if !errors.Is(ctx.Err(), context.Canceled) {
			l.Close()
		}
		return v, &fault{"asking " + l.address, errors.Join(errNoAnswer, ctx.Err())}
	case <-t.C:
		l.Close()
		return v, &fault{"asking " + l.address, errNoAnswer}
	}
}

// ask repeats what may be repeated until it is answered or ctx ends. Each try has more time than the one before: a server
// that is alone in not answering costs little, and a slow ensemble gets its time.
func ask[T any](ctx context.Context, s *session, request func(*zk.Conn) (T, error)) (T, error) {
	for bound := s.firstBound(); ; bound = s.nextBound(bound) {
		v, err := once(ctx, s, bound, request)
		if !isBroken(err) || ctx.Err() != nil {
			return v, err
		}
	}
}

// firstBound and nextBound are how long a request may take before another connection is tried.
func (s *session) firstBound() time.Duration { return max(s.c.timeout/4, 20*time.Millisecond) }

func (s *session) nextBound(d time.Duration) time.Duration { return min(2*d, max(s.c.timeout, d)) }

// isBroken tells whether the connection broke, or was cut, before the answer was there: nobody knows whether the request
// was carried out, and another connection may tell.
func isBroken(err error) bool {
	var none *unreachable
	if errors.As(err, &none) {
		return false
	}
	var network *net.OpError
	return errors.As(err, &network) || backends.IsHangUp(err) || errors.Is(err, net.ErrClosed) || errors.Is(err, errNoAnswer) || errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrNoServer) ||
		errors.Is(err, zk.ErrSessionExpired) || errors.Is(err, zk.ErrSessionMoved) || errors.Is(err, zk.ErrClosing)
}

// node is the answer to most questions about a node.
type node struct {
	data     []byte
	children []string
	stat     zk.Stat
	found    bool
}

// get, children and exists are questions that may be repeated. A missing node is no error.
func (s *session) get(ctx context.Context, path string) (node, error) {
	return ask(ctx, s, func(c *zk.Conn) (node, error) {
		data, stat, err := c.Get(path)
		return answer(node{data: data}, stat, err)
	})
}

func (s *session) children(ctx context.Context, path string) (node, error) {
	return ask(ctx, s, func(c *zk.Conn) (node, error) {
		names, stat, err := c.Children(path)
		return answer(node{children: names}, stat, err)
	})
}

func (s *session) exists(ctx context.Context, path string) (node, error) {
	return ask(ctx, s, func(c *zk.Conn) (node, error) {
		found, stat, err := c.Exists(path)
		if err == nil && !found {
			err = zk.ErrNoNode
		}
		return answer(node{}, stat, err)
	})
}

func answer(n node, stat *zk.Stat, err error) (node, error) {
	if errors.Is(err, zk.ErrNoNode) {
		return node{}, nil
	}
	if err != nil {
		return node{}, err
	}
	n.stat, n.found = *stat, true
	return n, nil
}

// create makes a persistent node, be it that it is there already.
func (s *session) create(ctx context.Context, path string, data []byte) error {
	_, err := ask(ctx, s, func(c *zk.Conn) (string, error) { return c.Create(path, data, zk.FlagPersistent, s.c.acl()) })
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// remove deletes a node, be it that it is gone already.
func (s *session) remove(ctx context.Context, path string) error {
	_, err := ask(ctx, s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(path, -1) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// inFlight is how many requests are on their way at once; they share one connection, and are answered in order.
const inFlight = 32

// parallel runs f for 0 to n-1 and returns the first error. Requests that wait for nothing but each other's way cost one
// round trip together.
func parallel(n int, f func(i int) error) error {
	if n == 1 {
		return f(0)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var first error
	turn := make(chan struct{}, inFlight)
	for i := range n {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			if err := f(i); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
		})
	}
	all.Wait()
	return first
}
