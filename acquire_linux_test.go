package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockrun/lockrun/backends"
)

// shellBench is a store on disk that real processes share.
type shellBench struct {
	dir string
	env []string
	cfg *Config
}

func newShellBench(t *testing.T) *shellBench {
	t.Helper()
	dir := t.TempDir()
	url := "sqlite://" + filepath.Join(dir, "lockrun.db")
	return &shellBench{dir: dir, cfg: &Config{Backends: []Store{{URL: url}}, BackendTimeout: 5 * time.Second},
		env: append(os.Environ(), "LOCKRUN_TEST_MAIN=1", "HOME="+dir, "XDG_CONFIG_HOME=", "LOCKRUN_OWNER=", "LOCKRUN_BACKEND="+url, "lockrun="+os.Args[0])}
}

// script is a shell script in which $lockrun is lockrun. It is killed with the test.
func (b *shellBench) script(t *testing.T, text string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-euc", text)
	cmd.Dir, cmd.Env = b.dir, b.env
	cmd.Stderr = &bytes.Buffer{}
	return cmd
}

func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	})
}

// state is that of the key k.
func (b *shellBench) state(t *testing.T) backends.State {
	t.Helper()
	store, err := openBackend(t.Context(), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	states, err := store.Status(t.Context(), "k")
	if err != nil || len(states) != 1 {
		t.Fatalf("%+v, %v", states, err)
	}
	return states[0]
}

// last is the newest run record.
func (b *shellBench) last(t *testing.T) backends.Record {
	t.Helper()
	store, err := openBackend(t.Context(), b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	records, err := store.History(t.Context(), backends.Query{Limit: 1})
	if err != nil || len(records) == 0 {
		t.Fatalf("%+v, %v", records, err)
	}
	return records[0]
}

// eventually polls until is is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// deadProcess tells whether a process is gone or only waits for its parent to notice.
func deadProcess(pid int) bool { return startOf(pid) == "" }

func TestMinderKeepsTheLeaseAsLongAsTheScriptLives(t *testing.T) {
	t.Parallel()
	b := newShellBench(t)
	// That the substitution returns shows that the minder keeps no descriptor of it, neither stderr nor one that the script
	// has besides.
	cmd := b.script(t, `token=$("$lockrun" acquire --key k --ttl 600ms --while-pid $$ 2>&1 9>&1); echo "$token" >tmp; mv tmp token; exec sleep 1000`)
	start(t, cmd)
	eventually(t, "token", func() bool { _, err := os.Stat(filepath.Join(b.dir, "token")); return err == nil })
	var s backends.State
	eventually(t, "renewal past the first TTL", func() bool {
		s = b.state(t)
		return s.State == backends.Held && s.RenewedAt != nil && s.RenewedAt.Sub(*s.AcquiredAt) > 700*time.Millisecond
	})
	token, err := os.ReadFile(filepath.Join(b.dir, "token"))
	if err != nil || strings.TrimSpace(string(token)) != strconv.FormatInt(s.Token, 10) {
		t.Errorf("printed %q, %v; the store has %d", token, err, s.Token)
	}
	checkMinder(t, s.PID)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "release", func() bool { return b.state(t).State == backends.Free })
	if r := b.last(t); r.Outcome != backends.Crashed || r.Token != s.Token {
		t.Errorf("recorded %+v", r)
	}
	eventually(t, "end of the minder", func() bool { return deadProcess(s.PID) })
}

// checkMinder looks at the background process: a session of its own, nothing of the script's, nothing in its arguments.
func checkMinder(t *testing.T, pid int) {
	t.Helper()
	if sid, _, err := syscall.Syscall(syscall.SYS_GETSID, uintptr(pid), 0, 0); int(sid) != pid || err != 0 {
		t.Errorf("its session is %d, not %d: %v", sid, pid, err)
	}
	for _, fd := range []int{0, 1, 2} {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); to != os.DevNull || err != nil {
			t.Errorf("descriptor %d is %s, %v", fd, to, err)
		}
	}
	if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(line) != minderName+"\x00k\x00" || err != nil {
		t.Errorf("ps shows %q, %v", line, err)
	}
}

