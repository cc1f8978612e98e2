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

// request decides whether what the client sent reaches the server.
func (l *link) request(b []byte) bool {
	l.touch()
	l.p.requests++
	for _, t := range l.p.tapes {
		t.requests = append(t.requests, bytes.Clone(b))
	}
	if l.losing != nil && l.losing.done {
		l.losing = nil
	}
	if l.p.mute {
		return false
	}
	f := l.p.take(b)
	switch {
	case f == nil:
		return true
	case f.reply:
		l.losing = f
		return true
	}
	l.lose(f)
	return false
}

// reply decides whether what the server sent reaches the client.
func (l *link) reply(b []byte) bool {
	l.touch()
	if f := l.losing; f != nil && f.alter != nil && !l.p.mute {
		f.alter(b)
		f.done, l.losing = true, nil
		return true
	}
	if l.losing != nil {
		l.lose(l.losing)
		return false
	}
	return !l.p.mute
}

// pump hands on what pass lets through, until either side ends. It takes the lock itself.
func (l *link) pump(from, to net.Conn, pass func([]byte) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			var passes bool
			var delay time.Duration
			l.p.set(func() { passes, delay = pass(buf[:n]), l.p.delay })
			time.Sleep(delay)
			if passes {
				_, err = to.Write(buf[:n])
			}
		}
		if err != nil {
			l.p.set(l.close)
			return
		}
	}
}
