package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockrun/lockrun/backends"
)

const (
	// A scrape is answered from the last reading of the store while that is not older than freshFor, nor than ten times
	// what it took: the store has other work than being watched.
	freshFor     = 5 * time.Second
	restPerRead  = 10
	listenConns  = 64               // at once; see fewConns
	headersBound = 5 * time.Second  // for a client to say what it wants
	idleBound    = 10 * time.Second // for it to say that again
	answerBound  = 30 * time.Second // for it to take the answer
	farewell     = 3 * time.Second  // for scrapes under way when lockrun is told to end
)

// serveMetrics answers scrapes until TERM or INT.
func serveMetrics(c *call) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	l, err := net.Listen("tcp", c.cfg.Listen)
	if err != nil {
		c.ui.err("cannot listen: %v; give --listen a free address of this host", err)
		return c.cfg.exit(codeNo)
	}
	s := &scrapes{c: c, ctx: ctx}
	defer s.close()
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: headersBound, WriteTimeout: answerBound + 2*c.cfg.BackendTimeout,
		IdleTimeout: idleBound, ConnState: connState, MaxHeaderBytes: 16 << 10, ErrorLog: log.New(io.Discard, "", 0),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(&fewConns{Listener: l, most: listenConns}) }()
	c.ui.notice("serving metrics on http://%s/metrics", l.Addr())
	select {
	case err := <-failed:
		c.ui.err("serving ended: %v", err)
		return c.cfg.exit(codeNo)
	case <-ctx.Done():
	}
	bye, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	if server.Shutdown(bye) != nil {
		_ = server.Close() // whoever has not taken its answer by now does without
	}
	return codeOK
}

// scrapes answers them, one reading of the store at a time.
type scrapes struct {
	c   *call
	ctx context.Context

	mu    sync.Mutex
	b     backends.Backend // nil: to be opened
	t     *tally           // nil: to be counted from the beginning
	next  time.Time        // when the store may be read again
	page  []byte           // compressed: the text of 10,000 keys has 26 MB, and this 1.5
	err   error
	wrong bool // the last reading failed, and that was told
}

func (s *scrapes) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		page, err := s.current()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(page) // whoever hung up is not interested
			return
		}
		if text, err := gzip.NewReader(bytes.NewReader(page)); err == nil {
			_, _ = io.Copy(w, text)
		}
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("lockrun: the metrics are at /metrics\n"))
	})
	return mux
}

// current is the text of a scrape: a new one where the last is old. Scrapes that come together share one reading, and
// one that fails: a store that does not answer is not asked by each of them in turn.
func (s *scrapes) current() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.next) {
		return s.page, s.err
	}
	began := time.Now()
	s.page, s.err = s.read()
	took := time.Since(began)
	s.next = time.Now().Add(max(freshFor, restPerRead*took))
	if s.err != nil {
		s.next = time.Now().Add(time.Second)
	}
	s.tell(s.err)
	return s.page, s.err
}

// tell says once that the store cannot be read, and once that it can be again.
func (s *scrapes) tell(err error) {
	switch {
	case err != nil && !s.wrong:
		s.c.ui.warn("scrapes are answered with an error: %v", err)
	case err == nil && s.wrong:
		s.c.ui.warn("the store can be read again")
	}
	s.wrong = err != nil
}

// read brings the tally up to date. After an error everything that may be broken is made anew, but for what was counted:
// counters that fall look like new ones.
func (s *scrapes) read() ([]byte, error) {
	var err error
	if s.b == nil {
		if s.b, err = within(s.ctx, s.c.cfg.BackendTimeout, func(ctx context.Context) (backends.Backend, error) {
			return s.c.open(ctx, s.c.cfg)
		}); err != nil {
			s.b = nil
			return nil, err
		}
	}
	if s.t == nil || !s.t.begun {
		s.t = newTally(s.c.cfg.BackendTimeout)
	}
	if err := s.t.update(s.ctx, s.b); err != nil {
		s.close()
		return nil, err
	}
	var page bytes.Buffer
	z, err := gzip.NewWriterLevel(&page, gzip.BestSpeed)
	if err == nil {
		_, err = s.t.set.WriteTo(z)
	}
	if err == nil {
		err = z.Close()
	}
	return page.Bytes(), err
}

func (s *scrapes) close() {
	if s.b != nil {
		_ = s.b.Close()
		s.b = nil
	}
}

// fewConns has so many connections at once. Where there are more, the oldest of those that ask for nothing is closed, or the
// oldest of all: clients that only keep connections open, or do not take their answers, keep nobody from a scrape.
type fewConns struct {
	net.Listener
	most int

	mu   sync.Mutex
	open []*oneConn // in the order of coming
}

// Accept implements net.Listener.
func (l *fewConns) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &oneConn{Conn: accepted, of: l}
	l.mu.Lock()
	var victim *oneConn
	if len(l.open) >= l.most {
		victim = l.open[max(slices.IndexFunc(l.open, func(o *oneConn) bool { return !o.busy.Load() }), 0)]
	}
	l.open = append(l.open, c)
	l.mu.Unlock()
	if victim != nil {
		_ = victim.Close() // the server closes it once more
	}
	return c, nil
}

type oneConn struct {
	net.Conn
	of   *fewConns
	busy atomic.Bool // a request has begun and is not answered
}

// Close may be called several times.
func (c *oneConn) Close() error {
	c.of.mu.Lock()
	c.of.open = slices.DeleteFunc(c.of.open, func(o *oneConn) bool { return o == c })
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// connState is told by the server what a connection is at.
func connState(c net.Conn, s http.ConnState) {
	if c, ok := c.(*oneConn); ok {
		c.busy.Store(s == http.StateActive)
	}
}

var errListen = errors.New("it is not an address to listen on; write HOST:PORT, or :PORT for all of this host's")

// checkListen tells whether text is an address.
func checkListen(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil || port == "" {
		return errListen
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return errors.New("it has no port from 0 to 65535 after the last colon; correct it")
	}
	return nil
}
