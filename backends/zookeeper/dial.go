package zookeeper

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// fault is why there is no connection, or no answer.
type fault struct {
	phase string // "dialing h1:2181"
	err   error
}

func (f *fault) Error() string { return f.phase + ": " + f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// Between two rounds over all servers the client pauses, longer each time.
const (
	firstPause = 20 * time.Millisecond
	mostPause  = 500 * time.Millisecond
)

// provider hands the servers to the client in turn. The client's own would look names up without a bound of ours before
// anything else, and pause for a second whenever it has come round, even where the only server just cut an idle connection.
type provider struct {
	s    *session
	mu   sync.Mutex
	next int
}

// newProvider begins with any of them, so that not all hosts crowd on the one that is named first.
func newProvider(s *session) *provider { return &provider{s: s, next: rand.N(len(s.c.hosts))} }

func (p *provider) Init([]string) error { return nil }
func (p *provider) Len() int            { return len(p.s.c.hosts) }
func (p *provider) Connected()          {}

// Next tells the client to look whether it is to end, which it does only where it has "come round", once it is.
func (p *provider) Next() (server string, retryStart bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	server = p.s.c.hosts[p.next%len(p.s.c.hosts)]
	p.next++
	return server, p.s.life.Err() != nil
}

// dial connects to one server, after a pause where all have just failed. It bounds the whole time until the server has
// answered the request for a session: the client itself would wait for that seven times the session's length.
func (s *session) dial(network, address string, _ time.Duration) (net.Conn, error) {
	if d := s.beforeDial(); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-s.life.Done():
		}
	}
	bound := s.dialBound()
	ctx, cancel := context.WithTimeout(s.life, bound)
	defer cancel()
	c, err := s.c.dial(ctx, network, address)
	if err != nil {
		return nil, s.failed("dialing "+address, err)
	}
	if s.c.tls != nil {
		if c, err = s.secure(ctx, c, address); err != nil {
			return nil, err
		}
	}
	l := s.newLink(c, address)
	l.late = time.AfterFunc(bound, func() {
		l.overdue.Store(true)
		l.Conn.Close()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		l.Close()
		return nil, errClosed
	}
	s.link = l
	return l, nil
}

// secure speaks TLS over a connection.
func (s *session) secure(ctx context.Context, c net.Conn, address string) (net.Conn, error) {
	config := s.c.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secure := tls.Client(c, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, s.failed("TLS with "+address, err)
	}
	return secure, nil
}

// newLink is a connection that will log in, and, where it is the session's first, ask what is to be asked ahead.
func (s *session) newLink(c net.Conn, address string) *link {
	l := &link{Conn: c, s: s, address: address}
	if s.c.user != "" {
		l.login = login(s.c.user, s.c.password)
		l.ahead.open = append(l.ahead.open, l.login)
	}
	if s.first != nil && !s.asking.Swap(true) {
		l.ahead.open = append(l.ahead.open, s.first.questions...)
	}
	return l
}

// dialBound leaves time for another server within the time-out.
func (s *session) dialBound() time.Duration {
	return max(s.c.timeout/time.Duration(min(len(s.c.hosts), 3)), 250*time.Millisecond) * 9 / 10
}

// beforeDial counts the attempts since the last session was there, and gives the pause before the next one.
func (s *session) beforeDial() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	round := s.attempts / len(s.c.hosts)
	first := s.attempts%len(s.c.hosts) == 0
	s.attempts++
	if round == 0 || !first {
		return 0
	}
	d := min(firstPause<<min(round-1, 10), mostPause)
	return d/2 + rand.N(d/2)
}

// errNoSession is a server that took the connection and closed it without a word.
var errNoSession = errors.New("the server closed the connection instead of giving a session")

// errOverdue is a server that took the connection and says nothing.
var errOverdue = errors.New("no answer to the request for a session")

// link is one connection. It looks at what passes for three things that the client does not tell: how long a session was
// granted, why a connection ended, and when the request that ends a session has been written.
type link struct {
	net.Conn
	s       *session
	address string
	late    *time.Timer
	overdue atomic.Bool
	silent  atomic.Bool // nothing more is to be written, so that the session is left to its time-out
	greeted atomic.Bool // the answer to the request for a session has come
	head    []byte
	lengths lengths // of answers; one goroutine reads
	ahead   ahead
	asked   bool      // they were sent
	login   *question // nil without credentials
}

// The first answer of a server is its length, the protocol's version, the session's length in ms and its id.
const (
	timeoutAt = 8
	sessionAt = 12
	headSize  = 20
)

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if bad := l.lengths.look(b[:n]); bad != nil {
		n, err = 0, bad
	}
	l.ahead.look(b[:n])
	if bad := l.greet(b[:n]); bad != nil {
		n, err = 0, bad
	}
	if err != nil {
		l.ahead.over()
	}
	if err != nil && !l.greeted.Load() {
		switch {
		case l.overdue.Load():
			err = errOverdue
		case backends.IsHangUp(err):
			err = errNoSession
		}
		l.s.failed("asking "+l.address+" for a session", err)
	}
	return n, err
}

// errNoLength is a session that ends at once. The client would end the program with a panic.
var errNoLength = errors.New("the server gave a session of no length")

// greet looks for the answer to the request for a session.
func (l *link) greet(b []byte) error {
	if len(l.head) == headSize {
		return nil
	}
	l.head = append(l.head, b[:min(len(b), headSize-len(l.head))]...)
	if len(l.head) < headSize {
		return nil
	}
	length, id := int32(binary.BigEndian.Uint32(l.head[timeoutAt:])), binary.BigEndian.Uint64(l.head[sessionAt:])
	if length <= 0 && id != 0 {
		return errNoLength
	}
	l.late.Stop()
	l.greeted.Store(true)
	l.s.greeted(time.Duration(length) * time.Millisecond)
	return nil
}

// opCloseSession is the code of the request that ends a session, after its length and its number.
const opCloseSession = -11

func (l *link) Write(b []byte) (int, error) {
	if l.silent.Load() {
		return 0, net.ErrClosed
	}
	if !l.asked { // this is the request for a session
		l.asked = true
		return l.writeFirst(b)
	}
	n, err := l.Conn.Write(b)
	if len(b) == 12 && int32(binary.BigEndian.Uint32(b[8:])) == opCloseSession {
		l.s.endOnce.Do(func() { close(l.s.endSent) })
	}
	return n, err
}

// askedAt is where the request for a session has its length: behind its own, the protocol's version and a transaction.
const askedAt = 16

// writeFirst sends b, which is the request for a session, and what is asked ahead, together. The client would ask for no more
// than it was given last, even where that server was alone in giving less; and it leaves out that a server without a quorum
// will not do, which servers since 3.4 write a warning about each time.
func (l *link) writeFirst(b []byte) (int, error) {
	first := append(bytes.Clone(b), 0)
	binary.BigEndian.PutUint32(first, uint32(len(first)-4))
	binary.BigEndian.PutUint32(first[askedAt:], uint32(l.s.asked/time.Millisecond))
	n, err := l.Conn.Write(append(first, l.ahead.request()...))
	return min(n, len(b)), err
}

func (l *link) Close() error {
	l.late.Stop()
	l.ahead.over()
	return l.Conn.Close()
}