func TestReleaseEndsTheMinder(t *testing.T) {
	t.Parallel()
	for _, how := range []string{`"$lockrun" release --key k --token $token`, `"$lockrun" unlock k --force`} {
		b := newShellBench(t)
		cmd := b.script(t, `token=$("$lockrun" acquire --key k --ttl 1h --while-pid $$); touch ready; until test -e go; do sleep 0.02; done; `+how+`; touch done; exec sleep 1000`)
		start(t, cmd)
		eventually(t, "acquire", func() bool { _, err := os.Stat(filepath.Join(b.dir, "ready")); return err == nil })
		s := b.state(t)
		if s.State != backends.Held || deadProcess(s.PID) {
			t.Fatalf("not held by a living minder: %+v", s)
		}
		if err := os.WriteFile(filepath.Join(b.dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		// Its next heartbeat is twenty minutes away.
		eventually(t, "end of the minder", func() bool { return deadProcess(s.PID) })
		if s := b.state(t); s.State != backends.Free {
			t.Errorf("%s: the key is %+v", how, s)
		}
	}
}

func TestAcquireThatIsEndedWhileItWaitsLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, pid := range []string{"", " --while-pid $$"} {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
			b := newShellBench(t)
			store, err := openBackend(t.Context(), b.cfg)
			if err != nil {
				t.Fatal(err)
			}
			held, err := store.Acquire(t.Context(), backends.Request{Key: "k", Owner: backends.NewOwner(), Holder: "other", TTL: time.Hour, Slots: 1})
			if err != nil {
				t.Fatal(err)
			}
			cmd := b.script(t, `exec "$lockrun" acquire --key k --wait forever`+pid)
			start(t, cmd)
			eventually(t, "waiter", func() bool { s := b.state(t); return s.Waiters != nil && *s.Waiters == 1 })
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); sig != syscall.SIGKILL && ws.ExitStatus() != 128+int(sig) {
				t.Errorf("%v%s: ended with %v: %s", sig, pid, cmd.ProcessState, cmd.Stderr)
			}
			eventually(t, "end of the waiter", func() bool { s := b.state(t); return s.Waiters == nil || *s.Waiters == 0 })
			if err := held.Release(t.Context(), backends.End{Outcome: backends.Succeeded}); err != nil {
				t.Fatal(err)
			}
			if s := b.state(t); s.State != backends.Free {
				t.Errorf("%v%s: the key is %+v", sig, pid, s)
			}
			_ = store.Close()
		}
	}
}

func TestTokenThatCannotBePrintedIsNoLease(t *testing.T) {
	t.Parallel()
	b := newShellBench(t)
	for _, pid := range []string{"", " --while-pid $$"} {
		cmd := b.script(t, `"$lockrun" acquire --key k`+pid+` >/dev/full`)
		if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != codeNo {
			t.Errorf("%q: %v: %s", pid, err, cmd.Stderr)
		}
		eventually(t, "give back", func() bool { return b.state(t).State == backends.Free })
	}
}

func TestAcquireWithAMinderAnswersAsRunDoes(t *testing.T) {
	t.Parallel()
	b := newShellBench(t)
	for _, c := range []struct {
		before, options string
		code            int
		says            string
	}{
		{"", "--while-pid 999999999", codeUsage, "there is no such process"},
		{"", "--while-pid $$ --backend sqlite:///nonexistent/x.db", codeUnavailable, "/nonexistent"},
		{"", "--while-pid $$ --backend nosuch://h/", codeUsage, "knows no scheme nosuch"},
		{`"$lockrun" acquire --key k --holder me >token;`, "--while-pid $$ -v", codeSkipped, "skipped: \"k\" is held by me"},
		{"", "--while-pid $$ --exit-code skipped=9", 9, ""},
		{`"$lockrun" release --key k --token $(cat token);`, "--while-pid $$ --run-id r --exit-code done=3 >token; \"$lockrun\" release --key k --token $(cat token); \"$lockrun\" acquire --key k --run-id r --while-pid $$", codeDone, ""},
	} {
		cmd := b.script(t, c.before+` "$lockrun" acquire --key k `+c.options)
		out, err := cmd.Output()
		said := cmd.Stderr.(*bytes.Buffer).String()
		if cmd.ProcessState.ExitCode() != c.code || len(out) != 0 || (c.says == "") != (said == "") || !strings.Contains(said, c.says) {
			t.Errorf("%s: %v, stdout %q, stderr %q", c.options, err, out, said)
		}
	}
}

func TestMinderIsNotForUsers(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Args = []string{minderName, "k"}
	if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != codeUsage || !strings.Contains(string(out), "started by lockrun acquire") {
		t.Errorf("%v: %s", err, out)
	}
}
