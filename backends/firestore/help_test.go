package firestore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

func request(key string) backends.Request {
	return backends.Request{Key: key, Owner: backends.NewOwner(), Holder: "alpha", Host: "host-a", PID: 1, TTL: time.Minute, Slots: 1}
}

func acquire(t testing.TB, b backends.Backend, r backends.Request) backends.Lease {
	t.Helper()
	l, err := b.Acquire(context.Background(), r)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return l
}

func release(t testing.TB, l backends.Lease) {
	t.Helper()
	if err := l.Release(context.Background(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

func stateOf(t testing.TB, b backends.Backend, key string) backends.State {
	t.Helper()
	all, err := b.Status(context.Background(), key)
	if err != nil || len(all) != 1 {
		t.Fatalf("Status %q = %+v, %v", key, all, err)
	}
	return all[0]
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// patience bounds what is waited for; only a test that fails waits that long.
const patience = 30 * time.Second

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// unknown wants an answer that is not known, in one line that has these parts.
func unknown(t testing.TB, err error, permanent bool, parts ...string) {
	t.Helper()
	var e *backends.Error
	if !errors.As(err, &e) || backends.Positive(err) {
		t.Fatalf("%v is no *backends.Error that says that the answer is not known", err)
	}
	text := err.Error()
	if e.Permanent != permanent || strings.Contains(text, "\n") {
		t.Errorf("permanent is %v: %s", e.Permanent, text)
	}
	if e.Remedy == "" && !errors.Is(err, context.Canceled) {
		t.Errorf("there is no remedy: %s", text)
	}
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in: %s", p, text)
		}
	}
}

// meddler stands in front of the emulator and answers some requests itself, as Google's servers do at times and the
// emulator does not.
type meddler struct {
	*httptest.Server
	mu    sync.Mutex
	seen  []string // verbs: "commit", "batchGet"
	plans []*plan
}

// plan is an answer for the next n requests of a verb ("" for all).
type plan struct {
	verb   string
	n      int
	status int
	text   string
	after  bool          // the request is carried out, and its answer lost
	held   chan struct{} // the request is carried out when this is closed, and its answer lost
	done   chan struct{} // closed when that has been done
	then   func()        // called before the answer is given
}

func newMeddler(t testing.TB) *meddler {
	t.Helper()
	m := &meddler{}
	target := &url.URL{Scheme: "http", Host: emulatorFor(t).Addr()}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // clients that give up are no news
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		p := m.meet(r.URL.Path[strings.LastIndexByte(r.URL.Path, ':')+1:])
		if p != nil && p.held != nil {
			<-p.held
			proxy.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
			close(p.done)
		}
		if p != nil && p.after {
			proxy.ServeHTTP(httptest.NewRecorder(), r)
		}
		if p == nil {
			proxy.ServeHTTP(w, r)
			return
		}
		if p.then != nil {
			p.then()
		}
		w.WriteHeader(max(p.status, http.StatusOK))
		io.WriteString(w, p.text)
	}))
	t.Cleanup(m.Close)
	return m
}

func (m *meddler) meet(verb string) *plan {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = append(m.seen, verb)
	for _, p := range m.plans {
		if p.n > 0 && (p.verb == "" || p.verb == verb) {
			p.n--
			return p
		}
	}
	return nil
}

func (m *meddler) plan(p plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plans = append(m.plans, &p)
}

// verbs are those that were seen since the last call.
func (m *meddler) verbs() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.seen
	m.seen = nil
	return seen
}

// through is a fresh collection's URL that leads through the meddler.
func (m *meddler) through(t testing.TB) string {
	return strings.Replace(freshURL(t), emulatorFor(t).Addr(), m.Listener.Addr().String(), 1)
}
