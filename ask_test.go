package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

func TestStatus(t *testing.T) {
	store, open := inMemory()
	taken(t, store, backends.Request{Key: "a", Holder: "web-1", TTL: time.Hour})
	l := taken(t, store, backends.Request{Key: "free"})
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
		t.Fatal(err)
	}
	got := invoke(t, open, nil, "status")
	lines := strings.Split(got.out, "\n")
	if got.code != 0 || len(lines) != 4 || strings.Join(strings.Fields(lines[0]), " ") != "KEY STATE HOLDER AGE LEFT ATTEMPT TOKEN" ||
		!strings.HasPrefix(lines[1], "a     held   web-1   ") || strings.Join(strings.Fields(lines[2]), " ") != "free free 1" {
		t.Errorf("%+v", got)
	}
	for keys, code := range map[string]int{"a": 0, "a a": 0, "free": 1, "a free": 1, "nosuch": 1} {
		if got := invoke(t, open, nil, append([]string{"status"}, strings.Fields(keys)...)...); got.code != code || got.err != "" {
			t.Errorf("status %s: %+v", keys, got)
		}
	}
	got = invoke(t, open, nil, "status", "--json", "a", "free")
	var states []map[string]any
	for line := range strings.Lines(got.out) {
		var s map[string]any
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		states = append(states, s)
	}
	if len(states) != 2 || states[0]["state"] != "held" || states[0]["holder"] != "web-1" || states[1]["state"] != "free" || states[1]["holder"] != nil {
		t.Errorf("got %s", got.out)
	}
}

func TestStatusOfSlotsAndOddKeys(t *testing.T) {
	store, open := inMemory()
	for range 2 {
		taken(t, store, backends.Request{Key: "n\nheld", Slots: 2, Holder: "h"})
	}
	got := invoke(t, open, nil, "status")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], `"n\nheld" `) || !strings.HasPrefix(lines[2], `"n\nheld"[1] `) {
		t.Errorf("got %q", lines)
	}
	if got := invoke(t, open, nil, "status", "--", "n\nheld"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	for _, key := range []string{"", strings.Repeat("k", 256), "\xff"} {
		if got := invoke(t, untouched(t), nil, "status", "--", key); got.code != codeUsage {
			t.Errorf("%q: %+v", key, got)
		}
	}
}

