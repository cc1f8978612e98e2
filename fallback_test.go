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

// meeting is a backend and its fallback, which both answer, and the options that name them.
func meeting(t *testing.T) (main, fallback backends.Backend, options []string) {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return "sqlite://" + filepath.Join(dir, name) }
	return opened(t, at("main.db")), opened(t, at("fallback.db")),
		[]string{"--key", "k", "-b", at("main.db"), "--on-unavailable", "fallback", "--fallback", at("fallback.db")}
}

// A run that fell back and one that the backend answers again meet, whichever came first.
func TestRunsUnderEitherLeaseMeet(t *testing.T) {
	main, fallback, options := meeting(t)
	run := func(options []string, command ...string) spoken {
		t.Helper()
		return invoke(t, openBackend, nil, append(append([]string{}, options...), append([]string{"--"}, command...)...)...)
	}
	fell, err := fallback.Acquire(t.Context(), backends.Request{Key: "k", Owner: backends.NewOwner(), Holder: "somebody", TTL: time.Hour, Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	if got := run(options, "false"); got.code != codeSkipped || got.err != "" {
		t.Errorf("%+v", got)
	}
	h, err := main.History(t.Context(), backends.Query{})
	if err != nil || len(h) != 1 || h[0].Outcome != backends.Skipped || !strings.Contains(h[0].Reason, "on the fallback") {
		t.Errorf("history %+v, %v", h, err)
	}
	if s, err := main.Status(t.Context(), "k"); err != nil || s[0].State != backends.Free {
		t.Errorf("status %+v, %v", s, err)
	}
	if err := fell.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatal(err)
	}

	id := append(append([]string{}, options...), "--run-id", "r1")
	if got := run(id, "true"); got.code != 0 || got.err != "" {
		t.Errorf("%+v", got)
	}
	down := append([]string{}, id...)
	down[3] = "redis://127.0.0.1:1"
	if got := invoke(t, unreachable, nil, append(down, "--", "false")...); got.code != codeDone {
		t.Errorf("done under the backend's lease: %+v", got)
	}
	down[len(down)-1] = "r2"
	if got := invoke(t, unreachable, nil, append(down, "--", "true")...); got.code != 0 {
		t.Errorf("%+v", got)
	}
	id[len(id)-1] = "r2"
	if got := run(id, "false"); got.code != codeDone {
		t.Errorf("done under the fallback's lease: %+v", got)
	}
}

// A run that both stores know is shown once, and unlocked in both.
func TestARunUnderBothLeasesIsOne(t *testing.T) {
	_, fallback, options := meeting(t)
	if got := invoke(t, openBackend, nil, append(options, "--", "true")...); got.code != 0 || got.err != "" {
		t.Errorf("%+v", got)
	}
	h, err := fallback.History(t.Context(), backends.Query{})
	if err != nil || len(h) != 1 || h[0].Outcome != backends.Succeeded || !strings.Contains(h[0].Reason, "beside the lease of") {
		t.Errorf("history of the fallback %+v, %v", h, err)
	}
	ask := append([]string{"history", "--json", "k"}, options[2:]...)
	if got := invoke(t, openBackend, nil, ask...); got.code != 0 || strings.Count(got.out, "\n") != 1 {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, openBackend, nil, append(options, "--hold-at-least", "1h", "--", "true")...); got.code != 0 {
		t.Errorf("%+v", got)
	}
	ask[0] = "status"
	if got := invoke(t, openBackend, nil, ask...); got.code != 0 || strings.Count(got.out, "\n") != 1 {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, openBackend, nil, append(options, "--", "false")...); got.code != codeSkipped {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, openBackend, nil, append([]string{"unlock", "k", "--force"}, options[2:]...)...); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, openBackend, nil, append(options, "--", "true")...); got.code != 0 || got.err != "" {
		t.Errorf("%+v", got)
	}
}

// The fallback is named in a message only where its lease was taken.
func TestTheFallbackIsToldOfOnceItIsTaken(t *testing.T) {
	options, url := withFallbackIn(t)
	args := append([]string{"--key", "k"}, options...)
	if _, err := opened(t, url).Acquire(t.Context(), backends.Request{Key: "k", Owner: backends.NewOwner(), Holder: "somebody", TTL: time.Hour, Slots: 1}); err != nil {
		t.Fatal(err)
	}
	if got := invoke(t, unreachable, nil, append(args, "--", "false")...); got.code != codeSkipped || strings.Contains(got.err, "instead") {
		t.Errorf("held: %+v", got)
	}
	args[len(args)-1] = "redis://127.0.0.1:2"
	if got := invoke(t, unreachable, nil, append(args, "--backend-timeout", "500ms", "--", "false")...); got.code != codeUnavailable || strings.Contains(got.err, "instead") || strings.Count(got.err, "\n") != 1 {
		t.Errorf("dead: %+v", got)
	}
}

// A backend that is there again when a run ends is told how it ended, and under whose lease.
func TestTheBackendIsToldHowItEnded(t *testing.T) {
	options, _ := withFallbackIn(t)
	store, back := inMemory()
	calls := 0
	open := func(ctx context.Context, cfg *Config) (backends.Backend, error) {
		if calls++; calls == 1 {
			return unreachable(ctx, cfg)
		}
		return back(ctx, cfg)
	}
	args := append([]string{"--key", "k", "--run-id", "r1"}, options...)
	for _, c := range []struct {
		command string
		code    int
		outcome backends.Outcome
	}{{"exit 0", 0, backends.Succeeded}, {"exit 7", 7, backends.Failed}} {
		calls = 0
		if got := invoke(t, open, nil, append(args, "--", "sh", "-c", c.command)...); got.code != c.code {
			t.Fatalf("%+v", got)
		}
		h, err := store.Open().History(t.Context(), backends.Query{Limit: 1})
		if err != nil || len(h) != 1 || h[0].Outcome != c.outcome || h[0].ExitCode == nil || *h[0].ExitCode != c.code || h[0].Token != 0 ||
			h[0].RunID != args[3] || !strings.HasPrefix(h[0].Reason, "under the lease of the fallback") {
			t.Errorf("history %+v, %v", h, err)
		}
		args[3] = "r2"
	}
}
