package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/multi"
	"github.com/lockrun/lockrun/backends/recorded"
)

// frugal is a store that grants no lease longer than most, as ZooKeeper does.
type frugal struct {
	backends.Backend
	most time.Duration
}

func (f frugal) LongestTTL(context.Context) (time.Duration, error) { return f.most, nil }

func (f frugal) Acquire(ctx context.Context, r backends.Request) (backends.Lease, error) {
	r.TTL = min(r.TTL, f.most)
	return f.fixed(f.Backend.Acquire(ctx, r))
}

func (f frugal) Attach(ctx context.Context, key string, token int64) (backends.Lease, error) {
	return f.fixed(f.Backend.Attach(ctx, key, token))
}

func (f frugal) fixed(l backends.Lease, err error) (backends.Lease, error) {
	if err != nil {
		return nil, err
	}
	return fixedLease{l}, nil
}

type fixedLease struct{ backends.Lease }

func (fixedLease) FixedTTL() bool { return true }

// A grace that was asked for is what COMMAND needs: it is kept to where the shortened lease leaves room, and else the run is
// refused with nothing left behind.
func TestAGraceThatWasAskedForIsNotShortened(t *testing.T) {
	store, _ := inMemory()
	open := func(context.Context, *Config) (backends.Backend, error) {
		return frugal{store.Open(), 39 * time.Second}, nil
	}
	for argv, want := range map[string]time.Duration{
		"--ttl 10m":                            6500 * time.Millisecond,
		"--ttl 10m --grace 20s":                20 * time.Second,
		"--ttl 10m --grace 37s --heartbeat 1s": 37 * time.Second,
	} {
		cfg := good(t, "--key k "+argv+" -- true")
		g := backends.Grant{TTL: 39 * time.Second, Drift: 392 * time.Millisecond}
		if err := misfit(g, cfg, "store"); err != nil {
			t.Errorf("%s: %v", argv, err)
		}
		tm := newTiming(g, cfg)
		if term, kill, until := tm.deadlines(0); tm.Grace != want || tm.Every <= 0 || tm.Every >= term || kill-term != want || kill >= until {
			t.Errorf("%s: %+v, term %v, kill %v, until %v", argv, tm, term, kill, until)
		}
		if got := invoke(t, open, nil, append(strings.Fields("--key k "+argv), "--", "true")...); got.code != 0 || got.err != "" {
			t.Errorf("%s: %+v", argv, got)
		}
	}
	before, err := store.Open().History(t.Context(), backends.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for _, argv := range []string{"--ttl 10m --grace 60s", "--ttl 10m --grace 30s", "--ttl 1m --grace 38s --heartbeat 10s"} {
		got := invoke(t, open, nil, append(strings.Fields("--key k "+argv), "--", "echo", "ran")...)
		if got.code != codeUsage || got.out != "" || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, "grants 39s of the ") || !strings.Contains(got.err, "give a --grace under 2") {
			t.Errorf("%s: %+v", argv, got)
		}
		states, err := store.Open().Status(t.Context(), "k")
		if err != nil || states[0].State != backends.Free {
			t.Errorf("%s: it left %+v, %v", argv, states, err)
		}
	}
	after, err := store.Open().History(t.Context(), backends.Query{Outcomes: []backends.Outcome{backends.Succeeded, backends.Failed, backends.NotStarted, backends.Crashed}})
	if err != nil || len(after) != len(before) {
		t.Errorf("%d runs before and %d after, %v", len(before), len(after), err)
	}
}

// What the doctor vouches for is what a run would get.
func TestDoctorJudgesByWhatTheStoreGrants(t *testing.T) {
	for argv, want := range map[string][]string{
		"--ttl 10m": {"advice job ttl 10m, of which the store grants 39s; ", "with one of 6m (", "ok job heartbeat renewed every 13s",
			"advice job grace 6.5s from TERM to KILL; without an answer from the store TERM comes 31."},
		"--ttl 30s":             {"ok job heartbeat renewed every 10s"},
		"--ttl 10m --grace 20s": {"ok job grace 20s from TERM to KILL"},
		"--ttl 10m --grace 60s": {"FAILED job grace --grace 1m: memory: grants 39s of the 10m of --ttl", "give a --grace under 2", "refused (64)"},
	} {
		store := jobStore(t, 4*time.Minute)
		open := func(context.Context, *Config) (backends.Backend, error) {
			return frugal{store.Open(), 39 * time.Second}, nil
		}
		got := invoke(t, open, nil, append([]string{"doctor", "--key", "k"}, strings.Fields(argv)...)...)
		for _, w := range want {
			if !strings.Contains(spaced(got.out), w) {
				t.Errorf("%s: %q is not in\n%s", argv, w, got.out)
			}
		}
		if failed := strings.HasPrefix(want[0], "FAILED"); failed != (got.code == codeNo) {
			t.Errorf("%s: %+v", argv, got)
		}
	}
}

// Whoever renews for longer than the store can keep the lease must not believe in it, also where that store is one of several,
// or another has the record.
func TestRenewTellsOfALengthThatCannotChange(t *testing.T) {
	store, _ := inMemory()
	other, _ := inMemory()
	of := func() backends.Backend { return frugal{store.Open(), 39 * time.Second} }
	for key, whole := range map[string]func() backends.Backend{
		"alone":   of,
		"several": func() backends.Backend { return multi.New([]backends.Backend{other.Open(), of()}, time.Minute) },
		"recorded": func() backends.Backend {
			return recorded.Decorate(of(), nil, recorded.Options{Record: other.Open(), Timeout: time.Minute})
		},
	} {
		open := func(context.Context, *Config) (backends.Backend, error) { return whole(), nil }
		got := invoke(t, open, nil, "acquire", "--key", key, "--ttl", "39s")
		token := strings.TrimSpace(got.out)
		if got.code != 0 || token == "" {
			t.Fatalf("%s: %+v", key, got)
		}
		if got := invoke(t, open, nil, "renew", "--key", key, "--token", token); got.code != 0 || got.err != "" {
			t.Errorf("%s: %+v", key, got)
		}
		if got := invoke(t, open, nil, "renew", "--key", key, "--token", token, "--ttl", "10m"); got.code != 0 || !strings.Contains(got.err, "lasts for 39s from now on, and not for the 10m of --ttl") {
			t.Errorf("%s: %+v", key, got)
		}
	}
}