func TestHistory(t *testing.T) {
	store, open := inMemory()
	for i := range 25 {
		l := taken(t, store, backends.Request{Key: "k", RunID: "r", Holder: "h"})
		if err := l.Release(t.Context(), backends.End{Outcome: backends.Failed, ExitCode: &i, Duration: 90 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	got := invoke(t, open, nil, "history")
	lines := strings.Split(strings.TrimSpace(got.out), "\n")
	if got.code != 0 || len(lines) != 21 || !slices.Equal(strings.Fields(lines[1])[1:8], []string{"k", "failed", "24", "1m30s", "25", "h", "25"}) {
		t.Errorf("%d lines, %q", len(lines), lines[:2])
	}
	for argv, want := range map[string]int{"history --json": 25, "history --json -n 3": 3, "history k --json -n 3": 3, "history --json other": 0,
		"history --json --outcome failed": 25, "history --json --outcome succeeded": 0, "history --json --outcome skipped,failed -n 7": 7,
		"history --json --outcome succeeded --outcome failed": 25, "history --json --outcome failed --outcome skipped,lost": 25,
		"history --json --since 1h": 25, "history --json --since 2000-01-01": 25, "history --json --since 2200-01-01T00:00": 0} {
		got := invoke(t, open, nil, strings.Fields(argv)...)
		if n := strings.Count(got.out, "\n"); got.code != 0 || n != want {
			t.Errorf("%s: %d lines, %+v", argv, n, got)
		}
	}
}

func TestHistoryTakesItsOptionsFromVariables(t *testing.T) {
	store, open := inMemory()
	l := taken(t, store, backends.Request{Key: "k", Holder: "h"})
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Failed}); err != nil {
		t.Fatal(err)
	}
	for env, want := range map[string]int{"LOCKRUN_OUTCOME=succeeded": 0, "LOCKRUN_OUTCOME=succeeded\nlost, failed": 1, "LOCKRUN_SINCE=2200-01-01": 0, "LOCKRUN_SINCE=1h": 1} {
		if got := invoke(t, open, []string{env}, "history", "--json"); got.code != 0 || strings.Count(got.out, "\n") != want {
			t.Errorf("%q: %+v", env, got)
		}
	}
	// A hook is given both, about the run that it is told of.
	if got := invoke(t, open, []string{"LOCKRUN_OWNER=0123456789abcdef0123456789abcdef", "LOCKRUN_OUTCOME=lost"}, "history", "--json"); strings.Count(got.out, "\n") != 1 {
		t.Errorf("in a hook: %+v", got)
	}
	if got := invoke(t, open, []string{"LOCKRUN_FOR=1h", "LOCKRUN_REASON=disk swap"}, "pause", "k", "-v"); got.code != 0 || !strings.Contains(got.err, "skipped for 1h") {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "status", "k"); !strings.Contains(got.out, "disk swap") {
		t.Errorf("%+v", got)
	}
}

func TestEveryFlagIsAVariable(t *testing.T) {
	for i := range options {
		if o := &options[i]; !o.env && !slices.Contains([]string{"force", "print", "while-pid", "help"}, o.name) {
			t.Errorf("--%s is no variable, and README.md does not say so", o.name)
		}
	}
}

func TestHistoryRefusesWhatItCannotSelect(t *testing.T) {
	for argv, why := range map[string]string{
		"--since 5":                 "has no unit; write 5s",
		"--since -1h":               "must not be negative",
		"--since 0s":                "must be more than zero",
		"--since yesterday":         "is neither a duration like 90s, 1h30m or 1d12h nor a time like 2026-11-30",
		"--since 2026-13-01":        "is neither a duration",
		"--outcome lost,killed":     `"killed" is no outcome; the outcomes are succeeded, failed, `,
		"--outcome lost,":           `"" is no outcome`,
		"--follow --interval 0s":    "must be more than zero",
		"--follow --interval often": "is not a duration",
		"--interval 1s":             "--interval has no use without --follow",
	} {
		got := invoke(t, untouched(t), nil, append([]string{"history"}, strings.Fields(argv)...)...)
		if got.code != codeUsage || got.out != "" || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, why) {
			t.Errorf("%s: %+v", argv, got)
		}
	}
}

