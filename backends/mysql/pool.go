package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/lockrun/lockrun/backends"
)

// A process that guards one run needs one connection, and a second where a renewal hangs while it releases. mostOpen is
// for whoever uses one backend from many goroutines; whatever idles beyond mostIdle is closed.
const (
	mostOpen = 16
	mostIdle = 2
)

// pool hands out connections, dials them, and sends again what can be sent again.
type pool struct {
	server  *server
	name    string
	timeout time.Duration
	setup   string                                                 // what is said first on each connection
	check   func(ctx context.Context, c *conn, setup string) error // says setup, and looks at the tables
	slots   chan struct{}

	mu     sync.Mutex
	closed bool
	idle   []*conn // the one used last stands last
}

func newPool(s *server, timeout time.Duration) pool {
	name := "mysql:" + s.host + "/" + s.config.DBName
	if s.table != defaultTable {
		name += "?table=" + s.table
	}
	return pool{server: s, name: name, timeout: timeout, setup: setup(timeout), slots: make(chan struct{}, mostOpen)}
}

// setup makes the session independent of the server's defaults. A statement that waits for a lock is given up by the
// server too when the client has given up. MariaDB ends a session that stops in the middle of a transaction, as it can on
// a Galera node, where the statements come one by one.
func setup(timeout time.Duration) string {
	seconds := max(1, int64(timeout/time.Second)-1)
	return strings.Join([]string{
		"SET NAMES utf8mb4",
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"SET SESSION autocommit = 1, time_zone = '+00:00', sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'," +
			" sql_safe_updates = 0, innodb_lock_wait_timeout = " + number(seconds) +
			" /*M!100300 , idle_transaction_timeout = " + number(2*seconds) + " */",
	}, separator)
}

// Whether a request whose answer was lost may be sent again at once, before the caller learns of it.
const (
	repeatable = true
	once       = false
)

// errClosed is what a closed backend answers.
var errClosed = errors.New("it is closed")

// do carries out one operation on one connection. f may be called several times: after a collision with another
// transaction, which the server has undone; on another connection where the one tried first was cut while it idled; and,
// when again says so, where such a connection broke before the answer.
func (p *pool) do(ctx context.Context, op string, again bool, f func(context.Context, *conn) error) error {
	ctx, cancel := p.bound(ctx)
	defer cancel()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return p.fail(ctx, op, &fault{phase: "waiting for a connection", err: ctx.Err()})
	}
	for pause := 2 * time.Millisecond; ; {
		c, err := p.get(ctx)
		if err != nil {
			return p.fail(ctx, op, err)
		}
		err = f(ctx, c)
		switch {
		case err == nil || backends.Positive(err):
			p.put(c)
			return err
		case c.reused && (errors.Is(err, sqldriver.ErrBadConn) || again && broken(err)) && ctx.Err() == nil:
			p.discard(c)
		case collided(err) && c.rollback(ctx) == nil && backends.Sleep(ctx, pause/2+rand.N(pause)):
			p.put(c)
			pause = min(2*pause, 100*time.Millisecond)
		default:
			p.discard(c)
			return p.fail(ctx, op, err)
		}
	}
}

// bound sets the time-out for whoever has none.
func (p *pool) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, p.timeout)
}

// get takes the connection that was used last, or dials.
func (p *pool) get(ctx context.Context) (*conn, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, errClosed
		}
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return p.dial(ctx)
		}
		c := p.idle[n-1]
		p.idle = slices.Delete(p.idle, n-1, n)
		p.mu.Unlock()
		if c.reused = true; c.intact(ctx) {
			return c, nil
		}
		p.discard(c)
	}
}

func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= mostIdle {
		c.close()
		return
	}
	p.idle = append(p.idle, c)
}

// discard ends a connection that cannot be trusted; after a switch to another primary the name is looked up again.
func (p *pool) discard(c *conn) { c.close() }

// Close ends the idle connections; those in use end with their operation.
func (p *pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.close()
	}
	p.idle = nil
	return nil
}

// dial connects, sets the session up and looks at the tables: one exchange beyond what the driver needs to log in.
func (p *pool) dial(ctx context.Context) (*conn, error) {
	c, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.check(ctx, c, p.setup); err != nil {
		c.close()
		return nil, inPhase("looking at the tables", err)
	}
	return c, nil
}

// connect dials and logs in. The driver does both in one call; how far it came shows by whether it had a connection.
func (p *pool) connect(ctx context.Context) (*conn, error) {
	f := &fault{phase: "connecting"}
	config := p.server.config.Clone()
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, addr)
		if err == nil {
			f.phase = phaseLogin
			if config.TLS != nil {
				f.phase = phaseTLS
			}
		}
		return c, err
	}
	var connector sqldriver.Connector
	connector, f.err = driver.NewConnector(config)
	if f.err != nil {
		return nil, f
	}
	var raw sqldriver.Conn
	if raw, f.err = connector.Connect(ctx); f.err != nil {
		return nil, f
	}
	return &conn{raw: raw}, nil
}
