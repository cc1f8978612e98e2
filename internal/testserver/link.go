package testserver

import (
	"bytes"
	"net"
	"time"
)

// link is one connection through a proxy. The proxy's lock guards its fields and has to be held by those who call its
// methods, except where they say otherwise.
type link struct {
	p      *Proxy
	client *net.TCPConn
	server net.Conn
	idle   *time.Timer
	losing *fault // the server's answers are lost until the next request
	held   []byte // what has come of an answer that is going to be altered
}

// close ends both sides; the pumps notice.
func (l *link) close() {
	l.client.Close()
	l.server.Close()
	if l.idle != nil {
		l.idle.Stop()
	}
}

// touch starts the idle time again.
func (l *link) touch() {
	if l.idle != nil {
		l.idle.Stop()
	}
	if l.p.idle > 0 {
		l.idle = time.AfterFunc(l.p.idle, func() { l.p.set(l.close) })
	}
}

// lose carries out a fault.
func (l *link) lose(f *fault) {
	f.done = true
	if f.after == CloseIt {
		l.close()
	}
}

// request returns what reaches the server of what the client sent.
func (l *link) request(b []byte) []byte {
	l.touch()
	l.p.requests++
	for _, t := range l.p.tapes {
		t.requests = append(t.requests, bytes.Clone(b))
	}
	if l.losing != nil && l.losing.done {
		l.losing = nil
	}
	if l.p.mute {
		return nil
	}
	f := l.p.take(b)
	switch {
	case f == nil:
		return b
	case f.reply:
		l.losing = f
		return b
	}
	l.lose(f)
	return nil
}

// reply returns what reaches the client of what the server sent.
func (l *link) reply(b []byte) []byte {
	l.touch()
	switch f := l.losing; {
	case f != nil && f.alter == nil:
		l.lose(f)
		return nil
	case l.p.mute:
		return nil
	case f == nil:
		return b
	}
	if l.held = append(l.held, b...); !l.losing.alter(l.held) {
		return nil
	}
	b, l.held = l.held, nil
	l.losing.done, l.losing = true, nil
	return b
}

// pump hands on what pass returns, until either side ends. It takes the lock itself.
func (l *link) pump(from, to net.Conn, pass func([]byte) []byte) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			var passed []byte
			var delay time.Duration
			l.p.set(func() { passed, delay = pass(buf[:n]), l.p.delay })
			time.Sleep(delay)
			if passed != nil {
				_, err = to.Write(passed)
			}
		}
		if err != nil {
			l.p.set(l.close)
			return
		}
	}
}
