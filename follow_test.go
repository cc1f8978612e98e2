package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// followed is a "history --follow" under way in this process.
type followed struct {
	t     *testing.T
	r     *os.File
	lines *bufio.Reader
	err   *os.File
	code  chan int
}

// startFollowing begins one with these words after the verb.
func startFollowing(t *testing.T, open opener, argv ...string) *followed {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	f := &followed{t: t, r: r, lines: bufio.NewReader(r), err: errs, code: make(chan int, 1)}
	go func() {
		f.code <- dispatch(append([]string{"history", "--follow", "--interval", "5ms"}, argv...), IO{Out: w, Err: errs}, open)
		_ = w.Close()
	}()
	t.Cleanup(func() { _ = r.Close(); _ = errs.Close() })
	return f
}

func (f *followed) line() string {
	f.t.Helper()
	if err := f.r.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		f.t.Fatal(err)
	}
	s, err := f.lines.ReadString('\n')
	if err != nil {
		f.t.Fatalf("no line: %v, after %q; it said %s", err, s, contents(f.t, f.err))
	}
	return strings.TrimSuffix(s, "\n")
}

func (f *followed) outcome() string {
	f.t.Helper()
	var r struct{ Outcome string }
	if text := f.line(); json.Unmarshal([]byte(text), &r) != nil {
		f.t.Fatalf("no record: %s", text)
	}
	return r.Outcome
}

// close takes the reader away, which ends it, and gives its exit code.
func (f *followed) close() int {
	f.t.Helper()
	_ = f.r.Close()
	select {
	case code := <-f.code:
		return code
	case <-time.After(30 * time.Second):
		f.t.Fatal("it goes on although nobody reads")
		return 0
	}
}

func end(t *testing.T, l backends.Lease, o backends.Outcome) {
	t.Helper()
	if err := l.Release(t.Context(), backends.End{Outcome: o}); err != nil {
		t.Fatal(err)
	}
}

func TestFollow(t *testing.T) {
	store, open := inMemory()
	for _, o := range []backends.Outcome{backends.Succeeded, backends.Failed, backends.TimedOut} {
		end(t, taken(t, store, backends.Request{Key: "k"}), o)
	}
	f := startFollowing(t, open, "--json", "-n", "2", "k")
	if a, b := f.outcome(), f.outcome(); a != "failed" || b != "timeout" {
		t.Errorf("the last two, oldest first: %s, %s", a, b)
	}
	end(t, taken(t, store, backends.Request{Key: "other"}), backends.Failed)
	l := taken(t, store, backends.Request{Key: "k"})
	end(t, l, backends.NotStarted)
	if o := f.outcome(); o != "not-started" {
		t.Errorf("the new one: %s", o)
	}
	if code := f.close(); code != 141 {
		t.Errorf("without a reader it ends with %d", code)
	}
}

func TestFollowTellsOfACrashAndWhatBecomesOfIt(t *testing.T) {
	store, open := inMemory()
	f := startFollowing(t, open, "--json", "--outcome", "crashed,lost")
	l := taken(t, store, backends.Request{Key: "k", TTL: 20 * time.Millisecond})
	if o := f.outcome(); o != "crashed" {
		t.Errorf("a lease that ran out: %s", o)
	}
	g := l.Grant()
	rec := backends.Record{Key: "k", Token: g.Token, Slot: &g.Slot, Outcome: backends.Lost, StartedAt: g.AcquiredAt, EndedAt: g.AcquiredAt.Add(time.Second)}
	if err := store.Open().Record(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if o := f.outcome(); o != "lost" {
		t.Errorf("the same run, known better: %s", o)
	}
	f.close()
}

func TestFollowAsATable(t *testing.T) {
	store, open := inMemory()
	f := startFollowing(t, open)
	if head := f.line(); !strings.HasPrefix(head, "STARTED               KEY ") {
		t.Errorf("heading %q", head)
	}
	for _, key := range []string{"a", strings.Repeat("long", 20), "b"} {
		end(t, taken(t, store, backends.Request{Key: key}), backends.Succeeded)
		if row := f.line(); !strings.Contains(row, "Z  "+key+" ") || !strings.Contains(row, "succeeded") {
			t.Errorf("row %q", row)
		}
	}
	f.close()
}

// blinking is a store that does not answer while told so.
type blinking struct {
	backends.Backend
	shut *atomic.Bool
}

func (b blinking) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	if b.shut.Load() {
		return nil, &backends.Error{Op: "history", Backend: "test:", Err: errors.New("gone"), Remedy: "look"}
	}
	return b.Backend.History(ctx, q)
}

