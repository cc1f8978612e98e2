package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"os"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// server is one address and its idle connections. It is safe for concurrent use.
type server struct {
	addr, network string
	tls           *tls.Config
	login         login

	mu     sync.Mutex
	idle   []*link
	busy   map[*link]struct{}
	closed bool
}

func (c *config) server(addr string) *server {
	return &server{addr: addr, network: c.network, tls: c.tls, busy: map[*link]struct{}{},
		login: login{user: c.user, password: c.password, client: c.client, db: c.db}}
}

// maxIdle is how many connections are kept for later.
const maxIdle = 128

// command does something over a connection.
type command func(ctx context.Context, c *goredis.Client) error

// outcome is how a command went, beside its error.
type outcome struct {
	sent  bool // something may have reached the server
	stale bool // the connection had been idle and turned out to be dead
}

var errClosed = errors.New("it is closed")

// do runs a command over an idle connection, or a new one. When ctx ends, the connection ends with it.
func (s *server) do(ctx context.Context, f command) (outcome, error) {
	l, err := s.take(ctx)
	if err != nil {
		return outcome{}, err
	}
	was := l.used
	stop := context.AfterFunc(ctx, func() { abort(l.conn) })
	err = f(ctx, l.client)
	aborted := !stop()
	s.put(l, !aborted && reusable(err))
	if err == nil || isReply(err) {
		return outcome{sent: true}, err
	}
	gone := errors.Is(err, errGone)
	if cause := ctx.Err(); cause != nil || aborted || errors.Is(err, os.ErrDeadlineExceeded) {
		return outcome{sent: !gone}, &phaseError{"wait for the answer of", s.addr, cmp.Or(cause, context.DeadlineExceeded)}
	}
	if was {
		s.drop() // what killed one idle connection has most likely killed the others
	}
	return outcome{sent: !gone, stale: was}, &phaseError{"talk to", s.addr, err}
}

// reusable tells whether a connection is good for more. go-redis itself closes one that was answered READONLY or MOVED.
func reusable(err error) bool {
	return err == nil || isReply(err) && !says(err, "READONLY", "MOVED")
}

// isReply tells an answer of the server from a failure to get one.
func isReply(err error) bool {
	var reply goredis.Error
	return errors.As(err, &reply) || errors.Is(err, errOdd) || errors.Is(err, errReplicas)
}

// take returns an idle connection, the last one used first, or a new one.
func (s *server) take(ctx context.Context) (*link, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, &phaseError{"use", s.addr, errClosed}
	}
	if n := len(s.idle); n > 0 {
		l := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.busy[l] = struct{}{}
		s.mu.Unlock()
		return l, nil
	}
	s.mu.Unlock()
	l, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		l.close()
		return nil, &phaseError{"use", s.addr, errClosed}
	}
	s.busy[l] = struct{}{}
	return l, nil
}

// put takes a connection back, if it is still good.
func (s *server) put(l *link, good bool) {
	s.mu.Lock()
	delete(s.busy, l)
	keep := good && !s.closed && len(s.idle) < maxIdle
	if keep {
		l.used = true
		s.idle = append(s.idle, l)
	}
	s.mu.Unlock()
	if !keep {
		l.close()
	}
}

// drop closes the idle connections: the server may have become another's replica, or gone.
func (s *server) drop() {
	s.mu.Lock()
	idle := s.idle
	s.idle = nil
	s.mu.Unlock()
	for _, l := range idle {
		l.close()
	}
}

// close ends all connections, those in use too.
func (s *server) close() {
	s.mu.Lock()
	s.closed = true
	for l := range s.busy {
		abort(l.conn)
	}
	s.mu.Unlock()
	s.drop()
}
