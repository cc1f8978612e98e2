package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// withFallbackIn is the command line's options for a fallback in a file of the test's own.
func withFallbackIn(t *testing.T) (options []string, url string) {
	t.Helper()
	url = "sqlite://" + filepath.Join(t.TempDir(), "fallback.db")
	return []string{"-b", "redis://127.0.0.1:1", "--on-unavailable", "fallback", "--fallback", url}, url
}

func opened(t *testing.T, url string) backends.Backend {
	t.Helper()
	b, err := openStore(t.Context(), &Config{Verb: "run", BackendTimeout: time.Minute}, Store{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestFallbackRunsUnderAnotherLease(t *testing.T) {
	options, url := withFallbackIn(t)
	result := filepath.Join(t.TempDir(), "result")
	args := append([]string{"--key", "k", "--result-file", result}, options...)
	got := invoke(t, unreachable, nil, append(args, "--", "sh", "-c", "exit 9")...)
	if got.code != 9 || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, "nobody there") {
		t.Errorf("%+v", got)
	}
	h, err := opened(t, url).History(t.Context(), backends.Query{})
	if err != nil || len(h) != 1 || h[0].Outcome != backends.Failed || !strings.Contains(h[0].Reason, "under the lease of the fallback") {
		t.Errorf("history %+v, %v", h, err)
	}
	var rec struct{ Outcome, Reason, Backend string }
	text, err := os.ReadFile(result)
	if err != nil || json.Unmarshal(text, &rec) != nil || rec.Outcome != "failed" || !strings.Contains(rec.Backend, "fallback.db") || !strings.Contains(rec.Reason, "nobody there") {
		t.Errorf("result %s, %v", text, err)
	}
}

func TestFallbackRefuses(t *testing.T) {
	options, url := withFallbackIn(t)
	l, err := opened(t, url).Acquire(t.Context(), backends.Request{Key: "k", Owner: backends.NewOwner(), Holder: "somebody", TTL: time.Hour, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"--key", "k"}, options...)
	if got := invoke(t, unreachable, nil, append(args, "--", "false")...); got.code != codeSkipped {
		t.Errorf("%+v", got)
	}
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatal(err)
	}
}

// What was refused positively is no reason to ask another store.
func TestFallbackIsOnlyForWhatIsNotKnown(t *testing.T) {
	options, url := withFallbackIn(t)
	store, open := inMemory()
	taken(t, store, backends.Request{Key: "k"})
	args := append([]string{"--key", "k"}, options...)
	if got := invoke(t, open, nil, append(args, "--", "false")...); got.code != codeSkipped || got.err != "" {
		t.Errorf("%+v", got)
	}
	if h, _ := opened(t, url).History(t.Context(), backends.Query{}); len(h) != 0 {
		t.Errorf("the fallback was asked: %+v", h)
	}
}

func TestWithoutAFallbackThatAnswersNothingRuns(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--key", "k", "-b", "redis://127.0.0.1:1", "--on-unavailable", "fallback", "--fallback", "sqlite://" + dir, "--backend-timeout", "500ms", "--", "false"}
	got := invoke(t, unreachable, nil, args...)
	if got.code != codeUnavailable || !strings.Contains(got.err, "nobody there") || !strings.Contains(got.err, "nor did the fallback answer") {
		t.Errorf("%+v", got)
	}
}

func TestWhatWasWaitedForCounts(t *testing.T) {
	r := &runner{cfg: &Config{Wait: time.Minute}, waited: 20 * time.Second}
	if got := r.patience(); got != 40*time.Second {
		t.Errorf("%v", got)
	}
	r.waited = time.Hour
	if got := r.patience(); got != 0 {
		t.Errorf("%v", got)
	}
	r.cfg.Wait = WaitForever
	if got := r.patience(); got != WaitForever {
		t.Errorf("%v", got)
	}
}

func TestStatusBesideTheFallback(t *testing.T) {
	main, open := inMemory()
	other, openOther := inMemory()
	taken(t, main, backends.Request{Key: "b", Holder: "ann"})
	taken(t, other, backends.Request{Key: "a", Holder: "bob"})
	taken(t, other, backends.Request{Key: "c", Holder: "bob"})
	if err := taken(t, main, backends.Request{Key: "c"}).Release(t.Context(), backends.End{Outcome: backends.Failed}); err != nil {
		t.Fatal(err)
	}
	var warned []string
	ask := func(up bool, keys ...string) (string, error) {
		b := &both{why: errors.New("it is down"), tell: func(s string) { warned = append(warned, s) }}
		b.fallback, _ = openOther(t.Context(), nil)
		if up {
			b.Backend, b.why = nil, nil
			b.Backend, _ = open(t.Context(), nil)
		}
		states, err := b.Status(t.Context(), keys...)
		shown := ""
		for _, s := range states {
			shown += s.Key + ":" + s.State + ":" + s.Holder + " "
		}
		return shown, err
	}
	for _, c := range []struct {
		up    bool
		keys  []string
		shown string
		fails bool
	}{
		{true, nil, "a:held:bob b:held:ann c:held:bob ", false},
		{true, []string{"c", "b", "x"}, "c:held:bob b:held:ann x:free: ", false},
		{false, nil, "a:held:bob c:held:bob ", false},
		{false, []string{"c", "a"}, "c:held:bob a:held:bob ", false},
		{false, []string{"c", "b"}, "", true}, // whether b is held nobody knows
	} {
		warned = nil
		shown, err := ask(c.up, c.keys...)
		if shown != c.shown || (err != nil) != c.fails || (len(warned) == 1) != (!c.up && !c.fails) {
			t.Errorf("%v %v: %q, %v, warned %q", c.up, c.keys, shown, err, warned)
		}
	}
}

func TestHistoryBesideTheFallback(t *testing.T) {
	main, open := inMemory()
	other, openOther := inMemory()
	for range 2 {
		for i, s := range []interface {
			Open() backends.Backend
		}{main, other} {
			l, err := s.Open().Acquire(t.Context(), backends.Request{Key: "k", Owner: backends.NewOwner(), PID: 1 + i, TTL: time.Hour, Slots: 1})
			if err == nil {
				time.Sleep(time.Millisecond)
				err = l.Release(context.Background(), backends.End{Outcome: backends.Failed})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	b := &both{}
	b.Backend, _ = open(t.Context(), nil)
	b.fallback, _ = openOther(t.Context(), nil)
	h, err := b.History(t.Context(), backends.Query{Limit: 3})
	if err != nil || len(h) != 3 || h[0].EndedAt.Before(h[1].EndedAt) || h[1].EndedAt.Before(h[2].EndedAt) || h[0].Token != 2 || h[1].Token != 2 || h[2].Token != 1 {
		t.Errorf("%+v, %v", h, err)
	}
}
