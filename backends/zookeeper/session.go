package zookeeper

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// session is one session with the servers, over one connection at a time. It outlives connections, and is replaced by the
// client where the servers have let it expire: what was ephemeral in it is gone then, which every operation finds out by
// itself, since none relies on the session being the same as before.
type session struct {
	c     *config
	asked time.Duration // the length that was asked for
	conn  *zk.Conn
	life  context.Context // ends with close
	end   context.CancelFunc

	brittle bool    // it ends with its first connection: see watchSession
	first   *glance // what its first connection asks ahead; nil: nothing

	started chan struct{} // closed when conn is set
	endSent chan struct{} // closed when the request that ends the session is on its way
	endOnce sync.Once
	asking  atomic.Bool // first was handed to a connection

	mu       sync.Mutex
	up       bool
	left     bool // closed for ever, and to be left to its time-out
	served   bool // it was up once
	granted  time.Duration
	link     *link
	cause    error // why there is no connection; nil while there is one
	attempts int   // to connect, since there was a session
	failures int   // of them
	changed  chan struct{}
}

// silence is a logger that says nothing: stderr is COMMAND's.
type silence struct{}

func (silence) Printf(string, ...any) {}

// newSession asks for a session that lives as long as asked without a word from us, and for what first says. It returns at
// once; await waits.
func newSession(c *config, asked time.Duration, first *glance) (*session, error) {
	return connect(&session{c: c, asked: asked, first: first})
}

func connect(s *session) (*session, error) {
	c, asked := s.c, s.asked
	s.started, s.endSent, s.changed = make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.life, s.end = context.WithCancel(context.Background())
	keepCalm()
	conn, _, err := zk.Connect(c.hosts, asked, zk.WithDialer(s.dial), zk.WithHostProvider(newProvider(s)),
		zk.WithLogger(silence{}), zk.WithLogInfo(false), zk.WithEventCallback(s.event))
	if err != nil {
		s.end()
		return nil, err
	}
	s.conn = conn
	close(s.started)
	return s, nil
}

// event is called by the client's loop and must not block.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
		if s.c.watched != nil {
			s.c.watched(e)
		}
	case e.State == zk.StateHasSession:
		go s.connected()
	case e.State == zk.StateDisconnected || e.State == zk.StateConnecting:
		s.mu.Lock()
		s.up = false
		if s.brittle && s.served {
			s.end()
		}
		s.mu.Unlock()
	}
}

// greeted notes the length of the session that a server has granted.
func (s *session) greeted(d time.Duration) {
	if d <= 0 {
		return // the session has expired, and the client asks for another
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.granted = d
}

// connected waits for the login, which the link has sent, before anything else is asked.
func (s *session) connected() {
	<-s.started
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	if l.login != nil {
		t := time.NewTimer(s.dialBound())
		defer t.Stop()
		if _, err := l.login.wait(s.life, t.C); err != nil {
			s.failed("logging in at "+l.address, err)
			l.Close() // the next connection tries again
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l || s.conn.State() != zk.StateHasSession {
		return // gone again
	}
	s.up, s.served, s.cause, s.attempts, s.failures = true, true, nil, 0, 0
	s.tell()
}

// failed notes why there is no connection.
func (s *session) failed(phase string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &fault{phase, err}
	if s.life.Err() == nil {
		s.cause = f
		s.failures++
	}
	s.tell()
	return f
}

// tell wakes whoever waits for a change. The lock is held.
func (s *session) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// errClosed is an operation on a backend that was closed.
var errClosed = errors.New("the backend is closed")

// unreachable is that there is no session: nothing was sent.
type unreachable struct{ err error }

func (u *unreachable) Error() string { return u.err.Error() }
func (u *unreachable) Unwrap() error { return u.err }

// await returns when requests can be sent. It waits for a session that was there before as long as ctx lasts; without one
// it returns when every server has been tried once, and where credentials are refused, which go on being so, at once.
func (s *session) await(ctx context.Context) (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case ctx.Err() != nil:
			return nil, &unreachable{errors.Join(s.cause, ctx.Err())}
		case s.life.Err() != nil:
			return nil, errClosed
		case s.up && s.conn.State() == zk.StateHasSession:
			return s.link, nil
		case errors.Is(s.cause, zk.ErrAuthFailed), s.cause != nil && s.granted == 0 && s.failures >= len(s.c.hosts):
			return nil, &unreachable{s.cause}
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		case <-s.life.Done():
		case <-time.After(50 * time.Millisecond): // the client tells of no change that comes before its own state does
		}
		s.mu.Lock()
	}
}

// limit is how long the servers keep the session without a word from us.
func (s *session) limit() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.granted
}

// leave goes from the server that the session is at to the next one.
func (s *session) leave() (server string) {
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	l.Close()
	return l.address
}

// closeBound is how long the last request may take to be written.
const closeBound = 200 * time.Millisecond

// close ends the session, and with it all that is ephemeral in it, or leaves it to its time-out. It does not wait for the
// servers' answer, which nobody needs.
func (s *session) close(leave bool) {
	s.mu.Lock()
	l, up := s.link, s.up
	s.up, s.left = false, leave || !up
	mute := s.left
	s.mu.Unlock()
	s.end() // before the link is cut: the client would connect again at once, and end the session over the new link
	if l != nil && mute {
		l.silent.Store(true)
		l.Close()
	}
	done := make(chan struct{})
	go func() { s.conn.Close(); close(done) }()
	if mute {
		return
	}
	t := time.NewTimer(closeBound)
	defer t.Stop()
	select {
	case <-s.endSent:
	case <-done:
	case <-t.C:
	}
}