func TestFollowOutlastsAStoreThatIsAway(t *testing.T) {
	store, _ := inMemory()
	shut := &atomic.Bool{}
	open := func(context.Context, *Config) (backends.Backend, error) { return blinking{store.Open(), shut}, nil }
	f := startFollowing(t, open, "--json")
	end(t, taken(t, store, backends.Request{Key: "k"}), backends.Succeeded)
	if o := f.outcome(); o != "succeeded" {
		t.Errorf("before: %s", o)
	}
	shut.Store(true)
	end(t, taken(t, store, backends.Request{Key: "k"}), backends.Failed)
	for start := time.Now(); !strings.Contains(contents(t, f.err), "warning: the history cannot be followed, trying again: history on test:: gone; look"); {
		if time.Since(start) > 30*time.Second {
			t.Fatalf("it said nothing: %q", contents(t, f.err))
		}
		time.Sleep(5 * time.Millisecond)
	}
	shut.Store(false)
	if o := f.outcome(); o != "failed" {
		t.Errorf("afterwards: %s", o)
	}
	f.close()
	shut.Store(true)
	if got := invoke(t, open, nil, "history", "-f"); got.code != codeUnavailable || got.out != "" {
		t.Errorf("a store that is not there to begin with: %+v", got)
	}
}

// stalling is a store that stands still for a while before it answers, while told so.
type stalling struct {
	backends.Backend
	still *atomic.Int64 // how long
	met   *atomic.Int64 // how often that was met
}

func (b stalling) History(ctx context.Context, q backends.Query) ([]backends.Record, error) {
	if d := time.Duration(b.still.Load()); d > 0 {
		defer b.met.Add(1)
		if !backends.Sleep(ctx, d) {
			return nil, &backends.Error{Op: "history", Backend: "test:", Err: ctx.Err(), Remedy: "look"}
		}
	}
	return b.Backend.History(ctx, q)
}

// TestFollowComesBackSoon: a store that stood still is not stayed away from for ten times as long as that; and one that
// does not answer again and again is told of once.
func TestFollowComesBackSoon(t *testing.T) {
	store, _ := inMemory()
	b := stalling{store.Open(), &atomic.Int64{}, &atomic.Int64{}}
	f := startFollowing(t, func(context.Context, *Config) (backends.Backend, error) { return b, nil }, "--json", "--backend-timeout", "6s")
	end(t, taken(t, store, backends.Request{Key: "k"}), backends.TimedOut)
	if o := f.outcome(); o != "timeout" {
		t.Errorf("before: %s", o)
	}
	stall := func(d time.Duration, times int64) {
		b.met.Store(0)
		b.still.Store(int64(d))
		for start := time.Now(); b.met.Load() < times; time.Sleep(5 * time.Millisecond) {
			if time.Since(start) > 90*time.Second {
				t.Fatalf("%d asked of a store that stands still", b.met.Load())
			}
		}
		b.still.Store(0)
	}
	stall(3200*time.Millisecond, 1) // it would be stayed away from for 32 s, and line waits for 30
	end(t, taken(t, store, backends.Request{Key: "k"}), backends.Failed)
	if o := f.outcome(); o != "failed" {
		t.Errorf("after the store stood still: %s", o)
	}
	stall(7*time.Second, 2)
	end(t, taken(t, store, backends.Request{Key: "k"}), backends.Succeeded)
	if o := f.outcome(); o != "succeeded" {
		t.Errorf("after the store did not answer: %s", o)
	}
	if n := strings.Count(contents(t, f.err), "cannot be followed"); n != 1 {
		t.Errorf("told %d times: %s", n, contents(t, f.err))
	}
	f.close()
}

// telling is a store that tells of new records by itself.
type telling struct {
	backends.Backend
	asked chan backends.Query
	news  chan backends.Record
}

func (b telling) Follow(ctx context.Context, q backends.Query, emit func(backends.Record) error) error {
	b.asked <- q
	for {
		select {
		case r := <-b.news:
			if err := emit(r); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestFollowBelievesAStoreThatTells(t *testing.T) {
	store, _ := inMemory()
	b := telling{store.Open(), make(chan backends.Query, 1), make(chan backends.Record)}
	end(t, taken(t, store, backends.Request{Key: "k"}), backends.Failed)
	f := startFollowing(t, func(context.Context, *Config) (backends.Backend, error) { return b, nil }, "--json", "--outcome", "failed,lost", "-n", "5", "k")
	if o := f.outcome(); o != "failed" {
		t.Errorf("what the store had: %s", o)
	}
	q := <-b.asked
	if q.Key != "k" || q.Limit != 0 || len(q.Outcomes) != 2 || q.Since.IsZero() || time.Since(q.Since) < lateness {
		t.Errorf("the store is asked for %+v", q)
	}
	known, err := store.Open().History(t.Context(), backends.Query{})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	b.news <- known[0] // as the store itself may, at first
	b.news <- backends.Record{Key: "k", Token: 9, Outcome: backends.Lost, StartedAt: now, EndedAt: now}
	b.news <- backends.Record{Key: "k", Token: 9, Outcome: backends.Lost, StartedAt: now, EndedAt: now}
	if o := f.outcome(); o != "lost" {
		t.Errorf("the first news: %s", o)
	}
	_ = f.r.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if s, err := f.lines.ReadString('\n'); err == nil || err == io.EOF {
		t.Errorf("told twice: %s, %v", s, err)
	}
	f.close()
}
