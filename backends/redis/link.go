package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// link is one connection and the go-redis client that speaks over it.
//
// A client of go-redis keeps a pool, dials in the background, holds on to the error of its last dial and does not notice
// that a context is cancelled while it reads. So each connection is dialled here, where every phase obeys the context and
// knows its name, and is given to a client of its own; making one takes 5 us. To end an operation is to end its
// connection, and with it whatever was still on the way: an acquire must not arrive after we have given it back.
type link struct {
	conn   net.Conn // the innermost
	client *goredis.Client
	used   bool // has answered before
}

// phaseError says in which phase a connection failed.
type phaseError struct {
	phase string // "look up", "connect to", "TLS with", "log in to", "wait for the answer of", "ask"
	addr  string
	err   error
}

func (e *phaseError) Error() string {
	why := e.err.Error()
	switch {
	case errors.Is(e.err, context.DeadlineExceeded), errors.Is(e.err, os.ErrDeadlineExceeded):
		why = "no answer in time"
	case errors.Is(e.err, context.Canceled):
		why = "interrupted"
	}
	return e.phase + " " + e.addr + ": " + why
}
func (e *phaseError) Unwrap() error { return e.err }

// errGone is what go-redis is told when it wants to dial again by itself.
var errGone = errors.New("the connection is gone")

// dial opens a connection and greets the server. It ends soon after ctx does, in whichever phase it is.
func (s *server) dial(ctx context.Context) (*link, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, s.network, s.addr)
	if err != nil {
		phase := "connect to"
		var dns *net.DNSError
		if errors.As(err, &dns) {
			phase = "look up"
		}
		return nil, &phaseError{phase, s.addr, err}
	}
	stop := context.AfterFunc(ctx, func() { abort(raw) })
	defer stop()
	conn, err := s.secure(ctx, raw)
	if err == nil {
		if err = s.login.greet(ctx, conn); err != nil {
			err = &phaseError{"log in to", s.addr, err}
		}
	}
	if err == nil && ctx.Err() == nil {
		return newLink(s.addr, raw, conn), nil
	}
	abort(raw)
	if ctx.Err() != nil && err != nil {
		var p *phaseError
		if errors.As(err, &p) {
			p.err = ctx.Err()
		}
	}
	if err == nil {
		err = &phaseError{"log in to", s.addr, ctx.Err()}
	}
	return nil, err
}

// secure wraps the connection in TLS where that is asked for.
func (s *server) secure(ctx context.Context, raw net.Conn) (net.Conn, error) {
	if s.tls == nil {
		return raw, nil
	}
	t := s.tls.Clone()
	if t.ServerName == "" {
		t.ServerName, _, _ = net.SplitHostPort(s.addr)
	}
	conn := tls.Client(raw, t)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, &phaseError{"TLS with", s.addr, err}
	}
	return conn, nil
}

// tcpGreeted lets go-redis look whether an idle connection was closed by the server. Under TLS a look at the socket
// proves nothing, so there the type without it is used, and the first use tells.
type tcpGreeted struct {
	greeted
	syscall.Conn
}

func newLink(addr string, raw, conn net.Conn) *link {
	var ready net.Conn = &greeted{Conn: conn}
	if sys, ok := conn.(syscall.Conn); ok {
		ready = &tcpGreeted{greeted{Conn: conn}, sys}
	}
	var dialled atomic.Bool
	return &link{conn: raw, client: goredis.NewClient(&goredis.Options{
		Addr: addr,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			if dialled.Swap(true) {
				return nil, errGone
			}
			return ready, nil
		},
		Protocol:              2, // push messages would be one more thing to read
		DisableIdentity:       true,
		ContextTimeoutEnabled: true,
		MaxRetries:            -1, // whoever asks again has to know with which owner
		DialerRetries:         1,
		PoolSize:              1,
		PipelinePoolSize:      -1,
		ReadTimeout:           -1, // the context ends the connection
		WriteTimeout:          -1,
		ReadBufferSize:        8 << 10,
		WriteBufferSize:       4 << 10,
		ConnMaxIdleTime:       -1,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	})}
}

// close ends the connection in good order.
func (l *link) close() {
	_ = l.client.Close() // closes the connection where go-redis has taken it over
	_ = l.conn.Close()
}

// abort ends the connection at once and drops what it has not sent yet.
func abort(conn net.Conn) {
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = conn.Close()
}
