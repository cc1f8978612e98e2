package main

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/memory"
	"github.com/lockrun/lockrun/internal/metrics"
)

func TestOutcomesOfMetricsAreThoseOfRecords(t *testing.T) {
	all := []backends.Outcome{backends.Succeeded, backends.Failed, backends.Skipped, backends.Done, backends.Lost, backends.TimedOut,
		backends.Unavailable, backends.NotStarted, backends.Unlocked, backends.Crashed}
	var names []string
	for _, o := range all {
		names = append(names, string(o))
	}
	if !slices.Equal(names, metrics.Outcomes[:]) {
		t.Errorf("metrics know %q, records %q", metrics.Outcomes, names)
	}
}

// eventful is a store in which everything has happened that metrics tell.
func eventful(t *testing.T) *memory.Store {
	t.Helper()
	store := memory.New(time.Now, backends.DefaultKeep)
	b := store.Open()
	code := 3
	for range 2 {
		release(t, taken(t, store, backends.Request{Key: "k"}), backends.End{Outcome: backends.Succeeded, Duration: time.Second})
	}
	release(t, taken(t, store, backends.Request{Key: "k"}), backends.End{Outcome: backends.Failed, ExitCode: &code})
	taken(t, store, backends.Request{Key: "k"})
	store.Expire("k")
	taken(t, store, backends.Request{Key: "k", TTL: time.Hour})
	for range 3 {
		_, err := b.Acquire(t.Context(), backends.Request{Key: "k", Owner: backends.NewOwner(), TTL: time.Minute, Slots: 1, Last: true, Waited: 2 * time.Second})
		var held *backends.HeldError
		if !errors.As(err, &held) {
			t.Fatal(err)
		}
	}
	taken(t, store, backends.Request{Key: "ran out"})
	store.Expire("ran out")
	return store
}

func release(t *testing.T, l backends.Lease, end backends.End) {
	t.Helper()
	if err := l.Release(t.Context(), end); err != nil {
		t.Fatal(err)
	}
}

