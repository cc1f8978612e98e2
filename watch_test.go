package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/lockrun/lockrun/backends"
)

// atTerminal is lockrun on a terminal of its own.
type atTerminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	tty  *os.File
	mu   sync.Mutex
	seen strings.Builder
	gone chan struct{}
}

func startAtTerminal(t *testing.T, size pty.Winsize, env []string, argv ...string) *atTerminal {
	t.Helper()
	cmd := exec.Command(os.Args[0], argv...)
	cmd.Env = append(append(os.Environ(), "LOCKRUN_TEST_MAIN=1", "TERM=xterm", "GORACE=atexit_sleep_ms=0"), env...)
	tty, err := pty.StartWithSize(cmd, &size)
	if err != nil {
		t.Skip(err)
	}
	a := &atTerminal{t: t, cmd: cmd, tty: tty, gone: make(chan struct{})}
	go func() {
		defer close(a.gone)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			a.mu.Lock()
			a.seen.Write(buf[:n])
			a.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); _ = tty.Close() })
	return a
}

func (a *atTerminal) text() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.seen.String()
}

// until waits for what the terminal has to show.
func (a *atTerminal) until(what string, shown func(string) bool) {
	a.t.Helper()
	for start := time.Now(); !shown(a.text()); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			a.t.Fatalf("%s: not within a minute; the terminal has %q", what, a.text())
		}
	}
}

// end sends a signal, or types what stands for one, and gives the exit code.
func (a *atTerminal) end(typed string, sig syscall.Signal) int {
	a.t.Helper()
	if typed != "" {
		if _, err := io.WriteString(a.tty, typed); err != nil {
			a.t.Fatal(err)
		}
	} else if err := a.cmd.Process.Signal(sig); err != nil {
		a.t.Fatal(err)
	}
	select {
	case <-a.gone:
	case <-time.After(time.Minute):
		_ = a.cmd.Process.Kill()
		a.t.Fatalf("it does not end: %q", a.text())
	}
	var exit *exec.ExitError
	if err := a.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		a.t.Fatal(err)
	}
	return a.cmd.ProcessState.ExitCode()
}

// withKeys makes a store with these keys, which are free.
func withKeys(t *testing.T, keys ...string) (url string) {
	t.Helper()
	url = "sqlite://" + filepath.Join(t.TempDir(), "s.db")
	b, err := openBackend(t.Context(), &Config{Verb: "run", Backends: []Store{{URL: url}}, BackendTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, k := range keys {
		l, err := b.Acquire(t.Context(), backends.Request{Key: k, Owner: backends.NewOwner(), Holder: "h", TTL: time.Minute, Slots: 1})
		if err != nil {
			t.Fatal(err)
		}
		if k != "a" {
			end(t, l, backends.Succeeded)
		}
	}
	return url
}

func TestWatchAtATerminal(t *testing.T) {
	t.Parallel()
	url := withKeys(t, "a", "free1", "free2", "free3", "free4", "free5")
	for _, c := range []struct {
		typed string
		sig   syscall.Signal
		code  int
	}{{"\x03", 0, 130}, {"", syscall.SIGTERM, 143}, {"", syscall.SIGHUP, 129}} {
		if c.sig == syscall.SIGHUP && signal.Ignored(c.sig) {
			continue // the tests run under nohup, which lockrun respects
		}
		a := startAtTerminal(t, pty.Winsize{Rows: 8, Cols: 60}, nil, "status", "--watch", "--interval", "10ms", "-b", url)
		a.until("three pictures", func(s string) bool { return strings.Count(s, home) >= 3 })
		if code := a.end(c.typed, c.sig); code != c.code {
			t.Errorf("it ends with %d, want %d", code, c.code)
		}
		s := a.text()
		if !strings.HasPrefix(strings.TrimPrefix(s, "^C"), enterScreen) || !strings.HasSuffix(s, leaveScreen) || strings.Count(s, enterScreen) != 1 {
			t.Errorf("the terminal is not given back as it was: %q", s)
		}
		_, picture, _ := strings.Cut(s, home)
		picture, _, _ = strings.Cut(picture, home)
		lines := strings.Split(picture, "\n")
		if len(lines) != 8 || !strings.Contains(picture, green.on("held")) || !strings.Contains(lines[7], "... and 2 more") {
			t.Errorf("the first picture has %d lines: %q", len(lines), picture)
		}
		for _, l := range lines {
			for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[K", "\x1b[J", "\r"} {
				l = strings.ReplaceAll(l, code, "")
			}
			if len([]rune(l)) > 60 {
				t.Errorf("too wide: %q", l)
			}
		}
	}
}

func TestWatchFollowsTheSizeOfTheTerminalAndIsStoppedByIt(t *testing.T) {
	t.Parallel()
	url := withKeys(t, "a", "b", "c")
	a := startAtTerminal(t, pty.Winsize{Rows: 5, Cols: 60}, []string{"NO_COLOR=1"}, "status", "--watch", "--interval", "1h", "-b", url)
	a.until("a picture", func(s string) bool {
		return strings.Contains(s, "... and 3 more") || strings.Contains(s, "... and 2 more")
	})
	if err := pty.Setsize(a.tty, &pty.Winsize{Rows: 20, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	a.until("a larger picture", func(s string) bool { return strings.Count(s, home) >= 2 && strings.Contains(s, "\nc ") })
	if s := a.text(); strings.Contains(s, "\x1b[1m") || strings.Contains(s, "\x1b[2m") {
		t.Errorf("colours in spite of NO_COLOR: %q", s)
	}
	if _, err := io.WriteString(a.tty, "\x1a"); err != nil { // Ctrl-Z
		t.Fatal(err)
	}
	a.until("the terminal given back", func(s string) bool { return strings.HasSuffix(s, leaveScreen) })
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) { // a CONT that comes before the STOP does nothing
		if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if s := a.text(); strings.Count(s, enterScreen) == 2 && strings.Count(s, home) >= 3 {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("it does not go on: %q", a.text())
		}
	}
	if code := a.end("\x03", 0); code != 130 {
		t.Errorf("it ends with %d", code)
	}
}

func TestStatusAndHistoryInColours(t *testing.T) {
	t.Parallel()
	url := withKeys(t, "a", "free")
	a := startAtTerminal(t, pty.Winsize{Rows: 20, Cols: 100}, nil, "status", "-b", url)
	<-a.gone
	if s := a.text(); !strings.Contains(s, green.on("held")) || !strings.Contains(s, dim.on("free")) || strings.Contains(s, enterScreen) {
		t.Errorf("status: %q", s)
	}
	a = startAtTerminal(t, pty.Winsize{Rows: 20, Cols: 100}, nil, "history", "-b", url)
	<-a.gone
	if s := a.text(); !strings.Contains(s, green.on("succeeded")) {
		t.Errorf("history: %q", s)
	}
}
