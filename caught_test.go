package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// buggy is a store whose renewals panic, and that must not be asked anything after that.
type buggy struct {
	backends.Backend
	t testing.TB
}

func (b buggy) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	l, err := b.Backend.Acquire(ctx, r)
	return buggyLease{l, b.t}, err
}

func (b buggy) Close() error {
	b.t.Error("the store was closed")
	return nil
}

type buggyLease struct {
	backends.Lease
	t testing.TB
}

func (buggyLease) Renew(context.Context, time.Duration) error { panic("oops\nlockrun: all is well") }

func (l buggyLease) Release(context.Context, backends.End) error {
	l.t.Error("the lease was given back")
	return nil
}

// wantOops checks that the bug was told in one line, and by that code.
func (got spoken) wantOops(t testing.TB, code int) {
	t.Helper()
	if got.code != code || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, "internal error, please report it: oops") {
		t.Errorf("code %d, want %d; stderr %q", got.code, code, got.err)
	}
}

func TestAPanicOfTheHeartbeatStopsCommand(t *testing.T) {
	store, _ := inMemory()
	open := func(context.Context, *Config) (backends.Backend, error) { return buggy{store.Open(), t}, nil }
	result := filepath.Join(t.TempDir(), "result")
	argv := []string{"--key", "k", "--heartbeat", "10ms", "--exit-code", "internal=7", "--result-file", result, "--", "sleep", "1000"}
	invoke(t, open, nil, argv...).wantOops(t, 7)
	if text, err := os.ReadFile(result); err != nil || !strings.Contains(string(text), `"outcome":"lost"`) || !strings.Contains(string(text), `"backend":"`) {
		t.Errorf("the result is %s, %v", text, err)
	}
	if s, err := store.Open().Status(t.Context(), "k"); err != nil || s[0].State != backends.Held {
		t.Errorf("the lease is not left to run out: %+v, %v", s, err)
	}
}

// Who goes on without a lease goes on without a heartbeat too, and COMMAND's own code stands.
func TestAPanicOfTheHeartbeatAndOnLostContinue(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	store, _ := inMemory()
	r := &runner{cfg: &Config{OnLost: "continue"}, ui: newUI(nil, f), b: store.Open()}
	if code, why := r.broken(backends.End{Outcome: backends.Lost, Reason: "oops"}, 9); code != 9 || why != "oops" || r.b != nil {
		t.Errorf("code %d, %q; the store is still there: %v", code, why, r.b != nil)
	}
	r.ui.flush() // before the file is closed, whose number the next test may get
}

func TestAPanicWhileTheLeaseIsAskedFor(t *testing.T) {
	open := func(context.Context, *Config) (backends.Backend, error) { panic("oops\nlockrun: all is well") }
	for _, more := range [][]string{nil, {"--on-unavailable", "run"}} {
		invoke(t, open, nil, append(append([]string{"--key", "k"}, more...), "--", "touch", "/nonexistent")...).wantOops(t, codeInternal)
	}
}

// No observer changes an exit code, not even by a bug.
func TestAPanicOfAnObserver(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "err"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cfg := &Config{Ping: "http://127.0.0.1:1", HookTimeout: time.Minute}
	u := newUI(cfg, f)
	o := newObservers(cfg, u, nil)
	o.watch("the ping of the start", func(context.Context) error { panic("oops\nlockrun: all is well") })
	o.all.Wait()
	u.flush()
	spoken{err: contents(t, f)}.wantOops(t, 0)
}
