package testserver

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// Proxy stands in front of a TCP server and spoils what passes, at the moment that a test asks for.
//
// It is our own and not toxiproxy because the fault that matters most here is "this very reply is lost": toxiproxy's
// toxics work on times and byte counts, not on the request that a reply belongs to, and none of them drops connections
// that idle. Beside that, toxiproxy 2.5.0 was measured to add 15 modules to go.mod and 450 lines to go.sum, for tests alone.
//
// A request is what arrives in one read from the client. That fits the protocols here, in which a client sends a request
// in one piece, far below a read's 64 KB, and waits for its reply. Under TLS requests cannot be told apart by content.
type Proxy struct {
	t        TB
	upstream string
	address  string

	mu       sync.Mutex
	listener net.Listener // nil while refusing
	links    map[*link]bool
	faults   []*fault
	mute     bool          // nothing passes
	delay    time.Duration // of whatever passes
	idle     time.Duration // longest silence of a connection; 0: any
	accepted int
	requests int
	tapes    []*tape
}

// tape keeps requests while it runs.
type tape struct{ requests [][]byte }

// fault is one request or reply to lose, or a reply to alter.
type fault struct {
	match []byte // the request holds this
	reply bool   // lose the reply, else the request
	alter func(reply []byte) bool
	after After
	done  bool // it is lost, or altered
}

// After says what happens to a connection on which something was lost.
type After int

const (
	// KeepOpen leaves the connection as if nothing had happened: its client waits for an answer.
	KeepOpen After = iota
	// CloseIt closes the connection to client and server.
	CloseIt
)

// StartProxy starts a proxy for the server at upstream ("127.0.0.1:6379"), through which everything passes at first. It
// ends with the test.
func StartProxy(t TB, upstream string) *Proxy {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatalf("%v", err)
	}
	p := &Proxy{t: t, upstream: upstream, address: addr(port), links: make(map[*link]bool)}
	p.Accept()
	t.Cleanup(p.Refuse)
	return p
}

// Addr is the address that clients are told.
func (p *Proxy) Addr() string { return p.address }

// Accepted counts the connections so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Requests counts the requests so far, lost ones included: what a client sends in one piece is one request, so that a
// pipeline counts once, as it costs one round trip.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// Record keeps all requests from now on until the returned function is called, which gives them in order.
func (p *Proxy) Record() func() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &tape{}
	p.tapes = append(p.tapes, t)
	return func() [][]byte {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tapes = slices.DeleteFunc(p.tapes, func(other *tape) bool { return other == t })
		return t.requests
	}
}

// LoseReply lets the next request that contains match reach the server, and loses the server's answer to it. An empty
// match is any request. The returned function tells whether that has happened, which is after the server has answered.
func (p *Proxy) LoseReply(match string, after After) func() bool {
	return p.arm(&fault{match: []byte(match), reply: true, after: after})
}

// LoseRequest loses the next request that contains match, so that the server never sees it.
func (p *Proxy) LoseRequest(match string, after After) func() bool {
	return p.arm(&fault{match: []byte(match), after: after})
}

// AlterReply lets alter change the server's answer to the next request that contains match, in place. It is shown what has
// come of the answer, again and again with more, until it returns true because that was enough; until then nothing reaches
// the client. The returned function tells whether that has happened.
func (p *Proxy) AlterReply(match string, alter func(reply []byte) bool) func() bool {
	return p.arm(&fault{match: []byte(match), reply: true, alter: alter})
}

func (p *Proxy) arm(f *fault) func() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return f.done
	}
}

// take removes and returns the first armed fault that a request meets, or nil.
func (p *Proxy) take(request []byte) *fault {
	for i, f := range p.faults {
		if bytes.Contains(request, f.match) {
			p.faults = slices.Delete(p.faults, i, i+1)
			return f
		}
	}
	return nil
}

// BlackHole makes the proxy take everything from both sides and pass nothing on, also on new connections, until Heal.
// What was swallowed is lost.
func (p *Proxy) BlackHole() { p.set(func() { p.mute = true }) }

// Heal ends BlackHole, Delay and DropIdle, disarms what was armed, and accepts again after Refuse.
func (p *Proxy) Heal() {
	p.t.Helper()
	p.set(func() { p.mute, p.delay, p.idle, p.faults = false, 0, 0, nil })
	p.Accept()
}

// Delay holds back whatever arrives from either side for d, so that a round trip takes 2d longer.
func (p *Proxy) Delay(d time.Duration) { p.set(func() { p.delay = d }) }

// DropIdle closes, from now on, connections on which nothing has come from either side for d, like a pooler or a firewall.
func (p *Proxy) DropIdle(d time.Duration) {
	p.set(func() {
		p.idle = d
		for l := range p.links {
			l.touch()
		}
	})
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// Reset ends all connections with a TCP reset. New ones are accepted.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.client.SetLinger(0)
		l.close()
	}
}

// HangUp closes all connections without a fault, as servers do with those that have idled for long: the next request on one
// is sent, and never answered.
func (p *Proxy) HangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Refuse ends all connections, and new ones are refused, as if no server ran there.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.close()
	}
}

// Accept ends Refuse.
func (p *Proxy) Accept() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	l, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatalf("proxy for %s: %v", p.upstream, err)
	}
	p.listener = l
	go p.serve(l)
}

func (p *Proxy) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go p.connect(c.(*net.TCPConn))
		}
	}
}

// connect joins a client with the server. A server that cannot be reached shows as a connection closed at once.
func (p *Proxy) connect(client *net.TCPConn) {
	p.set(func() { p.accepted++ })
	server, err := net.DialTimeout("tcp", p.upstream, respBound)
	if err != nil {
		client.Close()
		return
	}
	l := &link{p: p, client: client, server: server}
	p.mu.Lock()
	refusing := p.listener == nil
	if !refusing {
		p.links[l] = true
		l.touch()
	}
	p.mu.Unlock()
	if refusing {
		l.close()
		return
	}
	go l.pump(client, server, l.request)
	l.pump(server, client, l.reply)
	p.set(func() { delete(p.links, l) })
}
