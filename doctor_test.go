package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/memory"
)

func TestDoctor(t *testing.T) {
	store, _ := inMemory()
	e := &examined{Backend: store.Open(), checks: []backends.Check{
		{Backend: "test:x", Check: "mode", OK: true, Cause: "0600"},
		{Backend: "test:x", Check: "space", OK: true, Cause: "90% full", Remedy: "make room"},
	}}
	open := func(context.Context, *Config) (backends.Backend, error) { return e, nil }
	got := invoke(t, open, nil, "doctor")
	for _, row := range []string{"RESULT WHERE CHECK FINDING", "ok memory: open it answers", "ok test:x mode 0600", "advice test:x space 90% full; make room", "ok memory: clock its clock is ",
		"ok host clock ", " host ntp ", " host supervision "} {
		if !strings.Contains(spaced(got.out), row) {
			t.Errorf("%q is not in\n%s", row, got.out)
		}
	}
	if got.code != 0 || strings.Contains(got.out, " job ") {
		t.Errorf("%+v", got)
	}
	e.checks = append(e.checks, backends.Check{Backend: "test:x", Check: "wal", Cause: "off"})
	if got = invoke(t, open, nil, "doctor", "--json"); got.code != codeNo {
		t.Errorf("%+v", got)
	}
	for line := range strings.Lines(got.out) {
		var c map[string]any
		if err := json.Unmarshal([]byte(line), &c); err != nil || len(c) != 5 || c["backend"] == nil || c["check"] == nil || c["ok"] == nil || c["cause"] == nil || c["remedy"] == nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if got := invoke(t, unreachable, nil, "doctor"); got.code != codeNo || !strings.Contains(spaced(got.out), "FAILED sqlite open open: nobody there; start it") || !strings.Contains(spaced(got.out), "host clock") {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, openBackend, nil, "doctor", "--backend", "nosuch://u:geheim@h/"); got.code != codeUsage || strings.Contains(got.err+got.out, "geheim") || !strings.Contains(got.err, "knows no scheme nosuch") {
		t.Errorf("%+v", got)
	}
}

// spaced has one space where a table has several.
func spaced(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

// slow is a store whose reads take a while, and whose clock is off.
type slow struct {
	backends.Backend
	takes, off time.Duration
}

func (s slow) Status(ctx context.Context, keys ...string) ([]backends.State, error) {
	time.Sleep(s.takes)
	return s.Backend.Status(ctx, keys...)
}

func (s slow) Now(ctx context.Context) (time.Time, error) {
	now, err := s.Backend.Now(ctx)
	return now.Add(s.off), err
}

// jobStore has a history of runs of the key "k" that took so long, the last of them stopped by KILL.
func jobStore(t *testing.T, took ...time.Duration) *memory.Store {
	t.Helper()
	store, _ := inMemory()
	for i, d := range took {
		l := taken(t, store, backends.Request{Key: "k"})
		e := backends.End{Outcome: backends.Succeeded, Duration: d}
		if code := killed; i > 0 && i == len(took)-1 {
			e = backends.End{Outcome: backends.TimedOut, Duration: d, ExitCode: &code}
		}
		if err := l.Release(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

func TestDoctorExaminesAJob(t *testing.T) {
	pod := "KUBERNETES_SERVICE_HOST=10.0.0.1"
	for _, c := range []struct {
		name   string
		store  *memory.Store
		slow   time.Duration
		env    string
		argv   string
		code   int
		want   []string
		unwant []string
	}{
		{"nothing known", jobStore(t), 0, "", "--ttl 45m", 0,
			[]string{`ok job ttl 45m; the history has no finished run of "k"`, "ok job heartbeat renewed every 15m", "ok job grace 10s from TERM to KILL"}, []string{"job timeout", "job schedule", "job on-", "terminationGrace"}},
		{"a lease long enough", jobStore(t, 20*time.Minute, 30*time.Minute, 9*time.Hour), 0, "", "--ttl 45m", 0,
			[]string{"ok job ttl 45m; the longest of the last 2 runs took 30m", "advice job grace 10s ", "of 1 runs that had to be stopped 1 ended by KILL"}, nil},
		{"a lease shorter than half as long again", jobStore(t, 20*time.Minute, 31*time.Minute, time.Minute), 0, "", "--ttl 45m", 0,
			[]string{"advice job ttl 45m; the longest of the last 2 runs took 31m; ", "--ttl 47m (1.5 times the longest run)"}, nil},
		{"a lease by the history", jobStore(t, time.Hour), 0, "", "--ttl auto", 0, []string{"ok job ttl 1h30m now, settled before each run by the history; the only run in the history took 1h", "ok job heartbeat renewed every 30m"}, nil},
		{"one run", jobStore(t, 20*time.Minute), 0, "", "--ttl 20s", 0, []string{"advice job ttl 20s; the only run in the history took 20m; ", "--ttl 30m",
			"advice job grace 3.33s ", "the default of 10s does not fit this TTL and is shortened; from --ttl 1m on it does"}, nil},
		{"a store too slow for the lease", jobStore(t), 150 * time.Millisecond, "", "--ttl 200ms", 1, []string{"FAILED job heartbeat renewed every 67ms; reading took at most "}, nil},
		{"a store that is slow", jobStore(t), 60 * time.Millisecond, "", "--ttl 500ms --grace 10ms", 0, []string{"advice job heartbeat renewed every 16"}, nil},
		{"settings that no run takes", jobStore(t), 0, "", "--ttl 10s --grace 9s", 1, []string{"FAILED job settings --grace 9s and the default heartbeat of 3.33s together are not under --ttl 10s", "refused (64)"}, []string{"job ttl"}},
		{"a timeout with room", jobStore(t, time.Minute), 0, "", "--ttl 5m --timeout 2m", 0, []string{"ok job timeout 2m; the only run"}, nil},
		{"a timeout without", jobStore(t, time.Minute), 0, "", "--ttl 5m --timeout 70s", 0, []string{"advice job timeout 1m10s; the only run"}, nil},
		{"ticks that overlap", jobStore(t, time.Hour), 0, "", "--ttl 2h --schedule @hourly --on-lost continue --on-unavailable run", 0,
			[]string{"ok job schedule the next tick is ", "advice job on-lost ", "advice job on-unavailable COMMAND runs without a lease"}, nil},
		{"ticks that overlap indeed", jobStore(t, 61*time.Minute), 0, "", "--ttl 2h --schedule @hourly", 0, []string{"advice job schedule the next tick is ", "runs took up to 1h1m"}, nil},
		{"a pod", jobStore(t), 0, pod, "--ttl 45m", 0, []string{"ok host kubernetes this is a pod", "ok job terminationGracePeriodSeconds ", "takes up to 12s besides", "cannot be seen from inside"}, nil},
		{"a pod with observers", jobStore(t), 0, pod, "--ttl 45m --ping http://h/x --hook-timeout 25s", 0, []string{"advice job terminationGracePeriodSeconds ", "pings and pushes have 25s: that takes up to 37s", "set it to 47 or more"}, nil},
		{"a pod with a long grace", jobStore(t), 0, pod, "--ttl 45m --grace 60s", 0, []string{"advice job terminationGracePeriodSeconds ", "set it to 72 or more"}, nil},
	} {
		open := func(context.Context, *Config) (backends.Backend, error) { return slow{c.store.Open(), c.slow, 0}, nil }
		got := invoke(t, open, []string{c.env}, append([]string{"doctor", "--key", "k"}, strings.Fields(c.argv)...)...)
		if got.code != c.code || got.err != "" {
			t.Errorf("%s: %+v", c.name, got)
		}
		for _, want := range c.want {
			if !strings.Contains(spaced(got.out), want) {
				t.Errorf("%s: %q is not in\n%s", c.name, want, got.out)
			}
		}
		for _, unwant := range c.unwant {
			if strings.Contains(spaced(got.out), unwant) {
				t.Errorf("%s: %q is in\n%s", c.name, unwant, got.out)
			}
		}
	}
}

func TestDoctorTakesTheJobsTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte("[jobs.k]\nttl = '20s'\nheartbeat = '15s'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, open := inMemory()
	if got := invoke(t, open, nil, "doctor", "--config", path, "--key", "k"); got.code != codeNo || !strings.Contains(spaced(got.out), "FAILED job settings "+path+":3: heartbeat 15s is more than half of "+path+":2: ttl 20s") {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "doctor", "--config", path, "--key", "other"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, untouched(t), nil, "doctor", "--key", ""); got.code != codeUsage || strings.Count(got.err, "\n") != 1 {
		t.Errorf("%+v", got)
	}
}

// Whatever stands in a crontab can be handed to the doctor.
func TestDoctorTakesAllOptionsOfARun(t *testing.T) {
	for i := range options {
		if o := &options[i]; o.verbs&vRun != 0 && o.verbs&vDoctor == 0 {
			t.Errorf("doctor does not take %s", o.flag())
		}
	}
}

func TestDoctorTellsOfClocks(t *testing.T) {
	store, _ := inMemory()
	for off, want := range map[time.Duration]string{time.Hour: "advice memory: clock its clock is 1h ahead of this host's", -time.Hour: "advice memory: clock its clock is 1h behind this host's"} {
		open := func(context.Context, *Config) (backends.Backend, error) { return slow{store.Open(), 0, off}, nil }
		if got := invoke(t, open, nil, "doctor"); got.code != 0 || !strings.Contains(spaced(got.out), want) {
			t.Errorf("%v: %+v", off, got)
		}
	}
	for want, clock := range map[string]kernelClock{
		"cannot be told: EPERM":         {unknown: "EPERM"},
		"kept by NTP, at most 12ms off": {synchronised: true, maxError: 12 * time.Millisecond},
		"nothing keeps":                 {},
	} {
		if k := ntpCheck(clock); !k.OK || !strings.Contains(k.Cause, want) || (k.Remedy == "") == (want == "nothing keeps") {
			t.Errorf("%+v: %+v", clock, k)
		}
	}
}

func TestFindingsFitATerminal(t *testing.T) {
	checks := []backends.Check{
		{Backend: "sqlite:/var/lib/lockrun/lockrun.db", Check: "open", OK: true, Cause: "it answers"},
		{Backend: "host", Check: "ntp", OK: true, Cause: strings.Repeat("long words ", 20), Remedy: strings.Repeat("x", 150) + " and more"},
		{Backend: "job", Check: "ttl", Cause: "wrong\x1b[2J"},
	}
	for _, width := range []int{200, 80, 40} {
		lines := printedLines(func(p *page) { tellChecks(p, checks, screen{width: width}) })
		for _, l := range lines {
			if utf8.RuneCountInString(l) > width || strings.Contains(l, "\x1b") {
				t.Errorf("%d columns: %q", width, l)
			}
		}
		text := strings.Join(lines, "")
		if strings.Count(text, "long") != 20 || strings.Count(text, "x") != 151 || !strings.Contains(text, "-> ") {
			t.Errorf("%d columns: something is missing in %q", width, lines)
		}
	}
	if lines := printedLines(func(p *page) { tellChecks(p, checks, screen{}) }); len(lines) != 4 || !strings.HasPrefix(lines[3], "FAILED  job ") {
		t.Errorf("where nobody looks: %q", lines)
	}
	if got := fmt.Sprint(wrap("", 10), wrap("a bc def", 4)); got != "[] [a bc def]" {
		t.Errorf("%s", got)
	}
}