var eventfulText = []string{
	`lockrun_runs_total{key="k",outcome="succeeded"} 2`, `lockrun_runs_total{key="k",outcome="failed"} 1`,
	`lockrun_runs_total{key="k",outcome="skipped"} 3`, `lockrun_runs_total{key="k",outcome="crashed"} 1`,
	`lockrun_runs_total{key="k",outcome="lost"} 0`, `lockrun_takeovers_total{key="k"} 1`, `lockrun_last_exit_code{key="k"} 3`,
	`lockrun_held{key="k"} 1`, `lockrun_waiters{key="k"} 0`, `lockrun_wait_duration_seconds_sum{key="k"} 6`,
	`lockrun_hold_duration_seconds_count{key="k"} 4`,
	`lockrun_runs_total{key="ran out",outcome="crashed"} 1`, `lockrun_takeovers_total{key="ran out"} 0`, `lockrun_held{key="ran out"} 0`,
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestMetrics(t *testing.T) {
	store := eventful(t)
	for name, b := range map[string]backends.Backend{"history of each key": store.Open(), "a walk": walker{store.Open()}} {
		got := invoke(t, func(context.Context, *Config) (backends.Backend, error) { return b, nil }, nil, "metrics")
		if got.code != 0 || got.err != "" {
			t.Errorf("%s: %+v", name, got)
		}
		wantLines(t, got.out, eventfulText...)
		wantLines(t, got.out, `lockrun_last_success_timestamp_seconds{key="k"} `+field(got.out, "lockrun_last_success_timestamp_seconds"))
		if strings.Contains(got.out, `expires_timestamp_seconds{key="ran out"}`) {
			t.Errorf("%s: what is not held has an end", name)
		}
	}
}

// field is the value of the first sample of a metric.
func field(text, name string) string {
	_, rest, _ := strings.Cut(text, "\n"+name+"{")
	_, rest, _ = strings.Cut(rest, "} ")
	v, _, _ := strings.Cut(rest, "\n")
	return v
}

// walker is a store that hands out its history record by record.
type walker struct{ backends.Backend }

func (w walker) Walk(ctx context.Context, q backends.Query, f func(*backends.Record) error) error {
	all, err := w.History(ctx, q)
	for i := range all {
		if err == nil {
			err = f(&all[i])
		}
	}
	return err
}

// stopping is a walker that tells one record and no more.
type stopping struct{ walker }

func (s stopping) Walk(ctx context.Context, q backends.Query, f func(*backends.Record) error) error {
	q.Limit = 1
	if err := s.walker.Walk(ctx, q, f); err != nil {
		return err
	}
	<-ctx.Done()
	return &backends.Error{Op: "history", Backend: s.Name(), Err: ctx.Err()}
}

// A store that stops in the middle of its history has not answered in time, and nobody has cancelled anything.
func TestATallyOfAStoreThatFallsSilent(t *testing.T) {
	store := eventful(t)
	synctest.Test(t, func(t *testing.T) {
		err := newTally(5*time.Second).update(t.Context(), stopping{walker{store.Open()}})
		if codeOf(err) != codeUnavailable || !strings.Contains(err.Error(), "metrics on memory:: no answer in time, after 1 records") || strings.Contains(err.Error(), "cancel") {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // told to end, which is nothing of the store's
		if err := newTally(5*time.Second).update(ctx, stopping{walker{store.Open()}}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// A counter must not fall when the store forgets, nor count anything twice.
func TestATallyOutlivesTheHistory(t *testing.T) {
	store := memory.New(time.Now, backends.Keep{Runs: 5})
	b := store.Open()
	tally := newTally(time.Minute)
	total := 0
	for _, n := range []int{3, 0, 1, 5, 2, 0} {
		for range n {
			release(t, taken(t, store, backends.Request{Key: "k"}), backends.End{Outcome: backends.Succeeded})
		}
		total += n
		if err := tally.update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		wantLines(t, textOf(t, tally), fmt.Sprintf(`lockrun_runs_total{key="k",outcome="succeeded"} %d`, total))
	}
}

// More runs than the first page between two updates.
func TestATallyReadsAsFarAsThereIsNews(t *testing.T) {
	store := memory.New(time.Now, backends.DefaultKeep)
	tally := newTally(time.Minute)
	want := 0
	for range 2 {
		for i := range 2*firstPage + 1 {
			release(t, taken(t, store, backends.Request{Key: fmt.Sprintf("k%d", i%3)}), backends.End{Outcome: backends.Failed})
			want++
		}
		if err := tally.update(t.Context(), store.Open()); err != nil {
			t.Fatal(err)
		}
	}
	got := 0
	for line := range strings.Lines(textOf(t, tally)) {
		var key string
		var n int
		if _, err := fmt.Sscanf(line, "lockrun_runs_total{key=%q,outcome=\"failed\"} %d", &key, &n); err == nil {
			got += n
		}
	}
	if got != want {
		t.Errorf("%d runs are counted of %d", got, want)
	}
}

// A crash counts as a takeover when another has the key, and a correction of its record shows.
func TestATallyFollowsACrash(t *testing.T) {
	store := memory.New(time.Now, backends.DefaultKeep)
	b := store.Open()
	tally := newTally(time.Minute)
	update := func(want ...string) {
		t.Helper()
		if err := tally.update(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		wantLines(t, textOf(t, tally), want...)
	}
	l := taken(t, store, backends.Request{Key: "k"})
	store.Expire("k")
	update(`lockrun_takeovers_total{key="k"} 0`, `lockrun_runs_total{key="k",outcome="crashed"} 1`)
	taken(t, store, backends.Request{Key: "k"})
	update(`lockrun_takeovers_total{key="k"} 1`, `lockrun_runs_total{key="k",outcome="crashed"} 1`)
	if err := b.Record(t.Context(), backends.Record{Key: "k", Token: l.Grant().Token, Outcome: backends.Lost}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		update(`lockrun_takeovers_total{key="k"} 1`, `lockrun_runs_total{key="k",outcome="lost"} 1`, `lockrun_runs_total{key="k",outcome="crashed"} 1`)
	}
}

// Several hosts that are refused in the same millisecond are several, also where the store tells no more of the time.
func TestATallyCountsRefusalsOfOneInstant(t *testing.T) {
	now := time.Now()
	store := memory.New(func() time.Time { return now }, backends.DefaultKeep)
	b := store.Open()
	tally := newTally(time.Minute)
	taken(t, store, backends.Request{Key: "k"})
	for want := 1; want <= 3; want++ {
		_, err := b.Acquire(t.Context(), backends.Request{Key: "k", Owner: backends.NewOwner(), TTL: time.Minute, Slots: 1, Last: true})
		var held *backends.HeldError
		if !errors.As(err, &held) {
			t.Fatal(err)
		}
		if want == 1 {
			continue // two at the first look, and one more at the next
		}
		for range 2 {
			if err := tally.update(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			wantLines(t, textOf(t, tally), fmt.Sprintf(`lockrun_runs_total{key="k",outcome="skipped"} %d`, want))
		}
	}
}

func textOf(t *testing.T, tally *tally) string {
	t.Helper()
	var b strings.Builder
	if _, err := tally.set.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// flakyStore counts how often a store is asked, and fails where it is told to.
type flakyStore struct {
	backends.Backend
	asked atomic.Int32
	err   atomic.Pointer[error]
}

func (c *flakyStore) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	c.asked.Add(1)
	if err := c.err.Load(); err != nil {
		return nil, *err
	}
	return c.Backend.Status(ctx, keys...)
}

// scraped asks once, in plain text or compressed.
func scraped(t *testing.T, h http.Handler, compressed bool) (int, string) {
	t.Helper()
	r, w := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
	if compressed {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	h.ServeHTTP(w, r)
	var body io.Reader = w.Body
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		body = z
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(text)
}

func TestScrapesShareOneReading(t *testing.T) {
	store := eventful(t)
	b := &flakyStore{}
	opened := 0
	s := &scrapes{ctx: t.Context(), c: &call{cfg: &Config{BackendTimeout: time.Minute}, ui: newUI(nil, nil),
		open: func(context.Context, *Config) (backends.Backend, error) {
			opened++
			b.Backend = store.Open()
			return b, nil
		}}}
	h := s.handler()
	for i := range 10 {
		code, text := scraped(t, h, i%2 == 0)
		if code != 200 {
			t.Fatalf("%d: %s", code, text)
		}
		wantLines(t, text, eventfulText...)
	}
	if n := b.asked.Load(); n != 2 || opened != 1 { // the first reading lists the keys too
		t.Errorf("ten scrapes asked the store %d times, and opened it %d times", n, opened)
	}
	s.next = time.Time{}
	down := error(&backends.Error{Op: "status", Backend: "memory:", Err: errors.New("no route to host")})
	b.err.Store(&down)
	for range 3 {
		if code, text := scraped(t, h, false); code != http.StatusServiceUnavailable || !strings.Contains(text, "no route to host") {
			t.Errorf("of a store that is down: %d %s", code, text)
		}
	}
	if n := b.asked.Load(); n != 3 {
		t.Errorf("a store that is down was asked %d times", n-2)
	}
	b.err.Store(nil)
	s.next = time.Time{}
	if code, text := scraped(t, h, false); code != 200 || opened != 2 {
		t.Errorf("of a store that is back: %d %s, opened %d times", code, text, opened)
	} else {
		wantLines(t, text, eventfulText...)
	}
}

func TestListenWantsAnAddress(t *testing.T) {
	for _, addr := range []string{"9469", "localhost", "http://localhost:1", ":"} {
		if got := invoke(t, untouched(t), nil, "metrics", "--listen", addr); got.code != codeUsage || !strings.Contains(got.err, "HOST:PORT") {
			t.Errorf("%s: %+v", addr, got)
		}
	}
	if got := invoke(t, untouched(t), nil, "metrics", "--listen", "192.0.2.1:1"); got.code != codeNo || !strings.Contains(got.err, "cannot listen") {
		t.Errorf("%+v", got)
	}
}

// Clients that keep connections open and ask for nothing, or begin to ask and go no further, keep nobody from a scrape.
func TestIdleConnectionsBlindNobody(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &fewConns{Listener: tcp, most: 4}
	s := &http.Server{ConnState: connState, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answer") })}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	for _, begin := range []string{"", "GET /metrics HT"} {
		var idle []net.Conn
		for range 3 * l.most {
			c, err := net.Dial("tcp", tcp.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, begin); err != nil && begin == "" {
				t.Fatal(err)
			}
			idle = append(idle, c)
		}
		client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Get("http://" + tcp.Addr().String())
		if err != nil {
			t.Fatalf("behind %d connections: %v", len(idle), err)
		}
		answer.Body.Close()
		_ = idle[0].SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := idle[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the oldest connection is still open: %v", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) > l.most {
		t.Errorf("%d connections are open", len(l.open))
	}
}
