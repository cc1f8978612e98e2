package main

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
	"github.com/lockrun/lockrun/backends/memory"
	"github.com/lockrun/lockrun/internal/supervise"
)

// TestMain lets the test binary play the parts that lockrun plays as a second process.
func TestMain(m *testing.M) {
	supervise.GuardMain()
	systemConfig = "/nonexistent/lockrun/config.toml" // the host's own must not decide a test
	std := IO{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.Environ()}
	switch {
	case isMinder(os.Args):
		os.Exit(minderMain(std, openBackend))
	case os.Getenv("LOCKRUN_TEST_MAIN") != "":
		os.Exit(dispatch(os.Args[1:], std, openBackend))
	}
	supervise.Spread()
	os.Exit(m.Run())
}

// spoken is what an invocation left behind.
type spoken struct {
	code     int
	out, err string
}

// invoke carries out a command line in this process, with real files for stdout and stderr.
func invoke(t testing.TB, open opener, env []string, argv ...string) spoken {
	t.Helper()
	dir := t.TempDir()
	std := IO{Env: env}
	for _, f := range []struct {
		to   **os.File
		name string
	}{{&std.In, "in"}, {&std.Out, "out"}, {&std.Err, "err"}} {
		file, err := os.Create(filepath.Join(dir, f.name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		*f.to = file
	}
	code := dispatch(argv, std, open)
	return spoken{code, contents(t, std.Out), contents(t, std.Err)}
}

func contents(t testing.TB, f *os.File) string {
	t.Helper()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// inMemory opens one store in memory as often as it is asked.
func inMemory() (*memory.Store, opener) {
	s := memory.New(time.Now, backends.DefaultKeep)
	return s, func(context.Context, *Config) (backends.Backend, error) { return s.Open(), nil }
}

// unreachable opens nothing.
func unreachable(context.Context, *Config) (backends.Backend, error) {
	return nil, &backends.Error{Op: "open", Backend: "test:x", Err: errors.New("nobody there"), Remedy: "start it"}
}

// untouched fails the test when a store is opened.
func untouched(t testing.TB) opener {
	return func(context.Context, *Config) (backends.Backend, error) {
		t.Error("a store was opened")
		return nil, errors.New("not to be opened")
	}
}

// taken takes a lease for somebody else.
func taken(t testing.TB, s *memory.Store, r backends.Request) backends.Lease {
	t.Helper()
	r.Owner = backends.NewOwner()
	if r.Holder == "" {
		r.Holder = "somebody"
	}
	if r.TTL == 0 {
		r.TTL = time.Hour
	}
	r.Slots = max(r.Slots, 1)
	l, err := s.Open().Acquire(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNothingIsSaidOnStdoutUnlessAskedFor(t *testing.T) {
	for _, argv := range [][]string{{}, {"--nonsense"}, {"unlock"}, {"--key", "k"}, {"completion", "tcsh"}, {"help", "me"}} {
		got := invoke(t, untouched(t), nil, argv...)
		if got.code != codeUsage || got.out != "" {
			t.Errorf("%q: code %d, stdout %q", argv, got.code, got.out)
		}
		for line := range strings.Lines(got.err) {
			if !strings.HasPrefix(line, "lockrun: ") || strings.HasSuffix(line, ".\n") {
				t.Errorf("%q: not in the house's voice: %q", argv, line)
			}
		}
		if got.err == "" {
			t.Errorf("%q: nothing said", argv)
		}
	}
}

func TestAPanicIsAnInternalError(t *testing.T) {
	got := invoke(t, func(context.Context, *Config) (backends.Backend, error) { panic("oops\nlockrun: all is well") }, nil, "status")
	if got.code != codeInternal || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, "oops") {
		t.Errorf("code %d, stderr %q", got.code, got.err)
	}
}

func TestAnUnknownAnswerIs69AndSaysWhatToDo(t *testing.T) {
	for _, argv := range [][]string{{"status"}, {"history"}, {"unlock", "k", "--force"}, {"pause", "k"}, {"resume", "k"}, {"init"},
		{"acquire", "--key", "k"}, {"renew", "--key", "k", "--token", "1"}, {"release", "--key", "k", "--token", "1"}} {
		got := invoke(t, unreachable, nil, argv...)
		if got.code != codeUnavailable || got.out != "" || !strings.Contains(got.err, "nobody there; start it") {
			t.Errorf("%q: code %d, stdout %q, stderr %q", argv, got.code, got.out, got.err)
		}
	}
}

// vocabulary is what random command lines are made of: everything that means something, and some that does not.
func vocabulary() []string {
	words := []string{"--", "-", "", "---", "-=", "--=", "=", "k", "0", "1", "-1", "1s", "-1s", "1d", "999999999h", "forever", "a=b", "skipped=0",
		"skipped=999", "\x00", "\xff", "* * * * *", "CRON_TZ=Mars/X * * * * *", "sqlite:///x", "a://b@c:d@e/", "nobody", "true", "false", "maybe"}
	for _, c := range commands() {
		words = append(words, c.name)
	}
	for i := range options {
		o := &options[i]
		if o.name != "" {
			words = append(words, "--"+o.name, "-"+o.name, "--"+o.name+"=", "--"+o.name+"=x")
		}
		if o.short != "" {
			words = append(words, "-"+o.short)
		}
	}
	return words
}

func TestRandomCommandLines(t *testing.T) {
	t.Chdir(t.TempDir())
	words := vocabulary()
	rnd := rand.New(rand.NewPCG(1, 2))
	_, open := inMemory()
	settled := 0
	for range 400 {
		var argv []string
		if verbs := commands(); rnd.IntN(2) == 0 { // without one in front most lines are short of a key
			argv = append(argv, verbs[rnd.IntN(len(verbs))].name)
		}
		for range rnd.IntN(4) {
			argv = append(argv, words[rnd.IntN(len(words))])
		}
		w, err := cut(argv)
		if err != nil {
			continue
		}
		flags, err := parseFlags(w)
		if err != nil {
			t.Fatalf("%q: cut let through what the flag library refuses: %v", argv, err)
		}
		cfg, problems := settle(w.verb, flags, w.args, nil)
		if cfg.help {
			continue // answered whatever else is wrong
		}
		if len(problems) == 0 {
			settled++
		}
		if w.verb.is(vRun) && len(problems) == 0 || cfg.WhilePID != 0 {
			continue // these start processes
		}
		got := invoke(t, open, nil, argv...)
		if len(problems) > 0 && got.code != codeUsage && got.code != codeConfig && len(cfg.ExitCodes) == 0 {
			t.Errorf("%q: code %d for %v", argv, got.code, problems)
		}
		if strings.Contains(got.err, "internal error") {
			t.Errorf("%q: %s", argv, got.err)
		}
	}
	if settled < 20 {
		t.Errorf("only %d of the command lines meant something", settled)
	}
}

func FuzzCommandLine(f *testing.F) {
	f.Add("--key\nk\n--\ntrue")
	f.Add("status\n--json\nk")
	f.Add("unlock\nk\n--token\n1")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := cut(strings.Split(text, "\n"))
		if err != nil {
			return
		}
		flags, err := parseFlags(w)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		delete(flags, "config") // no file of this host is any of the fuzzer's business
		settle(w.verb, flags, w.args, nil)
	})
}