func TestParseTime(t *testing.T) {
	want := time.Date(2026, 11, 30, 6, 15, 0, 0, time.Local)
	for _, s := range []string{"2026-11-30 06:15", "2026-11-30T06:15", "2026-11-30 06:15:00", "2026-11-30T06:15:00", want.Format(time.RFC3339)} {
		if got, err := parseTime(s); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	if got, err := parseTime("2026-11-30"); err != nil || !got.Equal(want.Add(-6*time.Hour-15*time.Minute)) {
		t.Errorf("a day: %v, %v", got, err)
	}
}

func TestUnlock(t *testing.T) {
	store, open := inMemory()
	token := taken(t, store, backends.Request{Key: "k"}).Grant().Token
	if got := invoke(t, open, nil, "unlock", "k", "--token", "999"); got.code != codeNo || !strings.Contains(got.err, `nothing to unlock: no lease of "k" has token 999`) {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, []string{"USER=ann", "HOSTNAME=desk"}, "unlock", "-v", "k", "--token", "1"); token != 1 || got.code != 0 || got.out != "" || !strings.Contains(got.err, "unlocked: ") {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "history", "--json", "-n", "1"); !strings.Contains(got.out, `"outcome":"unlocked","reason":"broken by ann@desk"`) {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "unlock", "k", "--force"); got.code != codeNo || got.err != "lockrun: nothing to unlock: \"k\" is not held\n" {
		t.Errorf("%+v", got)
	}
	taken(t, store, backends.Request{Key: "k"})
	if got := invoke(t, open, nil, "unlock", "k", "--force"); got.code != 0 || got.err != "" || got.out != "" {
		t.Errorf("%+v", got)
	}
	// A token in the environment is the outer job's own; --force is about whichever is there.
	taken(t, store, backends.Request{Key: "k"})
	if got := invoke(t, open, []string{"LOCKRUN_TOKEN=999"}, "unlock", "k", "--force"); got.code != 0 {
		t.Errorf("%+v", got)
	}
}

// A crontab has many jobs, and its mail does not say which of them it is about.
func TestWhatIsNotKnownNamesTheKey(t *testing.T) {
	for line, code := range map[string]int{
		"--key nightly -- /bin/true": codeUnavailable, "--key nightly --on-unavailable skip -- /bin/true": codeSkipped,
		"acquire --key nightly": codeUnavailable, "renew --key nightly --token 1": codeUnavailable, "release --key nightly --token 1": codeUnavailable,
	} {
		got := invoke(t, unreachable, nil, strings.Fields(line)...)
		if got.code != code || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, "nobody there; start it") || !strings.Contains(got.err, `(key "nightly")`) {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

func TestPauseAndResume(t *testing.T) {
	_, open := inMemory()
	if got := invoke(t, open, nil, "pause", "k", "--for", "1ns", "-v"); got.code != 0 || !strings.Contains(got.err, `are skipped for 1ns`) {
		t.Errorf("a pause that is hardly one: %+v", got)
	}
	if got := invoke(t, open, nil, "pause", "k", "--reason", "disk swap", "--for", "1h", "--holder", "ops", "-v"); got.code != 0 || !strings.Contains(got.err, `paused: runs of "k" are skipped for 1h`) {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "acquire", "--key", "k", "-v"); got.code != codeSkipped || got.out != "" || !strings.Contains(got.err, "skipped: \"k\" is paused by ops since ") || !strings.Contains(got.err, "(disk swap)") {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "status", "k"); got.code != codeNo || !strings.Contains(got.out, "paused  ops") {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "resume", "k"); got.code != 0 || got.err != "" {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "resume", "k"); got.code != codeNo || !strings.Contains(got.err, `nothing to resume: "k" is not paused`) {
		t.Errorf("%+v", got)
	}
}

func TestShellVerbs(t *testing.T) {
	_, open := inMemory()
	token := strings.TrimSpace(invoke(t, open, nil, "acquire", "--key", "k", "--ttl", "10m").out)
	if token != "1" {
		t.Fatalf("token %q", token)
	}
	if got := invoke(t, open, nil, "acquire", "--key", "k"); got.code != codeSkipped || got.out != "" || got.err != "" {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "acquire", "--key", "k", "--exit-code", "skipped=3"); got.code != 3 {
		t.Errorf("%+v", got)
	}
	for _, verb := range []string{"renew", "release"} {
		got := invoke(t, open, nil, verb, "--key", "k", "--token", "42")
		if got.code != codeLost || !strings.Contains(got.err, `token 42 of "k" holds no lease`) {
			t.Errorf("%s: %+v", verb, got)
		}
	}
	if got := invoke(t, open, nil, "renew", "--key", "k", "--token", token, "--ttl", "2h"); got.code != 0 || got.out+got.err != "" {
		t.Errorf("%+v", got)
	}
	if left := expiresIn(t, open, "k"); left < 100*time.Minute {
		t.Errorf("renewed for two hours, %v left", left)
	}
	if got := invoke(t, open, nil, "renew", "--key", "k", "--token", token); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if left := expiresIn(t, open, "k"); left > 11*time.Minute {
		t.Errorf("renewed for as long as it was granted, %v left", left)
	}
	if got := invoke(t, open, []string{"LOCKRUN_KEY=k", "LOCKRUN_TOKEN=" + token}, "release"); got.code != 0 || got.out+got.err != "" {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "history", "--json", "k", "-n", "1"); !strings.Contains(got.out, `"outcome":"succeeded"`) {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "release", "--key", "k", "--token", token); got.code != codeLost {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "acquire", "--key", "k", "--run-id", "r"); got.out != "2\n" {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "release", "--key", "k", "--token", "2"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, open, nil, "acquire", "--key", "k", "--run-id", "r", "-v"); got.code != codeDone || !strings.Contains(got.err, "done: ") {
		t.Errorf("%+v", got)
	}
}

// The token that COMMAND is handed is a fencing token; freeing the key with it would let the next run overlap.
func TestShellVerbsLeaveTheLeaseOfARunAlone(t *testing.T) {
	store, open := inMemory()
	l := taken(t, store, backends.Request{Key: "k", Holder: "web-1", RunID: "r1", TTL: time.Hour})
	before := store.Dump("k")
	for _, argv := range []string{"renew --ttl 300ms", "renew", "release", "release -q"} {
		got := invoke(t, open, []string{"LOCKRUN_KEY=k", "LOCKRUN_TOKEN=1"}, strings.Fields(argv)...)
		if got.code != codeSkipped || got.out != "" || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, `"k" is held by web-1 since `) ||
			!strings.Contains(got.err, "belongs to a running lockrun") || !strings.Contains(got.err, "lockrun unlock KEY --token 1 breaks it") {
			t.Errorf("%s: %+v", argv, got)
		}
	}
	if after := store.Dump("k"); after != before {
		t.Errorf("the lease changed from %s to %s", before, after)
	}
	if err := l.Release(t.Context(), backends.End{Outcome: backends.Failed}); err != nil {
		t.Error(err)
	}
	if got := invoke(t, open, nil, "release", "--key", "k", "--token", "1"); got.code != codeLost {
		t.Errorf("%+v", got)
	}
}

func expiresIn(t *testing.T, open opener, key string) time.Duration {
	t.Helper()
	b, err := open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	states, err := b.Status(t.Context(), key)
	if err != nil || len(states) != 1 || states[0].ExpiresIn == nil {
		t.Fatalf("%+v, %v", states, err)
	}
	return *states[0].ExpiresIn
}

// examined is a backend that can be initialised and has findings.
type examined struct {
	backends.Backend
	checks []backends.Check
	inits  int
	err    error
}

func (e *examined) Doctor(context.Context) []backends.Check { return e.checks }
func (e *examined) Init(context.Context) error              { e.inits++; return e.err }
func (e *examined) InitPlan() string                        { return "create table t" }

func TestInit(t *testing.T) {
	store, plain := inMemory()
	e := &examined{Backend: store.Open()}
	open := func(context.Context, *Config) (backends.Backend, error) { return e, nil }
	if got := invoke(t, open, nil, "init", "--print"); got.code != 0 || got.out != "create table t\n" || e.inits != 0 {
		t.Errorf("%+v, %d", got, e.inits)
	}
	if got := invoke(t, open, nil, "init"); got.code != 0 || got.out+got.err != "" || e.inits != 1 {
		t.Errorf("%+v, %d", got, e.inits)
	}
	e.err = &backends.Error{Op: "init", Backend: "test:x", Err: errors.New("no right to create"), Remedy: "ask for it"}
	if got := invoke(t, open, nil, "init"); got.code != codeUnavailable || got.err != "lockrun: init on test:x: no right to create; ask for it\n" {
		t.Errorf("%+v", got)
	}
	if got := invoke(t, plain, nil, "init", "--print"); got.code != 0 || !strings.Contains(got.out, "needs nothing to be created\n") {
		t.Errorf("%+v", got)
	}
}
