package wire

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"
)

// Config is what a Client needs to know.
type Config struct {
	Brokers  []string // "b1:9092"; at least one. The others are learnt from whichever answers
	Topic    string
	ClientID string      // shown in the brokers' logs and quotas
	TLS      *tls.Config // nil: none. Where it has no ServerName, the host dialled counts

	Mechanism Mechanism // "": the strongest that the broker offers, where there is a User
	User      string    // "": no login
	Password  string

	Timeout time.Duration // bound on each call, connecting and repeating included. 0: 5 s
}

const defaultTimeout = 5 * time.Second

// Client talks to the brokers of one cluster about one topic. It connects when it is first asked something, and keeps
// connections for the next call. Its methods are safe for concurrent use; calls that run at once have connections of
// their own, so that a long fetch holds nothing up.
type Client struct {
	config Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	dials  sync.WaitGroup // that still run

	mu     sync.Mutex
	idle   map[string][]*conn // by address
	open   map[*conn]bool
	chosen Mechanism // what was found where none was named

	view view
}

// maxIdle bounds the connections kept for each broker: one for appends and reads, one for a waiter.
const maxIdle = 2

// New returns a client. It touches nothing yet.
func New(config Config) *Client {
	register()
	if config.Timeout <= 0 {
		config.Timeout = defaultTimeout
	}
	if config.login() {
		registerSASL()
	}
	config.Brokers = WithPorts(config.Brokers)
	c := &Client{config: config, idle: make(map[string][]*conn), open: make(map[*conn]bool), chosen: config.Mechanism}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.view.turn = make(chan struct{}, 1)
	return c
}

// defaultPort is Kafka's own.
const defaultPort = "9092"

// WithPorts completes addresses that have no port with Kafka's own.
func WithPorts(brokers []string) []string {
	brokers = slices.Clone(brokers)
	for i, b := range brokers {
		if _, port, err := net.SplitHostPort(b); err != nil || port == "" {
			brokers[i] = net.JoinHostPort(hostOf(b), defaultPort)
		}
	}
	return brokers
}

// hostOf takes off the brackets of an address and a colon without a port.
func hostOf(b string) string {
	if host, _, err := net.SplitHostPort(b); err == nil {
		return host
	}
	if n := len(b); n > 2 && b[0] == '[' && b[n-1] == ']' {
		return b[1 : n-1]
	}
	return b
}

// Close ends all connections, and with them every call that still runs, and waits until nothing of the client runs.
func (c *Client) Close() error {
	c.cancel()
	c.mu.Lock()
	for cn := range c.open {
		cn.Close()
	}
	c.idle, c.open = nil, nil
	c.mu.Unlock()
	c.dials.Wait()
	return nil
}

// spawn runs f on its own, for Close to wait for, and tells whether it does: not after Close.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return false
	}
	c.dials.Go(f)
	return true
}

// bound gives a call its time: ctx's, the client's life, and at most the time-out beside what it waits on purpose.
func (c *Client) bound(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout+wait)
	stop := context.AfterFunc(c.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// connection takes an idle connection to a broker, or makes one.
func (c *Client) connection(ctx context.Context, address string) (*conn, error) {
	for {
		cn := c.takeIdle(address)
		if cn == nil {
			break
		}
		if cn.alive() && !cn.expired() {
			return cn, nil
		}
		c.drop(cn)
	}
	cn, err := c.dial(ctx, address)
	for try := 1; isTryAgain(err) && try < len(byStrength); try++ {
		cn, err = c.dial(ctx, address)
	}
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		cn.Close()
		return nil, failed(PhaseDial, address, ErrClosed)
	}
	c.open[cn] = true
	return cn, nil
}

// expired tells whether the broker will not take a request on the connection any more, for it wants a new login.
func (cn *conn) expired() bool { return !cn.expires.IsZero() && time.Now().After(cn.expires) }

func (c *Client) takeIdle(address string) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.idle[address]
	if len(list) == 0 {
		return nil
	}
	cn := list[len(list)-1]
	c.idle[address] = list[:len(list)-1]
	return cn
}

// giveBack keeps a connection for the next call, unless it is of no more use. One that is lent comes back later.
func (c *Client) giveBack(cn *conn) {
	if cn.lent {
		return
	}
	c.mu.Lock()
	keep := c.open[cn] && !cn.broken && len(c.idle[cn.address]) < maxIdle
	if keep {
		c.idle[cn.address] = append(c.idle[cn.address], cn)
	}
	c.mu.Unlock()
	if !keep {
		c.drop(cn)
	}
}

func (c *Client) drop(cn *conn) {
	c.mu.Lock()
	delete(c.open, cn)
	c.mu.Unlock()
	cn.Close()
}

// hasIdle tells whether a broker can be asked without dialling.
func (c *Client) hasIdle(address string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.idle[address]) > 0
}

// mechanism is what to log in by.
func (c *Client) mechanism() Mechanism {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.chosen == "" {
		c.chosen = byStrength[0]
	}
	return c.chosen
}

// weaken goes from one mechanism to a weaker one, and tells whether that is a change: each is tried once.
func (c *Client) weaken(from, to Mechanism) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Index(byStrength, to) <= slices.Index(byStrength, from) {
		return false
	}
	if slices.Index(byStrength, c.chosen) < slices.Index(byStrength, to) {
		c.chosen = to
	}
	return true
}
